/* main and top, which calls mid. */
#include "parts.h"

extern int is_crash;

__attribute__((noinline)) long top(long n)
{
    long sum = 0;
    for (int i = 0; i < 60; i++)
        sum += mid(n) + i;
    return sum;
}

int main(int count, char **arguments)
{
    (void)arguments;
    is_crash = count > 1;
    return top(8000000) & 1;
}
