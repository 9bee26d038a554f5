/* A string is copied over the return address of `copy`. With BELOW, the program aborts in a function
   that `copy` calls afterwards; else it crashes where `copy` returns. */
#include <stdlib.h>
#include <string.h>

static char text[120];

__attribute__((noinline)) void check(char *room)
{
#ifdef BELOW
    if (room[0] == 'A')
        abort();
#endif
    __asm__ volatile("" : : "r"(room) : "memory");
}

__attribute__((noinline)) int copy(const char *from)
{
    char room[16];
    strcpy(room, from);
    check(room);
    return room[1];
}

__attribute__((noinline)) int outer(void)
{
    return copy(text) + 1;
}

int main(void)
{
    memset(text, 'A', sizeof text - 1);
    return outer();
}
