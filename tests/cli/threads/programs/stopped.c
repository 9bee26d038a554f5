/* A tracer that does not let its child go on. */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGUSR1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    pause();
    return 0;
}
