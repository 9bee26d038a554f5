/* The parts of a chain that is built from several files: main < top < mid < FUNCTION < leaf.
   FUNCTION is the one under test; it calls leaf. */
long leaf(long n);
long mid(long n);
long top(long n);
