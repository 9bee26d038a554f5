/* Events of traced threads: new ones, execve, ends; groups that stop; and tracers that end. */
#include "cases.h"
#include "thread.h"
#include "tracer.h"

static long own;
static volatile word shown;
static void go(int request, long signal) { long done = SYS(ptrace, request, child, 0, signal); if (done) V(done); stopped(); }
/* The new thread, process or number of which the child's event tells. */
static long message(void) { shown = -1; R(GETEVENTMSG, child, 0, &shown); return shown; }
/* Lets another one go on, and says how it stops. */
static void other(long thread, int request, long signal) { long done = SYS(ptrace, request, thread, 0, signal); if (done) V(done); stopped_of(thread); }

static void forks_it(void) {
    int ended;
    long made = SYS(fork, 0);
    if (made == 0) SYS(exit_group, 11);
    SYS(wait4, made, &ended, 0, 0);
    SYS(exit_group, ended >> 8);
}
static void vforks_it(void) {
    long made;
    __asm__ volatile("mov $58, %%eax; syscall; test %%rax, %%rax; jnz 1f; mov $12, %%edi; mov $231, %%eax; syscall; 1:" : "=a"(made) :: "rcx", "r11", "rdi", "memory");
    SYS(exit_group, made > 0 ? 13 : 14);
}
enum { ROOM = 16384 };
static char stack[ROOM] __attribute__((aligned(64)));
static volatile int joined;
/* A thread that ends with 9. */
static void clones_it(void) {
    long number;
    register long r10 __asm__("r10") = (long)&joined;
    joined = 1;
    __asm__ volatile("syscall; test %%rax, %%rax; jnz 1f; mov $9, %%edi; mov $60, %%eax; syscall; 1:"
                     : "=a"(number) : "a"(56), "D"(0x250f00), "S"(stack + ROOM), "d"(0), "r"(r10) : "rcx", "r11", "memory");
    while (joined) SYS(sched_yield, 0);
    SYS(exit_group, 15);
}
static void clones_process_it(void) {
    long made = SYS(clone, USR1, 0, 0, 0, 0);
    if (made == 0) SYS(exit_group, 1);
    on_signal(USR1, (void *)1, 0, 0);
    int ended;
    SYS(wait4, made, &ended, WALL, 0);
    SYS(exit_group, 16);
}
static void new_ones(void) {
    start(forks_it);
    R(SETOPTIONS, child, 0, FORK | SYSGOOD);
    go(CONT, 0); long made = message();
    stopped_of(made); V(field(made, "TracerPid:") == own); V(field(made, "PPid:") == child);
    shown = 5; R(GETEVENTMSG, made, 0, &shown); V(shown);
    /* The options are the parent's: a call is marked. */
    other(made, CALLS, 0); R(CONT, made, 0, 0); stopped_of(made);
    /* The tracer first, then the parent. */
    R(CONT, child, 0, 0); stopped(); V(info[4] == made); go(CONT, CHLD);
    /* Nobody asks for it. */
    start(forks_it); R(CONT, child, 0, 0); stopped(); go(CONT, CHLD);
    start(vforks_it);
    R(SETOPTIONS, child, 0, VFORK | VFORK_DONE | FORK);
    go(CONT, 0); made = message(); stopped_of(made);
    R(CONT, child, 0, 0); V(SYS(wait4, child, &status, NOHANG | WALL, 0));
    other(made, CONT, 0);
    stopped();
    if ((status >> 8) == CHLD) { V(SYS(ptrace, CONT, child, 0, CHLD)); stopped(); }
    V(message() == made); R(CONT, child, 0, 0); stopped();
    if ((status & 0xff) == 0x7f) { R(CONT, child, 0, 0); stopped(); }
    start(clones_it);
    R(SETOPTIONS, child, 0, CLONE);
    go(CONT, 0); made = message(); V(made != child); stopped_of(made); V(field(made, "TracerPid:") == own); V(field(made, "Tgid:") == child);
    R(CONT, made, 0, 0); stopped_of(made); R(CONT, child, 0, 0); stopped(); V(SYS(wait4, made, &status, WALL, 0));
    start(clones_process_it);
    R(SETOPTIONS, child, 0, CLONE | FORK);
    go(CONT, 0); made = message(); stopped_of(made); other(made, CONT, 0); R(CONT, child, 0, 0); stopped();
    if ((status & 0xff) == 0x7f) { R(CONT, child, 0, 0); stopped(); }
    /* Processes of a child are stopped, too, when it was seized. */
    begin_other(waits); asleep(); end_child();
}

/* Executes itself, with a name that ends it at once. */
static void executes_it(void) {
    char *args[] = { "/proc/self/exe", "x", "x", "x", 0 };
    SYS(execve, args[0], args, 0);
    SYS(exit_group, 17);
}
static void programs(void) {
    start(executes_it);
    go(CONT, 0); get(); V(registers[ORIG_RAX]); V(registers[RAX]); V(registers[RDI]); V(info[4] == child); go(CONT, 0);
    start(executes_it);
    R(SETOPTIONS, child, 0, EXEC | SYSGOOD | EXIT);
    go(CONT, 0); V(message() == child); get(); V(registers[ORIG_RAX]); V(registers[RAX]); V(registers[RBX]);
    go(CALLS, 0); get(); V(registers[RAX]); V(registers[ORIG_RAX]);
    go(CONT, 0); V(message()); get(); V(registers[ORIG_RAX]);
    V(field(child, "State:")); go(CONT, 0);
    /* One step from the start of a program. */
    start(executes_it); R(SETOPTIONS, child, 0, EXEC); go(CONT, 0); get(); word at = registers[RIP];
    go(STEP, 0); get(); V(registers[RIP] - at); go(STEP, 0); get(); V(registers[RIP] > at); end_child();
    /* A signal ends it: the event comes before. */
    start(waits); R(SETOPTIONS, child, 0, EXIT); R(CONT, child, 0, 0); asleep();
    SYS(kill, child, USR1); stopped(); go(CONT, USR1); V(message()); go(CONT, 0);
}

static void groups(void) {
    int ended = 0;
    start(waits);
    /* A signal that stops the group: first the signal, then the stop. */
    R(CONT, child, 0, 0); asleep(); SYS(kill, child, 20); stopped(); go(CONT, STOP); V(field(child, "State:"));
    V(SYS(wait4, child, &ended, NOHANG | 2, 0)); R(LISTEN, child, 0, 0); R(INTERRUPT, child, 0, 0);
    R(CONT, child, 0, 0); asleep(); SYS(kill, child, CONTINUE); stopped(); go(CONT, STOP);
    SYS(kill, child, CONTINUE); R(CONT, child, 0, 0); stopped(); R(DETACH, child, 0, 0); asleep(); end_child();
    /* Seized: the stop is an event; it can be listened to. */
    begin_other(waits); asleep();
    R(SEIZE, child, 0, SYSGOOD); SYS(kill, child, STOP); stopped(); R(LISTEN, child, 0, 0); go(CONT, STOP); R(LISTEN, child, 0, 0);
    V(SYS(wait4, child, &ended, NOHANG | WALL, 0)); R(CONT, child, 0, 0); V(field(child, "State:"));
    SYS(kill, child, CONTINUE); stopped(); go(CONT, 0); V(info[0]);
    R(CONT, child, 0, CONTINUE); asleep(); R(INTERRUPT, child, 0, 0); stopped(); get(); V(registers[ORIG_RAX]); V(registers[RAX]);
    R(LISTEN, child, 0, 0); R(INTERRUPT, child, 0, 0); stopped(); R(INTERRUPT, child, 0, 0); go(CONT, 0);
    R(CONT, child, 0, 0); asleep(); end_child();
    /* One that was stopped before. */
    begin_other(waits); asleep(); SYS(kill, child, STOP); V(SYS(wait4, child, &ended, 2, 0) == child); V(ended);
    R(ATTACH, child, 0, 0); stopped(); V(field(child, "State:")); go(CONT, 0); V(info[2]); R(DETACH, child, 0, 0);
    SYS(kill, child, CONTINUE); asleep();
    SYS(kill, child, STOP); V(SYS(wait4, child, &ended, 2, 0) == child);
    R(SEIZE, child, 0, 0); stopped(); SYS(kill, child, CONTINUE); go(CONT, 0); go(CONT, CONTINUE); R(CONT, child, 0, 0); asleep(); end_child();
    /* Attached while it waits. */
    begin_other(waits); asleep(); R(ATTACH, child, 0, 0); stopped(); V(info[2]); get(); V(registers[ORIG_RAX]); V(registers[RAX]);
    R(DETACH, child, 0, 0); asleep(); V(field(child, "TracerPid:")); end_child();
}

/* A sleep goes on after stops that no handler ends, and a program that reads does. */
static void sleeps(void) { long time[2] = { 1000, 0 }; SYS(exit_group, -SYS(nanosleep, time, 0)); }
static long settled(void) {
    for (;;) {
        long state = field(child, "State:");
        if (state == 'S' || state == 'Z') return state;
        SYS(sched_yield, 0);
    }
}
static void sleeping(void) {
    int ended;
    begin_other(sleeps); asleep();
    R(ATTACH, child, 0, 0); stopped(); get(); V(registers[ORIG_RAX]); V(registers[RAX]); R(DETACH, child, 0, 0);
    while (field(child, "State:") == 't') SYS(sched_yield, 0);
    V(settled());
    SYS(kill, child, STOP); V(SYS(wait4, child, &ended, 2, 0) == child); SYS(kill, child, CONTINUE); V(SYS(wait4, child, &ended, 8, 0) == child);
    V(settled());
    end_child();
}

/* A tracer that ends, and what becomes of those that it traces. */
static void ends(void) {
    int ended, done[2];
    char byte;
    for (int kills = 0; kills < 2; kills++) {
        begin_other(waits); asleep();
        SYS(pipe, done); flush();
        long tracer = SYS(fork, 0);
        if (tracer == 0) {
            R(SEIZE, child, 0, kills ? EXITKILL : 0); R(INTERRUPT, child, 0, 0); stopped(); flush();
            SYS(write, done[1], "x", 1);
            waits();
        }
        SYS(read, done[0], &byte, 1);
        V(field(child, "TracerPid:") == tracer); V(field(child, "State:"));
        V(SYS(wait4, child, &ended, NOHANG | 2, 0)); R(CONT, child, 0, 0);
        SYS(kill, tracer, KILLED); SYS(wait4, tracer, &ended, 0, 0); V(ended);
        if (!kills) { asleep(); V(field(child, "TracerPid:")); SYS(kill, child, KILLED); }
        SYS(wait4, child, &ended, 0, 0); V(ended);
        SYS(close, done[0]); SYS(close, done[1]);
    }
    /* The tracer hears of the end first, then the parent. */
    begin_other(waits); asleep();
    SYS(pipe, done); flush();
    int back[2]; SYS(pipe, back);
    long tracer = SYS(fork, 0);
    if (tracer == 0) {
        R(SEIZE, child, 0, 0); V(SYS(wait4, child, &ended, NOHANG, 0)); flush();
        SYS(write, done[1], "x", 1);
        SYS(read, back[0], &byte, 1);
        V(SYS(wait4, child, &ended, 0, 0) == child); V(ended); V(SYS(wait4, child, &ended, 0, 0)); flush();
        SYS(exit_group, 0);
    }
    SYS(read, done[0], &byte, 1);
    SYS(kill, child, KILLED);
    while (field(child, "State:") != 'Z') SYS(sched_yield, 0);
    V(SYS(wait4, child, &ended, NOHANG, 0)); V(SYS(waitid, 1, child, info, 0x01000005, 0));
    flush();
    SYS(write, back[1], "x", 1);
    V(SYS(wait4, child, &ended, 0, 0) == child); V(ended); V(SYS(wait4, tracer, &ended, 0, 0) == tracer); V(ended);
}

/* All threads of a process end: each is waited for, the first one last. */
static void threads_it(void) {
    long number;
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall; test %%rax, %%rax; jnz 1f; 2: mov $34, %%eax; syscall; jmp 2b; 1:"
                     : "=a"(number) : "a"(56), "D"(0x50f00), "S"(stack + ROOM), "d"(0), "r"(r10) : "rcx", "r11", "memory");
    SYS(exit_group, 18);
}
static void together(void) {
    start(threads_it);
    R(SETOPTIONS, child, 0, CLONE);
    go(CONT, 0); long made = message(); stopped_of(made); R(CONT, made, 0, 0);
    V(SYS(tgkill, child, made, USR1)); stopped_of(made); R(CONT, made, 0, 0);
    R(CONT, child, 0, 0);
    V(SYS(waitid, 1, made, info, 0x41000004, 0)); V(SYS(wait4, child, &status, NOHANG | WALL, 0));
    stopped_of(made); stopped(); V(SYS(wait4, -1, &status, WALL, 0));
}

static void cases(void) {
    if (arguments > 3) SYS(exit_group, 55);
    own = SYS(getpid, 0);
    SYS(setpgid, 0, 0);
    flush();
    void (*const parts[])(void) = { new_ones, programs, groups, sleeping, ends, together };
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
