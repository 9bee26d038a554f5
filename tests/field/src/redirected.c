/* put() writes over a word of the frame of copy(). MODE 1: the return address becomes 0x42424242, and
   copy returns there. MODE 2: it becomes an address in the middle of a function, which no call precedes.
   MODE 3: the saved rbp becomes 16. In 2 and 3 the program aborts before copy returns. */
#include <stdlib.h>

static __attribute__((noinline)) void check(void)
{
    abort();
}

__attribute__((noinline)) void put(volatile unsigned long *frame)
{
    switch (MODE) {
    case 1:
        frame[1] = 0x42424242;
        break;
    case 2:
        frame[1] = (unsigned long)check + 1;
        break;
    default:
        frame[0] = 16;
    }
}

__attribute__((noinline)) int copy(void)
{
    put(__builtin_frame_address(0));
    if (MODE > 1)
        check();
    return 1;
}

__attribute__((noinline)) int outer(void)
{
    volatile char room[64];
    room[0] = 1;
    return copy() + room[0];
}

int main(void)
{
    return outer();
}
