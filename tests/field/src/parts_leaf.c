/* The innermost function. Spins, or aborts if the program has an argument. */
#include "parts.h"
#include <stdlib.h>

int is_crash;

__attribute__((noinline)) long leaf(long n)
{
    if (is_crash)
        abort();
    while (n--)
        __asm__ volatile("");
    return n;
}
