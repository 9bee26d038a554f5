/* Runs until told to end. By default: by a line on its input, with two threads making system calls.
 * With an argument: by a signal, without system calls. Prints when it is ready. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include "probe.h"

static atomic_int stop;
static int calls = 1;

__attribute__((noinline)) static void busy(void) {
    for (volatile int i = 0; i < 10000; i++) { }
    if (calls) {
        probe();
        getppid();
    }
}

static void *thread(void *arg) {
    while (!stop) busy();
    return arg;
}

int main(int argc, char **argv) {
    (void)argv;
    calls = argc == 1;
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
