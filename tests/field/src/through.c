/* A shared object's function between two of the program. */
long through(long n, long (*inner)(long))
{
    volatile char room[40];
    room[n & 7] = 1;
    return inner(n) + room[1];
}
