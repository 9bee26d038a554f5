/* Limits that a process sets itself, and what calls answer beyond them. */
#include "start.h"

enum { CPU, FSIZE, DATA, STACK, CORE, RSS, NPROC, NOFILE, MEMLOCK, AS, LOCKS, SIGPENDING };
static int signals;
static void count(int signal) { signals += signal; }
static long limit(int which, word soft) {
    word now[2];
    SYS(getrlimit, which, now);
    now[0] = soft;
    return SYS(setrlimit, which, now);
}
/* Runs in a child, so that a limit holds only there. */
#define ALONE(work) do { \
    int status_ = 0; \
    long child_ = SYS(fork, 0); \
    if (child_ == 0) { work; SYS(exit_group, 0); } \
    SYS(wait4, child_, &status_, 0, 0); \
    number("status", status_); \
} while (0)

static void descriptors(void) {
    int two[2];
    limit(NOFILE, 5);
    number("open", SYS(open, "/dev/null", 0));
    number("open", SYS(open, "/dev/null", 0));
    number("open", SYS(open, "/dev/null", 0));
    number("create", SYS(open, "new", 0102, 0600));
    number("created", SYS(access, "new", 0));
    number("dup", SYS(dup, 1));
    number("dup2", SYS(dup2, 1, 5));
    number("fcntl", SYS(fcntl, 1, 0, 5));
    number("fcntl", SYS(fcntl, 1, 0, 4));
    number("pipe", SYS(pipe, two));
    number("socket", SYS(socket, 1, 1, 0));
    number("socketpair", SYS(socketpair, 1, 1, 0, two));
    number("epoll", SYS(epoll_create1, 0));
    number("eventfd", SYS(eventfd2, 0, 0));
    number("timerfd", SYS(timerfd_create, 1, 0));
    number("signalfd", SYS(signalfd4, -1, two, 8, 0));
    number("memfd", SYS(memfd_create, "x", 0));
    number("pidfd", SYS(pidfd_open, SYS(getpid, 0), 0));
    SYS(close, 3);
    number("one is free", SYS(pipe, two));
    number("poll", SYS(poll, 0, 6, 0));
    number("raised", limit(NOFILE, 6));
    number("pipe", SYS(pipe, two));
}
static void sizes(void) {
    static char bytes[300];
    long f = SYS(memfd_create, "x", 0);
    on_signal(25, count, SA_RESTART, 0);
    limit(FSIZE, 100);
    number("write", SYS(write, f, bytes, 80));
    number("less", SYS(write, f, bytes, 80));
    number("none", SYS(write, f, bytes, 80));
    number("signals", signals);
    number("nothing", SYS(write, f, bytes, 0));
    number("pwrite", SYS(pwrite64, f, bytes, 10, 99));
    number("behind", SYS(pwrite64, f, bytes, 10, 100));
    number("far", SYS(pwrite64, f, bytes, 10, 1 << 20));
    number("grow", SYS(ftruncate, f, 101));
    number("to the limit", SYS(ftruncate, f, 100));
    number("shrink", SYS(ftruncate, f, 10));
    number("signals", signals);
    SYS(lseek, f, 0, 2);
    struct { void *at; word size; } parts[2] = { { bytes, 80 }, { bytes, 80 } };
    number("writev", SYS(writev, f, parts, 2));
    int ends[2];
    SYS(pipe, ends);
    number("a pipe", SYS(write, ends[1], bytes, 300));
    number("/dev/null", SYS(write, SYS(open, "/dev/null", 1), bytes, 300));
    number("signals", signals);
    on_signal(25, 0, 0, 0);
    SYS(ftruncate, f, 1000);
}
static void memory(void) {
    char *at = (char *)SYS(mmap, 0, 1 << 20, 3, 0x22, -1, 0);
    limit(AS, 64 << 20);
    number("too much", SYS(mmap, 0, 65 << 20, 3, 0x22, -1, 0));
    number("without access", SYS(mmap, 0, 65 << 20, 0, 0x4022, -1, 0));
    number("grow", SYS(mremap, at, 1 << 20, 70 << 20, 1));
    number("some", SYS(mmap, 0, 40 << 20, 3, 0x22, -1, 0) > 0);
    number("no more", SYS(mmap, 0, 40 << 20, 3, 0x22, -1, 0));
    word end = SYS(brk, 0);
    number("brk", SYS(brk, end + (40 << 20)) == (long)end);
    number("brk", SYS(brk, end + 4096) == (long)end + 4096);
    limit(AS, ~0ul);
    limit(DATA, 1 << 20);
    number("data", SYS(mmap, 0, 2 << 20, 3, 0x22, -1, 0));
    number("read-only", SYS(mmap, 0, 2 << 20, 1, 0x22, -1, 0) > 0);
    number("brk", SYS(brk, end + (40 << 20)) == (long)end + 4096);
    limit(DATA, ~0ul);
    number("all memory there is", SYS(mmap, 0, 1l << 46, 3, 0x22, -1, 0));
    number("only reserved", SYS(mmap, 0, 1l << 40, 0, 0x4022, -1, 0) > 0);
}
static __attribute__((noinline)) int deep(int left) {
    volatile char room[4096];
    room[0] = left;
    if (left) room[0] += deep(left - 1);
    return room[0];
}
static void stack(int to, int pages) {
    number("set", limit(STACK, (word)to << 20));
    number("deep", deep(pages) != 999);
}
static void queues(void) {
    int info[32] = { 34, 0, -1 };
    struct { long value; int signal, notify; char rest[48]; } event = { 0, 34, 0 };
    int timer;
    word set = 1ul << 33 | 1 << 9;
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    limit(SIGPENDING, 0);
    number("queue", SYS(rt_sigqueueinfo, SYS(getpid, 0), 34, info));
    number("to a thread", SYS(rt_tgsigqueueinfo, SYS(getpid, 0), SYS(gettid, 0), 34, info));
    number("timer", SYS(timer_create, 1, &event, &timer));
    number("an old signal", (info[0] = 10, SYS(rt_sigqueueinfo, SYS(getpid, 0), 10, info)));
    number("kill", SYS(kill, SYS(getpid, 0), 10));
    number("alarm", SYS(alarm, 100));
    number("pending", SYS(rt_sigpending, &set, 8) | (set & 1 << 9));
}
static void arguments(void) {
    static char text[200000];
    static char *many[60000];
    memset(text, 'x', sizeof text - 1);
    char *one[] = { "x", text, 0 };
    number("a long one", SYS(execve, "/proc/self/exe", one, 0));
    text[131072] = 0;
    number("as long as it may be, and one more", SYS(execve, "/proc/self/exe", one, 0));
    text[100] = 0;
    for (int i = 0; i < 59999; i++) many[i] = text;
    number("many", SYS(execve, "/proc/self/exe", many, 0));
    number("many in the environment", SYS(execve, "/proc/self/exe", one, many));
    limit(STACK, 1 << 20);
    for (int i = 0; i < 59999; i++) many[i] = i < 3000 ? text : 0;
    number("a quarter of the stack", SYS(execve, "/proc/self/exe", many, 0));
}
static void locked(void) {
    limit(MEMLOCK, 8192);
    long at = SYS(mmap, 0, 1 << 20, 3, 0x22, -1, 0);
    number("two pages", SYS(mlock, at, 8192));
    number("unlock more", SYS(munlock, at, 1 << 20));
    if (SYS(getuid, 0) == 0) return;
    number("all", SYS(mlock, at, 1 << 20));
    limit(MEMLOCK, 0);
    number("none", SYS(mlock, at, 4096));
}
static void tasks(void) {
    if (SYS(getuid, 0) == 0) return;
    limit(NPROC, 0);
    number("fork", SYS(fork, 0));
    number("thread", SYS(clone, 0x10f00, 0x10000, 0, 0, 0));
}

int run(word *stack_top) {
    if (stack_top[0] > 2) return 7;
    ALONE(descriptors());
    ALONE(sizes());
    ALONE(memory());
    ALONE(stack(32, 5000));
    ALONE(stack(1, 700));
    ALONE(queues());
    ALONE(arguments());
    ALONE(locked());
    ALONE(tasks());
    return 0;
}
