/* Signals on the normal and on an alternate stack, nested, left by siglongjmp, and a handler
 * that skips the faulting instruction. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include "probe.h"

static sigjmp_buf back;
static volatile int ticks;

static void on_usr2(int sig) { (void)sig; probe(); }
static void on_usr1(int sig) { (void)sig; probe(); raise(SIGUSR2); }
static void on_alarm(int sig) { (void)sig; ticks++; }
static void on_jump(int sig) { (void)sig; siglongjmp(back, 1); }
static void on_segv(int sig, siginfo_t *info, void *context) {
    (void)sig; (void)info;
    ucontext_t *uc = context;
    probe();
    uc->uc_mcontext.gregs[REG_RIP] += 2;
}

static void handle(int sig, void (*f)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = f;
    action.sa_flags = flags;
    sigaction(sig, &action, 0);
}

__attribute__((noinline)) static void faults(void) {
    __asm__ volatile("xor %%eax, %%eax\n\t.byte 0x8b, 0x00" ::: "rax"); /* mov (%rax), %eax */
    probe();
}

__attribute__((noinline)) static void jumps_out(int depth) {
    if (depth) jumps_out(depth - 1);
    else raise(SIGHUP);
}

int main(void) {
    static char alternate[65536];
    stack_t ss = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&ss, 0);
    handle(SIGUSR1, on_usr1, 0);
    handle(SIGUSR2, on_usr2, SA_ONSTACK);
    handle(SIGALRM, on_alarm, SA_RESTART | SA_ONSTACK);
    raise(SIGUSR1);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    faults();
    for (int flags = 0; flags < 2; flags++) {
        handle(SIGHUP, on_jump, flags ? SA_ONSTACK : 0);
        if (!sigsetjmp(back, 1)) jumps_out(3);
        probe();
    }
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, 0);
    while (ticks < 20) { for (volatile int i = 0; i < 50; i++) { } }
    int ends[2];
    char byte;
    if (pipe(ends)) return 1;
    int before = ticks;
    if (!fork()) {
        struct timespec nap = {0, 30000000};
        nanosleep(&nap, 0);
        _exit(write(ends[1], "x", 1) != 1);
    }
    if (read(ends[0], &byte, 1) != 1) return 2; /* restarted by each tick */
    if (ticks == before) return 3;
    probe();
    return 0;
}
