/* mid, whose frame has a size known only when it runs: its CFA depends on rbp. It calls FUNCTION. */
#include "parts.h"
#include <alloca.h>

long FUNCTION(long n);

__attribute__((noinline)) long mid(long n)
{
    volatile char *room = alloca((n & 63) + 16);
    room[0] = 1;
    return FUNCTION(n) + room[0];
}
