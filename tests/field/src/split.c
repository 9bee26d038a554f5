/* For -fsplit-stack: rec < .. < leaf, whose frames lie on several stacks. leaf aborts. */
#include <stdlib.h>
#include <string.h>

volatile int sink;

__attribute__((noinline)) int leaf(int x)
{
    volatile char room[20000];
    memset((void *)room, x, sizeof room);
    abort();
    return room[x];
}

__attribute__((noinline)) int rec(int n)
{
    volatile char room[3000];
    room[n] = n;
    int result = n ? rec(n - 1) : leaf(3);
    return result + room[n];
}

int main(void)
{
    sink = rec(12);
    return 0;
}
