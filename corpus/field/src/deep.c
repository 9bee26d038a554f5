/* main < rec, DEPTH + 1 times with FRAME bytes each, < leaf, which spins, or aborts if the program
   has an argument. With ROOM leaf uses the stack, so GCC gives it a frame pointer if asked. */
#include <stdlib.h>
#include <string.h>

static int is_crash;
volatile long sink;

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
    return leaf(8000000) + room[1];
}

int main(int count, char **arguments)
{
    (void)arguments;
    is_crash = count > 1;
    for (int i = 0; i < 60; i++)
        sink += rec(DEPTH);
    return 0;
}
