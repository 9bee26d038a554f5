/* Calls a pointer that leads nowhere: null, data, or an address without memory. */
#include <stdlib.h>

static long data[8];
volatile long sink;

__attribute__((noinline)) int jump(int (*to)(void))
{
    volatile char room[24];
    room[1] = 1;
    return to() + room[1];
}

int main(int count, char **arguments)
{
    int mode = count > 1 ? atoi(arguments[1]) : 0;
    void *to = mode == 0 ? 0 : mode == 1 ? (void *)data : (void *)0x123456789000;
    sink = jump((int (*)(void))to);
    return 0;
}
