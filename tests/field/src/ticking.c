/* A handler of SIGALRM that spins below spinning code: main < outer < spin, handler < busy. */
#include <signal.h>
#include <sys/time.h>

volatile int ticks;

__attribute__((noinline)) void busy(void)
{
    for (long n = 8000000; n--;)
        __asm__ volatile("");
}

static void handler(int number)
{
    (void)number;
    busy();
    ticks++;
}

__attribute__((noinline)) void spin(void)
{
    while (ticks < 60)
        __asm__ volatile("");
}

__attribute__((noinline)) void outer(void)
{
    spin();
    __asm__ volatile("");
}

int main(void)
{
    struct itimerval every = {{0, 10000}, {0, 10000}};
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &every, 0);
    outer();
    return 0;
}
