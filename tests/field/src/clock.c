/* main < ask < clock_gettime of the vDSO, where the time goes. */
#include <time.h>

__attribute__((noinline)) long ask(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_nsec;
}

int main(void)
{
    long sum = 0;
    for (int i = 0; i < 15000000; i++)
        sum += ask();
    return sum & 1;
}
