/* Threads, fork, vfork with exec, posix_spawn, and exec in the child itself. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "probe.h"

__attribute__((noinline)) static void deep(int depth) {
    if (depth) { deep(depth - 1); return; }
    probe();
}

static void *thread(void *arg) {
    deep((int)(long)arg);
    return arg;
}

__attribute__((noinline)) static int reaped(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

extern char **environ;

int main(int argc, char **argv) {
    if (argc > 1) { probe(); return 0; }
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, thread, (void *)i);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    pid_t pid = fork();
    if (!pid) { deep(1); _exit(0); }
    if (!reaped(pid)) return 1;
    pid = vfork();
    if (!pid) { execl("/proc/self/exe", "again", "x", (char *)0); _exit(1); }
    if (!reaped(pid)) return 2;
    char *args[] = {argv[0], "x", 0};
    if (posix_spawn(&pid, "/proc/self/exe", 0, 0, args, environ)) return 3;
    if (!reaped(pid)) return 4;
    probe();
    return 0;
}
