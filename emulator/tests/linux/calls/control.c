/* rseq, membarrier, prctl, protection keys, scheduling. */
#include "cases.h"

struct area { unsigned cpu_id_start, cpu_id; word sequence; unsigned flags, node, mm, rest; } __attribute__((aligned(32)));
static struct area one, two;
enum { SIGNATURE = 0x12345678 };

static void sequences(void) {
    EACH_BAD(p, if ((word)p % 32) T(rseq, p, 32, 0, SIGNATURE));
    T(rseq, &one, 31, 0, SIGNATURE); T(rseq, (char *)&one + 4, 32, 0, SIGNATURE); T(rseq, &one, 32, 2, SIGNATURE); T(rseq, &one, 32, 1, SIGNATURE);
    T(rseq, bad[3].at, 32, 0, SIGNATURE); T(rseq, bad[4].at, 32, 0, SIGNATURE);
    one.cpu_id = -1;
    T(rseq, &one, 32, 0, SIGNATURE); V(one.cpu_id < 4096); V(one.cpu_id == one.cpu_id_start || one.cpu_id < 4096); V(one.sequence);
    T(rseq, &one, 32, 0, SIGNATURE); T(rseq, &one, 32, 0, SIGNATURE + 1); T(rseq, &two, 32, 0, SIGNATURE); T(rseq, &one, 64, 0, SIGNATURE);
    T(rseq, &two, 32, 1, SIGNATURE); T(rseq, &one, 64, 1, SIGNATURE); T(rseq, &one, 32, 1, SIGNATURE + 1); T(rseq, 0, 32, 1, SIGNATURE);
    /* A child keeps it. */
    int status;
    long child = SYS(fork, 0);
    if (child == 0) SYS(exit_group, -SYS(rseq, &one, 32, 0, SIGNATURE));
    SYS(wait4, child, &status, 0, 0); V(status);
    /* Sequences that cannot be: the first one is for a newer kernel, the second one ends in itself. */
    static struct { unsigned version, flags; word start, length, abort; } newer __attribute__((aligned(32))) = { 9, 0, 4096, 16, 8192 },
        inside __attribute__((aligned(32))) = { 0, 0, 4096, 16, 4100 };
    for (int i = 0; i < 4; i++) {
        child = SYS(fork, 0);
        if (child == 0) {
            one.sequence = i == 0 ? (word)&newer : i == 1 ? (word)&inside : i == 2 ? 64 : -64ul;
            SYS(kill, SYS(getpid, 0), 10);
            SYS(exit_group, 3);
        }
        SYS(wait4, child, &status, 0, 0); V(status & 127);
    }
    T(rseq, &one, 32, 1, SIGNATURE); V(one.cpu_id); V(one.cpu_id_start); T(rseq, &one, 32, 1, SIGNATURE);
}

static void barriers(void) {
    V(SYS(membarrier, 0, 0, 0) & 0x1f);
    for (int i = 0; i < 9; i++) if (i != 0) T(membarrier, 1 << i, 1, 0);
    T(membarrier, 1, 0, 0); T(membarrier, 8, 0, 0); T(membarrier, 32, 0, 0); T(membarrier, 16, 0, 0); T(membarrier, 8, 0, 0); T(membarrier, 32, 0, 0); T(membarrier, 64, 0, 0); T(membarrier, 32, 0, 0);
    T(membarrier, 2, 0, 0); T(membarrier, 4, 0, 0); T(membarrier, 3, 0, 0); T(membarrier, 1 << 20, 0, 0); T(membarrier, -1, 0, 0);
}

static void settings(void) {
    for (int i = 41; i < 70; i++) { V(i); T(prctl, 23, i, 0, 0, 0); } T(prctl, 23, -1, 0, 0, 0);
    T(prctl, 7, 0, 0, 0, 0); T(prctl, 21, 0, 0, 0, 0); T(prctl, 27, 0, 0, 0, 0); T(prctl, 25, out.bytes, 0, 0, 0);
    T(prctl, 42, 0, 0, 0, 0); T(prctl, 41, 1, 0, 0, 0); T(prctl, 42, 0, 0, 0, 0); T(prctl, 41, 1, 1, 0, 0); T(prctl, 42, 1, 0, 0, 0); T(prctl, 41, 0, 0, 0, 0);
    /* No number is negative: only 0 asks for the default. */
    T(prctl, 29, 1l << 63, 0, 0, 0); V(SYS(prctl, 30, 0, 0, 0, 0)); T(prctl, 29, 0, 0, 0, 0); V(SYS(prctl, 30, 0, 0, 0, 0));
    T(prctl, 47, 1, 5, 0, 0); T(prctl, 47, 4, 0, 0, 0); T(prctl, 9999, 0, 0, 0, 0);
    EACH_BAD(p, T(prctl, 25, p, 0, 0, 0));
    /* The signal for the end of the parent is not inherited, and is sent. */
    int status, ends[2]; char byte;
    T(prctl, 1, 12, 0, 0, 0); SYS(pipe, ends);
    long child = SYS(fork, 0);
    if (child == 0) {
        int mine = 0;
        SYS(prctl, 2, &mine, 0, 0, 0);
        if (SYS(fork, 0) == 0) {
            word set = 1 << 11; int info[32];
            SYS(rt_sigprocmask, 0, &set, 0, 8);
            SYS(prctl, 1, 12, 0, 0, 0);
            SYS(write, ends[1], "r", 1);
            SYS(rt_sigtimedwait, &set, info, 0, 8);
            SYS(write, ends[1], info[0] == 12 ? "y" : "n", 1);
            SYS(exit_group, 0);
        }
        SYS(read, ends[0], &byte, 1);
        SYS(exit_group, mine);
    }
    SYS(wait4, child, &status, 0, 0); V(status);
    T(read, ends[0], out.bytes, 1);
}

static void keys(void) {
    T(pkey_alloc, 1, 0); T(pkey_alloc, 0, 4); T(pkey_free, 5); T(pkey_free, -1); T(pkey_free, 16);
    char *page = (char *)SYS(mmap, 0, 4096, 3, 0x22, -1, 0);
    T(pkey_mprotect, page, 4096, 1, -1); T(pkey_mprotect, page, 4096, 1, 15); T(pkey_mprotect, page, 4096, 1, 99);
    T(read, FD(RD), page, 1);
}

static void scheduling(void) {
    int zero[2] = { 0, 0 }, ten = 10, much = 100; word head = 1, size = 1;
    EACH_BAD(p, T(sched_setscheduler, 0, 0, p); T(sched_setparam, 0, p));
    T(sched_setscheduler, 0, -1, zero); T(sched_setscheduler, -1, 0, zero); T(sched_setscheduler, 0x7fffffff, 0, zero); T(sched_setscheduler, 0, 9, zero); T(sched_setscheduler, 0, 0, &ten);
    T(sched_setscheduler, 0, 1, zero); T(sched_setscheduler, 0, 1, &much); T(sched_setparam, 0, &ten); T(sched_setparam, 0, zero); T(sched_setparam, -1, zero);
    T(sched_setscheduler, 0, 3, zero); T(sched_getscheduler, 0); T(sched_setscheduler, 0, 0, zero); T(sched_getscheduler, 0);
    T(sched_rr_get_interval, -1, out.bytes); HIDE(TIME); T(sched_rr_get_interval, 0, out.bytes); EACH_BAD(p, T(sched_rr_get_interval, 0, p));
    T(get_robust_list, 0, &head, &size); V(size); V(head); T(set_robust_list, &head, 24); T(get_robust_list, SYS(gettid, 0), &size, &size); T(get_robust_list, 0x7fffffff, &head, &size);
    T(set_robust_list, 0, 24);
    EACH_BAD(p, T(get_robust_list, 0, p, &size); T(get_robust_list, 0, &head, p));
}

/* Filters of system calls; they cannot be taken back. */
struct bpf { unsigned short code; unsigned char yes, no; unsigned int k; };
struct filter { unsigned short count; struct bpf *program; };
#define RUN(...) ({ struct bpf p_[] = { __VA_ARGS__ }; \
    struct filter f_ = { sizeof p_ / sizeof *p_, p_ }; SYS(seccomp, 1, 0, &f_); })
#define CHECKED(...) report("filter " #__VA_ARGS__, RUN(__VA_ARGS__))
#define RET(k) { 6, 0, 0, k }
static void filtering(void) {
    unsigned int action = 0x50000, odd = 0x60000;
    struct filter none = { 0, 0 }, bad_program = { 3, (void *)4096 };
    T(seccomp, -1, 0, 0); T(seccomp, 0, 1, 0); T(seccomp, 0, 0, 1); T(seccomp, 9, 0, 0);
    T(seccomp, 1, 64, 0); T(seccomp, 1, 32, &none); T(seccomp, 1, 9, &none);
    T(seccomp, 2, 0, &action); T(seccomp, 2, 0, &odd); T(seccomp, 2, 1, &action);
    T(seccomp, 3, 0, out.bytes); T(seccomp, 3, 1, out.bytes);
    EACH_BAD(p, T(seccomp, 1, 0, p); T(seccomp, 2, 0, p); T(seccomp, 3, 0, p));
    T(prctl, 38, 1, 0, 0, 0);
    T(seccomp, 1, 0, &none); T(seccomp, 1, 0, &bad_program);
    T(prctl, 22, 3, 0, 0, 0); T(prctl, 22, 2, 0, 0, 0);
    /* Not valid: no return, loads outside, jumps outside, words not set, unknown codes. */
    CHECKED({ 0, 0, 0, 1 });
    CHECKED({ 0x20, 0, 0, 64 }, RET(0x7fff0000));
    CHECKED({ 0x20, 0, 0, 2 }, RET(0x7fff0000));
    CHECKED({ 0x15, 1, 0, 5 }, RET(0x7fff0000));
    CHECKED({ 5, 0, 0, 1 }, RET(0x7fff0000));
    CHECKED({ 5, 0, 0, -1 }, RET(0x7fff0000));
    CHECKED({ 0x60, 0, 0, 3 }, RET(0x7fff0000));
    CHECKED({ 2, 0, 0, 16 }, RET(0x7fff0000));
    CHECKED({ 0x15, 0, 1, 5 }, { 2, 0, 0, 3 }, { 0x60, 0, 0, 3 }, RET(0x7fff0000));
    CHECKED({ 0x34, 0, 0, 0 }, RET(0x7fff0000));
    CHECKED({ 0x64, 0, 0, 32 }, RET(0x7fff0000));
    CHECKED({ 0x94, 0, 0, 3 }, RET(0x7fff0000));
    CHECKED({ 0x28, 0, 0, 0 }, RET(0x7fff0000));
    CHECKED({ 0xffff, 0, 0, 0 }, RET(0x7fff0000));
    T(prctl, 21, 0, 0, 0, 0);
    /* getpgid of 4 is error 77; of more than 10, through arithmetic and memory, its argument. */
    CHECKED({ 0x20, 0, 0, 0 }, { 0x15, 1, 0, __NR_getpgid }, RET(0x7fff0000), { 0x20, 0, 0, 4 },
            { 0x15, 0, 1, 0xc000003e }, { 0x20, 0, 0, 16 }, { 0x15, 0, 1, 4 }, RET(0x5004d),
            { 0x25, 1, 0, 10 }, RET(0x7ffc0000), { 2, 0, 0, 5 }, { 1, 0, 0, 3 }, { 0x2c, 0, 0, 0 },
            { 0x61, 0, 0, 5 }, { 0x1c, 0, 0, 0 }, { 0x1c, 0, 0, 0 }, { 0x44, 0, 0, 0x50000 }, { 0x16, 0, 0, 0 });
    T(prctl, 21, 0, 0, 0, 0);
    T(getpgid, 4); T(getpgid, 12); T(getpgid, 200); T(getpgid, 5000); T(getpgid, 0x7fffffff);
    /* The stricter of two counts, and children keep both. */
    CHECKED({ 0x20, 0, 0, 0 }, { 0x15, 0, 1, __NR_getsid }, RET(0x50009), RET(0x7fff0000));
    CHECKED({ 0x20, 0, 0, 0 }, { 0x15, 0, 1, __NR_getsid }, RET(0x7fff0000), RET(0x7fff0000));
    T(getsid, 0); T(getpgid, 4);
    unsigned int ends[] = { 0x30007, 0x80000000, 0, 0x12340000, 0x7ff00000, 0x7fc00000 };
    for (int i = 0; i < COUNT(ends); i++) {
        int status = 0;
        long child = SYS(fork, 0);
        if (child == 0) {
            int pages[2] = { 0, 0 };
            SYS(setrlimit, 4, pages);
            RUN({ 0x20, 0, 0, 0 }, { 0x15, 0, 1, __NR_getppid }, RET(ends[i]), RET(0x7fff0000));
            SYS(exit_group, -SYS(getppid, 0));
        }
        SYS(wait4, child, &status, 0, 0);
        V(status & 0xff7f);
    }
    T(getsid, 0);
}

static void cases(void) {
    sequences();
    barriers();
    settings();
    keys();
    scheduling();
    filtering();
}
