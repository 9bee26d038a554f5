/* main < outer < victim takes SIGSEGV; handler < report aborts. With ONSTACK the handler has a stack of
   its own. With OWN, the trampoline is that of restorer.s, set by the system call itself. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) void report(void)
{
    volatile char room[64];
    room[0] = 1;
#ifdef TRAP
    __builtin_trap();
#else
    abort();
#endif
}

static void handler(int number)
{
    (void)number;
    report();
    __asm__ volatile("");
}

__attribute__((noinline)) int victim(int *pointer)
{
    int value = *pointer;
    return value + 1;
}

__attribute__((noinline)) int outer(int *pointer)
{
    return victim(pointer) + 2;
}

#ifdef OWN
void restorer(void);
struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};
#endif

int main(int count, char **arguments)
{
    (void)arguments;
#ifdef ONSTACK
    static char other[65536];
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = other;
    stack.ss_size = sizeof other;
    sigaltstack(&stack, 0);
#endif
#ifdef OWN
    struct kernel_action action = {handler, 0x04000000, restorer, 0};
    syscall(SYS_rt_sigaction, SIGSEGV, &action, 0, 8);
#else
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
#ifdef ONSTACK
    action.sa_flags = SA_ONSTACK;
#endif
    sigaction(SIGSEGV, &action, 0);
#endif
    return outer((int *)(long)(count - 1));
}
