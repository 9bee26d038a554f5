/* Threads and processes: creating, waiting, ending, signals between them. Prints only what does not
 * depend on the order in which they run. */
#include "start.h"

enum { THREADS = 8, STACK = 16384 };
static char stacks[THREADS][STACK] __attribute__((aligned(64)));
static int lock, sum, begun, numbers[THREADS], handled;

static void take(int *word) {
    int free = 0;
    while (!__atomic_compare_exchange_n(word, &free, 1, 0, 5, 5)) {
        SYS(futex, word, 128, 1, 0);
        free = 0;
    }
}
static void give(int *word) {
    __atomic_store_n(word, 0, 5);
    SYS(futex, word, 129, 1);
}
static void wait_for_end(int *word) {
    for (int number; (number = __atomic_load_n(word, 5));) SYS(futex, word, 0, number, 0);
}

static int taken_by_first;
static void taken(int signal) { taken_by_first = signal == 10 && SYS(gettid, 0) == SYS(getpid, 0) ? 1 : 2; }

static __attribute__((noinline)) void work(word id) {
    __atomic_add_fetch(&begun, 1, 5);
    for (int i = 0; i < 500; i++) {
        take(&lock);
        int old = sum;
        if (i % 50 == 0) SYS(sched_yield, 0);
        sum = old + (int)id;
        give(&lock);
    }
    /* A signal of the process: its first thread takes it. */
    if (id == 3) SYS(kill, SYS(getpid, 0), 10);
    SYS(exit, (int)id);
}

/* clone with the flags of pthread_create. */
static long thread(int id) {
    word *top = (word *)(stacks[id] + STACK) - 2;
    top[0] = (word)work;
    top[1] = id;
    long number;
    register long r10 __asm__("r10") = (long)&numbers[id];
    register long r8 __asm__("r8") = 0;
    __asm__ volatile(
        "syscall; test %%rax, %%rax; jnz 1f; xor %%ebp, %%ebp; pop %%rax; pop %%rdi; call *%%rax; 1:"
        : "=a"(number)
        : "a"(56), "D"(0x350f00), "S"(top), "d"(&numbers[id]), "r"(r10), "r"(r8)
        : "rcx", "r11", "memory");
    return number;
}

static void count(int signal) { handled += signal; }

static void threads(void) {
    on_signal(10, taken, SA_RESTART, 0);
    for (int id = 0; id < THREADS; id++) thread(id);
    for (int id = 0; id < THREADS; id++) wait_for_end(&numbers[id]);
    number("begun", begun);
    number("sum", sum);
    number("taken by the first", taken_by_first);
}

static void children(void) {
    int ends[2], status = 0;
    char bytes[8] = {0};
    SYS(pipe, ends);
    int shared = 1;
    long child = SYS(fork, 0);
    if (child == 0) {
        shared = 2;
        SYS(close, ends[0]);
        SYS(write, ends[1], "child", 5);
        SYS(exit_group, 7 + shared);
    }
    SYS(close, ends[1]);
    number("read", SYS(read, ends[0], bytes, 8));
    print(bytes);
    number(" end", SYS(read, ends[0], bytes, 8));
    number("waited", SYS(wait4, child, &status, 0, 0) == child);
    number("status", status);
    number("own", shared);
    number("no child", SYS(wait4, -1, &status, 0, 0));
    SYS(close, ends[0]);
}

static void signals_between(void) {
    int status = 0, info[32] = {0};
    on_signal(17, count, SA_RESTART, 0);
    long child = SYS(fork, 0);
    if (child == 0) for (;;) SYS(pause, 0);
    number("group", SYS(getpgid, child) == SYS(getpgid, 0));
    number("kill", SYS(kill, child, 9));
    while (!handled) SYS(sched_yield, 0);
    number("handled", handled);
    number("waitid", SYS(waitid, 1, child, info, 4, 0));
    number("code", info[2]);
    number("who", info[4] == child);
    number("signal", info[6]);
    child = SYS(fork, 0);
    if (child == 0) {
        SYS(kill, SYS(getpid, 0), 19);
        SYS(exit_group, 3);
    }
    number("stopped", SYS(wait4, child, &status, 2, 0) == child);
    number("how", status);
    number("continued", SYS(kill, child, 18));
    number("ended", SYS(wait4, child, &status, 0, 0) == child);
    number("how", status);
    number("gone", SYS(kill, child, 0));
}

static void borrowed(void) {
    static int written;
    int status = 0;
    long child;
    /* vfork: the child uses this memory until it ends. */
    __asm__ volatile("syscall" : "=a"(child) : "a"(58) : "rcx", "r11", "memory");
    if (child == 0) {
        written = 5;
        __asm__ volatile("syscall" : : "a"(60), "D"(4) : "rcx", "r11", "memory");
    }
    number("written", written);
    SYS(wait4, child, &status, 0, 0);
    number("status", status);
}

static void orphans(void) {
    int ends[2];
    char byte = 0;
    SYS(pipe, ends);
    long child = SYS(fork, 0);
    if (child == 0) {
        if (SYS(fork, 0) == 0) {
            while (SYS(getppid, 0) == child) SYS(sched_yield, 0);
            SYS(write, ends[1], "o", 1);
            SYS(exit_group, 0);
        }
        SYS(exit_group, 0);
    }
    SYS(wait4, child, 0, 0, 0);
    SYS(read, ends[0], &byte, 1);
    number("orphan", byte);
}

/* Memory that a child shares, and a futex in it. */
static void shared_memory(void) {
    int *words = (int *)SYS(mmap, 0, 8192, 3, 0x21, -1, 0), status;
    words[0] = 1;
    words[1024] = 5;
    long child = SYS(fork, 0);
    if (child == 0) {
        words[1024] += 6;
        __atomic_store_n(words, 0, 5);
        SYS(futex, words, 1, 1);
        /* Its end would wake the parent, too. */
        for (;;) SYS(pause, 0);
    }
    while (__atomic_load_n(words, 5)) SYS(futex, words, 0, 1, 0);
    number("shared", words[1024]);
    SYS(kill, child, 9);
    SYS(wait4, child, &status, 0, 0);
}

/* More than a pipe holds, from one process to another. */
static void through_a_pipe(void) {
    static char block[100000];
    int ends[2], status;
    SYS(pipe, ends);
    long child = SYS(fork, 0);
    if (child == 0) {
        long total = 0, count;
        SYS(close, ends[1]);
        while ((count = SYS(read, ends[0], block, 777)) > 0)
            for (int i = 0; i < count; i++) total += block[i];
        SYS(exit_group, total % 251);
    }
    SYS(close, ends[0]);
    for (unsigned i = 0; i < sizeof block; i++) block[i] = i % 97;
    number("written", SYS(write, ends[1], block, sizeof block));
    SYS(close, ends[1]);
    SYS(wait4, child, &status, 0, 0);
    number("total", status >> 8);
}

int run(word *stack) {
    char **args = (char **)(stack + 1);
    if (stack[0] > 1 && args[1][0] == 't') threads();
    else {
        children();
        signals_between();
        borrowed();
        orphans();
        through_a_pipe();
        shared_memory();
    }
    return 0;
}
