/* Calls THROUGH of a shared object, which calls back: main < top < THROUGH < spin. With an argument
   spin aborts. */
#include <stdlib.h>

long THROUGH(long n, long (*inner)(long));

static int is_crash;

__attribute__((noinline)) long spin(long n)
{
    if (is_crash)
        abort();
    while (n--)
        __asm__ volatile("");
    return n;
}

__attribute__((noinline)) long top(long n)
{
    long sum = 0;
    for (int i = 0; i < 60; i++)
        sum += THROUGH(n, spin) + i;
    return sum;
}

int main(int count, char **arguments)
{
    (void)arguments;
    is_crash = count > 1;
    return top(8000000) & 1;
}
