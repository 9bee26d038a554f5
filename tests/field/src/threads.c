/* Four threads wait or spin, and the main thread aborts below lower. SPIN: all spin instead. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) void lower(int n)
{
    volatile char room[40];
    room[n & 7] = 1;
    abort();
}

__attribute__((noinline)) void upper(int n)
{
    lower(n + 1);
    __asm__ volatile("");
}

__attribute__((noinline)) void spin(void)
{
    for (long n = 200000000; n--;)
        __asm__ volatile("");
}

__attribute__((noinline)) void waiter(void)
{
#ifdef SPIN
    spin();
#else
    for (;;)
        pause();
#endif
    __asm__ volatile("");
}

static void *run(void *argument)
{
    waiter();
    return argument;
}

int main(int count, char **arguments)
{
    pthread_t threads[4];
    (void)arguments;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, run, 0);
#ifdef SPIN
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
#else
    usleep(50000);
    upper(count);
#endif
    return 0;
}
