/* Programs that ask for more until it is refused, and some that never stop. */
#include "start.h"

static int is(const char *a, const char *b) { return length(a) == length(b) && same(a, b, length(a)); }
static char name[16];
static const char *named(int i) {
    char *at = name + sizeof name - 1;
    do *--at = '0' + i % 10; while (i /= 10);
    *--at = 'n';
    return at;
}
/* Repeats until an error. */
#define MANY(most, work) do { \
    int made = 0; \
    long error = 0; \
    while (made < (most) && (error = (work)) >= 0) made++; \
    number("made", made); \
    number("error", error < 0 ? error : 0); \
} while (0)
static char stacks[64][4096] __attribute__((aligned(64)));
/* A thread that waits for ever, or makes more. */
static long thread(int id, int bomb);
static __attribute__((noinline, used)) void works(word bomb) {
    while (bomb) thread(0, 1);
    for (;;) SYS(pause, 0);
}
static long thread(int id, int bomb) {
    word *top = (word *)(stacks[id % 64] + 4096) - 2;
    if (bomb) {
        long at = SYS(mmap, 0, 8192, 3, 0x22, -1, 0);
        if (at < 0) return at;
        top = (word *)(at + 8192) - 2;
    }
    top[0] = (word)works;
    top[1] = bomb;
    long number;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile(
        "syscall; test %%rax, %%rax; jnz 1f; xor %%ebp, %%ebp; pop %%rax; pop %%rdi; call *%%rax; 1:"
        : "=a"(number)
        : "a"(56), "D"(0x10f00), "S"(top), "d"(0), "r"(r10), "r"(r8)
        : "rcx", "r11", "memory");
    return number;
}
static long child(int waits, int ends) {
    long child = SYS(fork, 0);
    if (child == 0) {
        if (!ends) for (;;) SYS(pause, 0);
        SYS(exit_group, 0);
    }
    if (child > 0 && waits) SYS(wait4, child, 0, 0, 0);
    return child;
}
static long closed(long f) { return f < 0 ? f : SYS(close, f); }

int run(word *stack) {
    const char *how = (const char *)stack[2];
    int two[2];
    int i = 0;
    if (is(how, "processes")) MANY(100000, child(0, 0));
    if (is(how, "zombies")) MANY(100000, child(0, 1));
    if (is(how, "threads")) MANY(100000, thread(i++, 0));
    if (is(how, "pipes")) MANY(100000, SYS(pipe, two));
    if (is(how, "sockets")) MANY(100000, SYS(socket, 1, 1, 0));
    if (is(how, "counters")) MANY(100000, SYS(eventfd2, 0, 0));
    /* As many as are asked for: who may raises the limit of the process. */
    word most[2] = { 200000, 200000 };
    word blocked = ~0ul;
    struct { int signal, error, code, pad[29]; } info = { 34, 0, -1, { 0 } };
    SYS(prlimit64, 0, 11, most, 0);
    if (is(how, "posix-timers")) MANY(1000, SYS(timer_create, 1, 0, two));
    if (is(how, "queued-signals")) {
        SYS(rt_sigprocmask, 0, &blocked, 0, 8);
        MANY(1000, SYS(rt_sigqueueinfo, SYS(getpid, 0), 34, &info));
    }
    if (is(how, "files")) MANY(100000, closed(SYS(open, named(i++), 0102, 0600)));
    if (is(how, "folders")) MANY(100000, SYS(mkdir, named(i++), 0700));
    if (is(how, "links")) MANY(100000, SYS(symlink, "target", named(i++)));
    if (is(how, "names")) {
        SYS(close, SYS(open, "first", 0102, 0600));
        MANY(100000, SYS(link, "first", named(i++)));
    }
    if (is(how, "deep")) MANY(100000, ({ long e = SYS(mkdir, "d", 0700); e < 0 ? e : SYS(chdir, "d"); }));
    if (is(how, "again-file"))
        MANY(4000, ({ closed(SYS(open, named(i), 0102, 0600)); SYS(unlink, named(i++)); }));
    if (is(how, "again-process")) MANY(4000, child(1, 1));
    if (is(how, "again-pipe"))
        MANY(4000, ({ long e = SYS(pipe, two); SYS(close, two[0]); SYS(close, two[1]); e; }));
    if (is(how, "texts")) {
        char *at = (char *)SYS(mmap, 0, 400 * 4096, 3, 0x22, -1, 0);
        for (int j = 0; j < 400; j += 2) SYS(mprotect, at + 4096 * j, 4096, 1);
        MANY(1000, SYS(open, "/proc/self/smaps", 0));
        for (int j = 3; j < 1000; j++) SYS(close, j);
        number("again", SYS(open, "/proc/self/smaps", 0));
    }
    if (is(how, "bomb")) for (;;) SYS(fork, 0);
    if (is(how, "thread-bomb")) works(1);
    if (is(how, "memory-bomb")) for (;;) {
        char *at = (char *)SYS(mmap, 0, 1 << 20, 3, 0x22, -1, 0);
        for (int j = 0; j < 256; j++) at[4096 * j] = 1;
    }
    return 0;
}
