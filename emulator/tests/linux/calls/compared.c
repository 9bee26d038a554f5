/* Waiting for several futexes, whether processes share something, and handles of files. */
#include "cases.h"
#ifndef __NR_futex_waitv
#define __NR_futex_waitv 449
#endif

enum { U32 = 2, PRIVATE = 128, SIZE = 16384 };
struct waitv { word value, address; unsigned flags, rest; };
struct time { long seconds, rest; };
static unsigned words[130];
static struct waitv list[130];
static void prepare_list(void) {
    for (int i = 0; i < 130; i++) words[i] = i, list[i] = (struct waitv){ i, (word)&words[i], U32 | PRIVATE, 0 };
}

/* A thread that wakes what its creator waits for. */
static char stack[SIZE] __attribute__((aligned(64)));
static int wakes[4], wakers, ended;
static __attribute__((noinline, used)) void wake(void) {
    /* Until it waits: each call wakes at most one. */
    for (int i = 0; i < wakers; i++)
        while (SYS(futex, &words[wakes[i]], 1 | PRIVATE, 1) != 1) SYS(sched_yield, 0);
    SYS(exit, 0);
}
static void thread(void) {
    word *top = (word *)(stack + SIZE) - 2;
    top[0] = (word)wake;
    long number;
    register long r10 __asm__("r10") = (long)&ended;
    ended = 1;
    __asm__ volatile("syscall; test %%rax, %%rax; jnz 1f; xor %%ebp, %%ebp; pop %%rax; call *%%rax; 1:"
                     : "=a"(number) : "a"(56), "D"(0x250f00), "S"(top), "d"(0), "r"(r10) : "rcx", "r11", "memory");
}
static void wait_for_end(void) {
    for (int n; (n = __atomic_load_n(&ended, 5));) SYS(futex, &ended, 0, n, 0);
}

static void futexes(void) {
    struct time none = { 0, 0 }, odd = { 0, 1000000000 }, minus = { -1, 0 };
    prepare_list();
    T(futex_waitv, list, 1, 1, 0, 1); T(futex_waitv, list, 0, 0, 0, 1); T(futex_waitv, list, 129, 0, 0, 1); T(futex_waitv, 0, 1, 0, 0, 1); T(futex_waitv, list, -1, 0, 0, 1);
    EACH_BAD_BUT_NULL(p, T(futex_waitv, p, 1, 0, 0, 1); T(futex_waitv, list, 1, 0, p, 1));
    T(futex_waitv, list, 1, 0, &none, 2); T(futex_waitv, list, 1, 0, &none, -1); T(futex_waitv, list, 1, 0, &odd, 1); T(futex_waitv, list, 1, 0, &minus, 1);
    T(futex_waitv, list, 1, 0, &none, 1); T(futex_waitv, list, 1, 0, &none, 0); T(futex_waitv, list, 128, 0, &none, 1);
    list[1].value = 7; T(futex_waitv, list, 2, 0, &none, 1); T(futex_waitv, list, 2, 0, 0, 1); prepare_list();
    list[1].value = 1ul << 32; T(futex_waitv, list, 2, 0, &none, 1); prepare_list();
    list[1].flags = 0; T(futex_waitv, list, 2, 0, &none, 1); list[1].flags = 3; T(futex_waitv, list, 2, 0, &none, 1); list[1].flags = 1 << 20 | U32; T(futex_waitv, list, 2, 0, &none, 1); prepare_list();
    list[1].rest = 1; T(futex_waitv, list, 2, 0, &none, 1); prepare_list();
    list[1].address += 2; T(futex_waitv, list, 2, 0, &none, 1); prepare_list();
    EACH_BAD(p, if ((word)p % 4 == 0) { list[1].address = (word)p; T(futex_waitv, list, 2, 0, &none, 1); }); prepare_list();
    list[0].flags = U32; T(futex_waitv, list, 2, 0, &none, 1); prepare_list();
    /* Woken: which one it was. */
    flush();
    for (int i = 0; i < 3; i++) {
        wakers = 1, wakes[0] = i;
        thread();
        V(SYS(futex_waitv, list, 3, 0, 0, 1));
        wait_for_end();
    }
    /* The woken one is no longer waited for, nor are the others. */
    V(SYS(futex, &words[0], 1 | PRIVATE, 9)); V(SYS(futex, &words[1], 1 | PRIVATE, 9)); V(SYS(futex, &words[2], 1 | PRIVATE, 9));
    /* A signal ends it; it comes again if it came too early. */
    int status = 0;
    flush();
    long child = SYS(fork, 0);
    if (child == 0) {
        struct { word interval[2], value[2]; } timer = { { 0, 1000 }, { 0, 1000 } }, off = { { 0, 0 }, { 0, 0 } };
        on_signal(14, (void *)1, 0, 0);
        on_signal(14, (void *)wait_for_end, 0, 0);
        ended = 0;
        SYS(setitimer, 0, &timer, 0);
        long result = SYS(futex_waitv, list, 2, 0, 0, 1);
        SYS(setitimer, 0, &off, 0);
        V(result); V(SYS(futex, &words[1], 1 | PRIVATE, 9));
        flush();
        SYS(exit_group, 5);
    }
    SYS(wait4, child, &status, 0, 0); V(status);
    /* Between processes. */
    unsigned *shared = (unsigned *)SYS(mmap, 0, 4096, 3, 0x21, -1, 0);
    list[1] = (struct waitv){ 0, (word)&shared[0], U32, 0 };
    child = SYS(fork, 0);
    if (child == 0) { while (SYS(futex, shared, 1, 1) != 1) SYS(sched_yield, 0); SYS(exit_group, 0); }
    V(SYS(futex_waitv, list, 2, 0, 0, 1));
    SYS(wait4, child, &status, 0, 0); V(status);
}

static void comparing(void) {
    long own = SYS(getpid, 0), same_file = SYS(dup, FD(RD)), again = SYS(open, "file", O_RDONLY);
    enum { FILE, VM, FILES, FS, SIGHAND, IO, SYSVSEM };
    V(SYS(kcmp, own, own, FILE, FD(RD), FD(RD))); V(SYS(kcmp, own, own, FILE, FD(RD), same_file)); V(SYS(kcmp, own, own, FILE, FD(RD), again) > 0); V(SYS(kcmp, own, own, FILE, FD(RD), again) + SYS(kcmp, own, own, FILE, again, FD(RD)));
    for (int what = VM; what <= SYSVSEM; what++) if (what != IO) V(SYS(kcmp, own, own, what, 0, 0));
    V(SYS(kcmp, own, own, FILE, FD(RD), 90)); V(SYS(kcmp, own, own, FILE, -1, FD(RD))); V(SYS(kcmp, own, own, 8, 0, 0)); V(SYS(kcmp, own, own, -1, 0, 0)); V(SYS(kcmp, own, 0x7fffffff, VM, 0, 0)); V(SYS(kcmp, 0x7fffffff, own, VM, 0, 0)); V(SYS(kcmp, 0, own, VM, 0, 0)); V(SYS(kcmp, -1, own, VM, 0, 0));
    flush();
    int status = 0;
    long child = SYS(fork, 0);
    if (child == 0) for (;;) SYS(pause, 0);
    V(SYS(kcmp, own, child, FILE, FD(RD), FD(RD))); V(SYS(kcmp, own, child, FILE, FD(RD), same_file)); V(SYS(kcmp, child, own, FILE, FD(RD), again) > 0);
    for (int what = VM; what <= SIGHAND; what++) { V(SYS(kcmp, own, child, what, 0, 0) > 0); V(SYS(kcmp, own, child, what, 0, 0) + SYS(kcmp, child, own, what, 0, 0)); }
    V(SYS(kcmp, own, child, SYSVSEM, 0, 0));
    SYS(kill, child, 9);
    int info[32];
    SYS(waitid, 1, child, info, 0x01000004, 0);
    V(SYS(kcmp, own, child, FILE, FD(RD), FD(RD)));
    SYS(wait4, child, &status, 0, 0); V(SYS(kcmp, own, child, VM, 0, 0));
    if (SYS(getuid, 0)) V(SYS(kcmp, own, 1, VM, 0, 0));
    SYS(close, same_file); SYS(close, again);
}

static void handles(void) {
    struct { unsigned bytes; int type; unsigned char text[128]; } handle = { 128, 0, { 0 } };
    int mount;
    /* procfs has none. */
    V(SYS(name_to_handle_at, AT_FDCWD, "/proc/self/stat", &handle, &mount, 0)); V(SYS(name_to_handle_at, AT_FDCWD, "/proc", &handle, &mount, 0)); V(SYS(name_to_handle_at, AT_FDCWD, "/proc/self/stat", 4096, 4096, 0));
    EACH_WRONG(p, if (i_ != 5 && i_ != 6) T(name_to_handle_at, AT_FDCWD, p, &handle, &mount, 0)); V(SYS(name_to_handle_at, AT_FDCWD, "loop", &handle, &mount, 0x400)); V(SYS(name_to_handle_at, AT_FDCWD, "dangling", &handle, &mount, 0x400));
    V(SYS(name_to_handle_at, 90, "x", &handle, &mount, 0)); V(SYS(name_to_handle_at, FD(RD), "x", &handle, &mount, 0)); V(SYS(name_to_handle_at, 90, "", &handle, &mount, 0x1000)); V(SYS(name_to_handle_at, AT_FDCWD, "file", &handle, &mount, 0x100000)); V(SYS(name_to_handle_at, AT_FDCWD, 0, &handle, &mount, 0));
    /* Without capabilities, which everybody may give up. Kernels differ in what they check first. */
    struct { unsigned version; int pid; } header = { 0x20080522, 0 };
    unsigned none[6] = { 0 };
    int status = 0;
    flush();
    long child = SYS(fork, 0);
    if (child == 0) {
        V(SYS(capset, &header, none));
        V(SYS(open_by_handle_at, AT_FDCWD, &handle, O_RDONLY));
        flush();
        SYS(exit_group, 0);
    }
    SYS(wait4, child, &status, 0, 0); V(status);
}

static void cases(void) {
    /* A kernel may lack futex_waitv, be built without kcmp, or a filter forbids them. */
    if (arguments > 2) {
        long own = SYS(getpid, 0);
        SYS(exit_group, SYS(futex_waitv, 0, 0, 0, 0, 0) != -22 || SYS(kcmp, own, own, 1, 0, 0) != 0);
    }
    comparing();
    futexes();
    handles();
    flush();
    SYS(exit_group, 0);
}
