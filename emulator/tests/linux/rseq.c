/* Restartable sequences: threads add to a counter of their processor without a lock. A sequence that
 * is interrupted between its load and its store begins again, or the sum would be too small. */
#include "start.h"

enum { THREADS = 4, STACK = 16384, TIMES = 300, SIGNATURE = 0x53053053 };
static char stacks[THREADS][STACK] __attribute__((aligned(64)));
static int numbers[THREADS], handled;
static word counters[1024], aborted;
struct area { unsigned cpu_id_start, cpu_id; word sequence; unsigned flags, node, mm, rest; } __attribute__((aligned(32)));
static struct area areas[THREADS + 1];

static void add(struct area *area) {
    word cpu, value, aborts = 0;
    __asm__ volatile(
        ".pushsection .data, \"aw\"\n .balign 32\n 9: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
        "3: lea 9b(%%rip), %[value]\n mov %[value], 8(%[area])\n"
        "1: mov (%[area]), %k[cpu]\n mov (%[counters], %[cpu], 8), %[value]\n"
        "mov $400, %%ecx\n 5: dec %%ecx\n jnz 5b\n inc %[value]\n"
        "mov %[value], (%[counters], %[cpu], 8)\n"
        "2: jmp 6f\n .long %c[signature]\n 4: inc %[aborts]\n jmp 3b\n 6:"
        : [cpu] "=&r"(cpu), [value] "=&r"(value), [aborts] "+&r"(aborts)
        : [area] "r"(area), [counters] "r"(counters), [signature] "i"(SIGNATURE)
        : "rcx", "memory", "cc");
    __atomic_add_fetch(&aborted, aborts, 5);
}

static __attribute__((noinline)) void work(word id) {
    if (SYS(rseq, &areas[id], 32, 0, SIGNATURE)) number("rseq", id);
    for (int i = 0; i < TIMES; i++) add(&areas[id]);
    SYS(rseq, &areas[id], 32, 1, SIGNATURE);
    SYS(exit, 0);
}

static long thread(int id) {
    word *top = (word *)(stacks[id] + STACK) - 2;
    top[0] = (word)work;
    top[1] = id;
    long made;
    register long r10 __asm__("r10") = (long)&numbers[id];
    register long r8 __asm__("r8") = 0;
    __asm__ volatile(
        "syscall; test %%rax, %%rax; jnz 1f; xor %%ebp, %%ebp; pop %%rax; pop %%rdi; call *%%rax; 1:"
        : "=a"(made)
        : "a"(56), "D"(0x350f00), "S"(top), "d"(&numbers[id]), "r"(r10), "r"(r8)
        : "rcx", "r11", "memory");
    return made;
}

/* It uses the same counter, in the middle of a sequence. */
static void handler(int signal) { handled++; add(&areas[THREADS]); }

static word sum(void) {
    word all = 0;
    for (int i = 0; i < 1024; i++) all += counters[i];
    return all;
}

int run(word *stack) {
    for (int i = 0; i < THREADS; i++) thread(i);
    for (int i = 0; i < THREADS; i++)
        for (int running; (running = __atomic_load_n(&numbers[i], 5));) SYS(futex, &numbers[i], 0, running, 0);
    number("sum", sum());
    /* A timer's signals interrupt the only thread. */
    long timer[4] = { 0, 50, 0, 50 }, none[4] = { 0, 0, 0, 0 };
    on_signal(14, handler, SA_RESTART, 0);
    number("rseq", SYS(rseq, &areas[THREADS], 32, 0, SIGNATURE));
    SYS(setitimer, 0, timer, 0);
    for (int i = 0; i < 3000; i++) add(&areas[THREADS]);
    SYS(setitimer, 0, none, 0);
    number("missing", sum() - THREADS * TIMES - 3000 - handled);
    if (stack[0] > 1) number("aborted", aborted > 10);
    return 0;
}
