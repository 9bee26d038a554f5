/* The tiny function. */
long tiny(long n)
{
    return n & 1;
}
