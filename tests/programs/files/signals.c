#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t seen;
static void on_signal(int number) { seen = number; }
int main(void)
{
    int ends[2], status;
    char byte;
    signal(SIGUSR1, on_signal);
    pipe(ends);
    pid_t child = fork();
    if (child == 0) {
        write(ends[1], "r", 1);
        while (!seen)
            usleep(1000);
        _exit(seen == SIGUSR1 ? 7 : 1);
    }
    read(ends[0], &byte, 1);
    kill(child, SIGUSR1);
    waitpid(child, &status, 0);
    printf("child ended with %d\n", WEXITSTATUS(status));
    if (fork() == 0)
        abort();
    wait(&status);
    printf("killed by %d\n", WTERMSIG(status));
    raise(SIGTERM);
    return 0;
}
