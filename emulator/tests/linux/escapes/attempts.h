/* Counting and checking attempts to reach beyond the machine. */
#include "../start.h"
#include <asm/stat.h>
#include <linux/fcntl.h>
#include <linux/stat.h>

enum {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EIO = 5, ENXIO = 6, E2BIG = 7, ENOEXEC = 8, EBADF = 9,
    EAGAIN = 11, ENOMEM = 12, EACCES = 13, EFAULT = 14, ENOTBLK = 15, EEXIST = 17, EXDEV = 18,
    ENODEV = 19, ENOTDIR = 20, EISDIR = 21, EINVAL = 22, ENOTTY = 25, ENOSPC = 28, EFBIG = 27,
    EROFS = 30, ELOOP = 40, ENAMETOOLONG = 36, ENOSYS = 38, EOPNOTSUPP = 95, EAFNOSUPPORT = 97,
    ENETUNREACH = 101, ECONNREFUSED = 111, EPROTONOSUPPORT = 93, ESOCKTNOSUPPORT = 94,
};
enum { CWD = -100, RW = 2, CREAT = 0100, EXCL = 0200, TRUNC = 01000, APPEND = 02000,
       NONBLOCK = 04000, DIRECTORY = 0200000, NOFOLLOW = 0400000, PATHS = 010000000 };

/* How the run was started. */
static int rooted, writes;
static long victim, port;
static const char *box, *outside;

static int attempts, surprises;

/* One attempt: its name, what it does, and what may be the answer `r`. */
#define T(name, expr, good) do { \
    long r = (long)(expr); \
    attempts++; \
    if (!(good)) { surprises++; print("SURPRISE "); number(name, r); } \
} while (0)

/* An answer that shows nothing and changes nothing. */
#define REFUSED (r < 0)

static char text_[8][600];
static int texts_;
/* Joins up to four texts. */
static const char *join4(const char *a, const char *b, const char *c, const char *d) {
    char *to = text_[texts_++ % 8], *at = to;
    const char *parts[4] = { a, b, c, d };
    for (int i = 0; i < 4; i++) for (const char *p = parts[i]; *p && at < to + 599; p++) *at++ = *p;
    *at = 0;
    return to;
}
#define JOIN(a, b) join4(a, b, "", "")
static const char *decimal(long value) {
    char *at = text_[texts_++ % 8] + 30;
    *at = 0;
    do *--at = '0' + value % 10; while (value /= 10);
    return at;
}
static long parse(const char *p) {
    long value = 0;
    for (; *p; p++) value = value * 10 + *p - '0';
    return value;
}
static int begins(const char *text, const char *with) { return same(text, with, length(with)); }

/* Opens a file, writes to it, closes it: the first error, or what was written. */
static long put(const char *path, long flags) {
    long f = SYS(openat, CWD, path, flags, 0666);
    if (f < 0) return f;
    long n = SYS(write, f, "EVIL", 4);
    SYS(close, f);
    return n;
}
/* Reads the first bytes of a file: the first error, 1 if they are the secret, else 0. */
static long leaks(long f) {
    char bytes[32] = { 0 };
    if (f < 0) return f;
    long n = SYS(read, f, bytes, 31);
    SYS(close, f);
    return n < 0 ? n : begins(bytes, "secret");
}
#define LEAKS(path) leaks(SYS(openat, CWD, path, NONBLOCK, 0))
/* Numbered files of the box, so that no attempt depends on another one. */
static const char *fresh(void) {
    static int next;
    return JOIN("v", decimal(10 + next++));
}
/* A child that does `work`; its status, or that it was killed, as wait4 says. */
#define CHILD(work) ({ \
    int status_ = -1; \
    long child_ = SYS(fork, 0); \
    if (child_ == 0) { long r_ = (work); SYS(exit_group, r_ < 0 ? -r_ : r_); } \
    if (child_ > 0) SYS(wait4, child_, &status_, 0, 0); \
    child_ < 0 ? child_ : (long)status_; })

static char *const alone[] = { "x", 0 };

/* Threads: the flags of pthread_create. */
enum { STACK = 16384 };
static int ended_[4];
static char stacks_[4][STACK] __attribute__((aligned(64)));
static long thread(int id, void (*work)(word)) {
    word *top = (word *)(stacks_[id] + STACK) - 2;
    top[0] = (word)work;
    top[1] = id;
    ended_[id] = 1;
    long number;
    register long r10 __asm__("r10") = (long)&ended_[id];
    register long r8 __asm__("r8") = 0;
    __asm__ volatile(
        "syscall; test %%rax, %%rax; jnz 1f; xor %%ebp, %%ebp; pop %%rax; pop %%rdi; call *%%rax; 1:"
        : "=a"(number)
        : "a"(56), "D"(0x350f00), "S"(top), "d"(&ended_[id]), "r"(r10), "r"(r8)
        : "rcx", "r11", "memory");
    return number;
}
static void join_thread(int id) {
    for (int n; (n = __atomic_load_n(&ended_[id], 5));) SYS(futex, &ended_[id], 0, n, 0);
}

struct iov { const void *at; word size; };
struct message { void *name; int name_size; struct iov *parts; word count; void *control;
                 word control_size; int flags; };
/* Sends a descriptor through a socket, or receives one if `fd` is -1. */
static long pass(long socket, long fd) {
    struct { word size; int level, type, fd, pad; } control = { 20, 1, 1, (int)fd, 0 };
    char byte = 'x';
    struct iov part = { &byte, 1 };
    struct message m = { 0, 0, &part, 1, &control, sizeof control, 0 };
    if (fd >= 0) return SYS(sendmsg, socket, &m, 0);
    long n = SYS(recvmsg, socket, &m, 0);
    return n < 0 ? n : m.control_size < 20 ? -EBADF : control.fd;
}
