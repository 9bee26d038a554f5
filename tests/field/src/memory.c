/* main < top < mid < memset of the C library, where the time goes. */
#include <string.h>

static char room[1 << 20];

__attribute__((noinline)) void mid(int n)
{
    memset(room, n, sizeof room);
    __asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) void top(void)
{
    for (int n = 0; n < 15000; n++)
        mid(n);
}

int main(void)
{
    top();
    return 0;
}
