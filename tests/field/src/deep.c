/* `rec` calls itself DEPTH times with FRAME bytes each, then leaf. Writes the distance from leaf's
   frame to main's into the file `distance`. With an argument it aborts in leaf. With ROOM leaf uses the
   stack, so GCC gives it a frame pointer if asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_crash;
static char *outermost;
volatile long sink;

__attribute__((noinline)) void note(void)
{
    char here;
    FILE *file = fopen("distance", "w");
    fprintf(file, "%ld\n", (long)(outermost - &here));
    fclose(file);
}

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

__attribute__((noinline)) long rec(long depth)
{
    char room[FRAME];
    memset(room, depth, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
    if (depth)
        return rec(depth - 1) + room[3];
    if (!sink++)
        note();
    return leaf(8000000) + room[1];
}

int main(int count, char **arguments)
{
    char here;
    (void)arguments;
    is_crash = count > 1;
    outermost = &here;
    for (int i = 0; i < 60; i++)
        sink += rec(DEPTH);
    return 0;
}
