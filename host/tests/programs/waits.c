/* Runs until it is told to end, by a line on its input or, with an argument, by a signal: busy,
 * with system calls, in two threads. Says on its output that it is ready. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include "probe.h"

static atomic_int stop;

__attribute__((noinline)) static void busy(void) {
    for (volatile int i = 0; i < 10000; i++) { }
    probe();
    getppid();
}

static void *thread(void *arg) {
    while (!stop) busy();
    return arg;
}

int main(int argc, char **argv) {
    (void)argv;
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    puts("ready");
    fflush(stdout);
    if (argc > 1) {
        alarm(60);
        for (;;) busy();
    } else {
        getchar();
    }
    stop = 1;
    pthread_join(other, 0);
    return 7;
}
