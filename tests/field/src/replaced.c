/* Aborts below a function with a frame whose size depends on the build (V2). */
#include <stdlib.h>

#ifdef V2
#define ROOM 400
__attribute__((noinline)) int added(int n) { volatile char room[ROOM]; room[n] = 1; return room[n]; }
#else
#define ROOM 40
#endif

__attribute__((noinline)) void lower(int n)
{
    volatile char room[ROOM];
    room[n & 7] = 1;
    abort();
}

__attribute__((noinline)) void upper(int n)
{
#ifdef V2
    n += added(n);
#endif
    lower(n + 1);
    __asm__ volatile("");
}

int main(int count, char **arguments)
{
    (void)arguments;
    upper(count);
    return 0;
}
