/* main < top < mid < leaf. Spins, or aborts in leaf with an argument. With ROOM leaf uses the stack. */
#include <stdlib.h>

#ifndef ROUNDS
#define ROUNDS 60
#endif

static int is_crash;

__attribute__((noinline)) long leaf(long n)
{
#ifdef ROOM
    volatile char room[200];
    room[n & 7] = 1;
#endif
    if (is_crash)
        abort();
    while (n--)
        __asm__ volatile("");
    return n;
}

__attribute__((noinline)) long mid(long n)
{
    volatile char room[40];
    room[n & 7] = 1;
    return leaf(n) + room[1];
}

__attribute__((noinline)) long top(long n)
{
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++)
        sum += mid(n) + i;
    return sum;
}

int main(int count, char **arguments)
{
    (void)arguments;
    is_crash = count > 1;
    return top(8000000) & 1;
}
