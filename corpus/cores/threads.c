/* Three threads that wait: two in nested functions, the first in a signal handler on an alternate
   stack. gdb writes the core when the handler is reached. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_barrier_t ready;

__attribute__((noinline)) int wait_here(volatile int depth)
{
    if (depth > 0)
        return wait_here(depth - 1) + depth;
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
}

static void *thread(void *depth)
{
    return (void *)(long)wait_here((int)(long)depth);
}

__attribute__((noinline)) void in_handler(void)
{
    asm volatile("" ::: "memory");
}

static void handler(int signal)
{
    (void)signal;
    usleep(100000);
    in_handler();
}

__attribute__((noinline)) int interrupted(void)
{
    raise(SIGUSR1);
    return 1;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t threads[2];
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 32768);
    pthread_barrier_init(&ready, 0, 3);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], &attr, thread, (void *)(3 + 4 * i));
    pthread_barrier_wait(&ready);
    return interrupted();
}
