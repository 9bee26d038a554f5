/* A tracer calls a function of its child, as debuggers do: it pushes a return address below the red zone of a
 * function that is not in a call, and changes rip. */
#include <signal.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int called;
static __attribute__((noinline)) void inner(int depth) {
    if (depth > 0) inner(depth - 1);
    called++;
}
static __attribute__((noinline)) void function(void) {
    inner(3);
    called++;
}
extern char back[];
static __attribute__((noinline)) void deep(int depth) {
    if (depth > 0) {
        deep(depth - 1);
        called++;
    } else {
        __asm__ volatile("int3\n\tback: int3" ::: "memory");
    }
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        deep(4);
        _exit(called == 9 ? 7 : 8);
    }
    int status;
    waitpid(child, &status, 0);
    struct user_regs_struct before, during;
    ptrace(PTRACE_GETREGS, child, 0, &before);
    during = before;
    during.rsp = (before.rsp - 256) & ~15ul;
    during.rsp -= 8;
    ptrace(PTRACE_POKEDATA, child, during.rsp, back);
    during.rip = (uintptr_t)function;
    ptrace(PTRACE_SETREGS, child, 0, &during);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    before.rip = (uintptr_t)back + 1;
    ptrace(PTRACE_SETREGS, child, 0, &before);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
