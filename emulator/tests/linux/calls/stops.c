/* The stops of traced threads: signals, system calls, single steps, events, groups; and their ends. */
#include "cases.h"
#include "thread.h"
#include "tracer.h"

static long own;
static volatile word shown;
static void go(int request, long signal) { long done = SYS(ptrace, request, child, 0, signal); if (done) V(done); stopped(); }
static void message(void) { shown = -1; R(GETEVENTMSG, child, 0, &shown); }

static volatile int caught;
static __attribute__((noinline)) void handler(int number) { caught = number; }
static void raises(void) {
    long self = SYS(getpid, 0);
    on_signal(USR1, handler, 0, 0); on_signal(USR2, handler, 0, 0);
    SYS(kill, self, USR1); int first = caught;
    SYS(kill, self, USR1); int second = caught; caught = 0;
    SYS(kill, self, USR1); int third = caught;
    SYS(kill, self, CHLD);
    SYS(exit_group, first == USR1 && second == USR2 && third == 0 ? 7 : 8);
}
/* The signal as it is, another one, none; one that is ignored. */
static void signals(void) {
    start(raises);
    go(CONT, 0); V(info[4] == child); go(CONT, USR1); go(CONT, USR2); go(CONT, 0); go(CONT, 0);
    start(raises); go(CONT, 0); go(CONT, KILLED);
    start(raises); go(CONT, 0); SYS(kill, child, KILLED); stopped(); R(CONT, child, 0, 0);
    start(raises); go(CONT, 0); R(KILL, child, 0, 0); stopped();
    start(raises); go(CONT, 15);
}
static void blocked(void) {
    long self = SYS(getpid, 0);
    int forked = 0;
    SYS(kill, self, USR1);
    forked = SYS(getppid, 0) > 0;
    SYS(exit_group, forked);
}
/* What a tracer hears of it: SIGCHLD, wait in its ways. */
static volatile int children, child_info[8];
static void on_child(int number, int *si, void *context) {
    (void)number; (void)context;
    children++;
    for (int i = 0; i < 8; i++) child_info[i] = si[i];
}
static void waiting(void) {
    on_signal(CHLD, on_child, SA_SIGINFO | SA_RESTART, 0);
    flush();
    child = SYS(fork, 0);
    if (child == 0) { SYS(ptrace, TRACEME, 0, 0, 0); blocked(); }
    while (!children) SYS(sched_yield, 0);
    V(child_info[0]); V(child_info[2]); V(child_info[4] == child); V(child_info[6]);
    memset(info, 0, sizeof info);
    V(SYS(waitid, 1, child, info, 0x01000002, 0)); V(info[0]); V(info[2]); V(info[3 + 1] == child); V(info[6]);
    memset(info, 0, sizeof info); V(SYS(waitid, 1, child, info, 5, 0)); V(info[0]);
    /* Also by those who do not ask for it. */
    V(SYS(wait4, -1, &status, NOHANG, 0) == child); V(status); V(SYS(wait4, -1, &status, NOHANG | 2, 0));
    V(SYS(wait4, child, &status, NOHANG | WALL, 0)); V(SYS(waitid, 1, child, info, 0x01000003, 0));
    children = 0;
    R(SETOPTIONS, child, 0, SYSGOOD); R(CALLS, child, 0, 0);
    while (!children) SYS(sched_yield, 0);
    V(child_info[2]); V(child_info[6]); V(SYS(waitid, 1, child, info, 2, 0)); V(info[2]); V(info[6]);
    R(CONT, child, 0, 0); V(SYS(wait4, child, &status, 0x20000000, 0) == child); V(status);
    V(SYS(wait4, child, &status, WALL, 0));
    on_signal(CHLD, 0, 0, 0);
}

/* System calls: their numbers, arguments and results, also others than the program's. */
static void calls_it(void) {
    SYS(getpriority, 3, 5, 6);
    SYS(getpriority, 3, 7, 8);
    long skipped = SYS(getppid, 0);
    long other = SYS(getppid, 0);
    SYS(exit_group, skipped == 77 && other == 100 ? 3 : 4);
}
static void call_info(void) {
    char all[96]; memset(all, 0, sizeof all);
    R(GET_SYSCALL_INFO, child, sizeof all, all);
    V(all[0]); V(*(word *)(all + 8) == registers[RIP]); V(*(word *)(all + 16) == registers[RSP]);
    for (int i = 0; i < 4; i++) V(all[0] == 1 || i == 0 ? ((word *)(all + 24))[i] : (word)all[32]);
}
static void calls(void) {
    start(calls_it);
    go(CALLS, 0); call(); call_info(); message(); R(SETOPTIONS, child, 0, SYSGOOD);
    /* The end of kill(2), then both of the next ones. */
    for (int i = 0; i < 4; i++) { go(CALLS, 0); call(); call_info(); message(); V(shown); }
    registers[ORIG_RAX] = -1; registers[RAX] = 77; set(); go(CALLS, 0); call();
    go(CALLS, 0); call();
    registers[ORIG_RAX] = __NR_getuid; set(); go(CALLS, 0); get(); V(registers[RAX] == SYS(getuid, 0)); registers[RAX] = 100; set();
    go(CALLS, 0); call(); V(registers[RDI]); V(field(child, "State:"));
    go(CALLS, USR1); 
}
/* A signal for a thread that waits in a call: what is seen of it, and that the call is made again. */
static int ends_of[2];
static void reads(void) {
    char byte = 0;
    on_signal(USR1, handler, 0, 0); on_signal(USR2, handler, SA_RESTART, 0);
    long interrupted = SYS(read, ends_of[0], &byte, 1);
    long restarted = SYS(read, ends_of[0], &byte, 1);
    SYS(exit_group, interrupted == -4 && restarted == 1 && byte == 'x' ? 5 : 6);
}
static void restarts(void) {
    SYS(pipe, ends_of);
    start(reads);
    R(SETOPTIONS, child, 0, SYSGOOD);
    for (int i = 0; i < 5; i++) go(CALLS, 0);
    call(); R(CALLS, child, 0, 0); asleep();
    SYS(kill, child, CHLD); stopped(); call(); go(CALLS, 0); call(); go(CALLS, 0); call(); R(CALLS, child, 0, 0); asleep();
    SYS(kill, child, USR1); stopped(); call(); go(CALLS, 0); call(); go(CALLS, USR1); call();
    /* The handler's return, then the next one. */
    go(CALLS, 0); call(); go(CALLS, 0); call(); R(CALLS, child, 0, 0); asleep();
    SYS(kill, child, USR2); stopped(); call(); go(CALLS, 0); go(CALLS, USR2); call(); go(CALLS, 0); call(); go(CALLS, 0); call();
    R(CONT, child, 0, 0); asleep(); SYS(write, ends_of[1], "x", 1); stopped();
    /* A tracer that takes the call away, and gives it back. */
    start(reads);
    R(CONT, child, 0, 0); asleep(); SYS(kill, child, STOP); stopped(); call();
    registers[ORIG_RAX] = -1; set(); call(); registers[ORIG_RAX] = 0; registers[RAX] = -512; set(); call(); R(CONT, child, 0, 0); asleep();
    SYS(kill, child, STOP); stopped(); get(); registers[ORIG_RAX] = -1; registers[RAX] = -4; set(); R(CONT, child, 0, 0); asleep();
    SYS(write, ends_of[1], "x", 1); stopped();
    SYS(close, ends_of[0]); SYS(close, ends_of[1]);
}

/* Single steps: over instructions, a call, into a handler, over popf and a string instruction. */
extern char step_start[], step_call[], step_flags[], step_string[], step_end[];
static void steps_it(void) {
    on_signal(USR1, handler, 0, 0);
    __asm__ volatile("int3; step_start: nop; mov $39, %%eax; step_call: syscall; pushfq; step_flags: popfq; nop;"
                     "mov $3, %%ecx; mov %%rsp, %%rdi; sub $64, %%rdi; step_string: rep stosb; nop; ud2; step_end:"
                     ::: "rax", "rcx", "rdi", "r11", "memory");
}
static void place(void) {
    get(); report("rip", registers[RIP] - (word)step_start); report("TF", registers[EFLAGS] >> 8 & 1);
}
static void steps(void) {
    start(steps_it);
    go(CONT, 0); place();
    for (int i = 0; i < 4; i++) { go(STEP, 0); place(); if (i < 3) V(*(word *)&info[4] - (word)step_start); }
    V(registers[RAX] == (word)child);
    for (int i = 0; i < 10; i++) { go(STEP, 0); place(); if (i == 6) V(registers[RCX]); }
    /* At the instruction that is none. */
    go(STEP, 0); place(); go(STEP, USR1);
    get(); V(registers[RIP] == (word)handler); V(registers[EFLAGS] >> 8 & 1); V(registers[RDI]);
    go(STEP, 0); V(info[2]);
    go(CONT, 0); go(CONT, 4);
}
/* Breakpoints that a tracer sets in the code. */
static void breaks_it(void) { SYS(getppid, 0); handler(1); handler(2); }
static void breakpoints(void) {
    start(breaks_it);
    word before = 0; R(PEEKTEXT, child, handler, &before);
    R(POKETEXT, child, handler, (before & ~0xfful) | 0xcc);
    for (int i = 1; i <= 2; i++) {
        go(CONT, 0); get(); V(registers[RIP] - (word)handler); V(registers[RDI]);
        registers[RIP]--; set(); R(POKETEXT, child, handler, before); go(STEP, 0); get(); V(registers[RIP] > (word)handler);
        R(POKETEXT, child, handler, (before & ~0xfful) | 0xcc);
    }
    go(CONT, 0);
}
/* A program that steps itself. */
static volatile int traps; static volatile word trap_at;
static void on_trap(int number, int *si, word *context) { (void)number; traps += si[2]; trap_at = *(word *)(si + 4); context[22] = 0; context[40 / 8 + 17] &= ~0x100ul; }
extern char self_end[];
static void itself(void) {
    on_signal(TRAP, on_trap, SA_SIGINFO, 0);
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; nop; self_end: nop; nop" ::: "memory", "cc");
    V(traps); V(trap_at == (word)self_end);
}

static void cases(void) {
    own = SYS(getpid, 0);
    SYS(setpgid, 0, 0);
    flush();
    void (*const parts[])(void) = { signals, waiting, calls, restarts, steps, breakpoints, itself };
    for (int i = 0; i < COUNT(parts); i++) {
        flush();
        int ended = 0;
        long part = SYS(fork, 0);
        if (part == 0) {
            own = SYS(getpid, 0);
            parts[i]();
            flush();
            SYS(exit_group, 0);
        }
        SYS(wait4, part, &ended, WALL, 0);
        V(ended);
    }
}
