/* Recursion without an end. With MUTUAL, two functions call each other. With STOP it ends. */
volatile long sink;
long even(long n);

__attribute__((noinline)) long odd(long n)
{
    volatile char room[8];
    room[n & 7] = 1;
    return even(n + 1) + room[1];
}

__attribute__((noinline)) long even(long n)
{
    volatile char room[8];
    room[n & 7] = 1;
#ifdef STOP
    if (n > 1000)
        return 0;
#endif
#ifdef MUTUAL
    return odd(n + 1) + room[1];
#else
    return even(n + 1) + room[1];
#endif
}

int main(void)
{
    sink = even(0);
    return 0;
}
