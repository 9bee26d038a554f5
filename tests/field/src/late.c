/* Aborts. */
#include <stdlib.h>

__attribute__((noinline)) void late(int n)
{
    volatile char room[80];
    room[n] = 1;
    abort();
}
