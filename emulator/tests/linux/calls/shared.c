/* Memory that processes share through files, and what is seen through it. */
#include "cases.h"
#include <linux/mman.h>

#define P 4096
static volatile word caught, code;
static char *where;
static word back;
static void handler(int signal, char *info, word *context) {
    caught = signal;
    code = *(int *)(info + 8);
    if (*(char **)(info + 16) != where) code = -1;
    context[5 + 16] = back;
}
static long load(char *at) {
    long value = 0;
    where = at, caught = 0;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movzbl (%2), %k1\n 1:"
                     : "=m"(back), "+r"(value) : "r"(at) : "rax", "memory");
    return caught ? (long)(caught * 1000 + code) : value;
}
static long store(char *at, char byte) {
    where = at, caught = 0;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movb %b2, (%1)\n 1:"
                     : "=m"(back) : "r"(at), "q"(byte) : "rax", "memory");
    return caught ? (long)(caught * 1000 + code) : 0;
}
static char *map(long size, long prot, long flags, long fd, long offset) {
    return (char *)SYS(mmap, 0, size, prot, flags, fd, offset);
}
static char text[64];
static void say_file(long fd, long offset, long size) {
    memset(text, 0, sizeof text);
    report("read", SYS(pread64, fd, text, size, offset));
    for (int i = 0; i < size; i++) if (!text[i]) text[i] = '.';
    text[size] = 0;
    about = text; report("", 0); about = "";
}
static void put(char *at, const char *from) { memcpy(at, from, length(from)); }
/* Runs `body` in another process and waits for it. */
#define CHILD(...) do { flush(); long pid_ = SYS(fork, 0); \
    if (pid_ == 0) { __VA_ARGS__; flush(); SYS(exit_group, 0); } \
    int status_ = 0; SYS(wait4, pid_, &status_, 0, 0); V(status_); } while (0)

/* The same checks for a file of any kind. */
static void shares(long fd) {
    V(SYS(ftruncate, fd, 2 * P + 100));
    char *a = map(3 * P, 3, MAP_SHARED, fd, 0), *b = map(P, 1, MAP_SHARED, fd, P);
    char *mine = map(3 * P, 3, MAP_PRIVATE, fd, 0);
    put(a, "first"); put(a + P, "second"); put(a + 2 * P, "third");
    say_file(fd, 0, 8); say_file(fd, P, 8); say_file(fd, 2 * P, 8);
    V(load(b)); V(load(mine)); V(load(mine + P));
    V(store(b, 1));
    mine[0] = 'X';
    V(SYS(pwrite64, fd, "WRITTEN", 7, 2));
    V(load(a + 2)); V(load(mine)); V(load(mine + 2)); V(load(a));
    V(SYS(pwrite64, fd, "over a page", 11, P - 4));
    V(load(a + P - 4)); V(load(a + P)); V(load(b)); V(load(mine + P));
    V(SYS(msync, a, 3 * P, 4)); V(SYS(msync, a, 3 * P, 1)); V(SYS(msync, a + 1, P, 4));
    V(SYS(msync, a, 3 * P, 6)); V(SYS(msync, b, P, 2));
    /* Past the end of the file: in its last page zeros, behind it nothing. */
    V(load(a + 2 * P + 100)); V(store(a + 2 * P + 100, 7)); V(load(a + 2 * P + 100));
    say_file(fd, 2 * P + 96, 8);
    V(SYS(ftruncate, fd, P + 3));
    V(load(a + P + 2)); V(load(a + P + 3)); V(load(a + 2 * P)); V(store(a + 2 * P, 1)); V(load(mine + 2 * P));
    CHILD(V(load(a + 2 * P)); V(SYS(ftruncate, fd, 3 * P)); V(load(a + 2 * P)));
    V(load(a + P + 3)); V(load(a + 2 * P)); V(store(a + 2 * P, 9)); V(load(mine + 2 * P));
    say_file(fd, 2 * P, 4);
    /* Another process sees stores at once, and its stores are seen. */
    CHILD(V(load(a)); put(a, "child"); mine[0] = 'Y'; V(load(a)));
    V(load(a)); V(load(mine));
    say_file(fd, 0, 8);
    volatile int *turn = (volatile int *)(a + 512);
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) {
        for (int i = 0; i < 10; i++) {
            while (turn[0] == i) SYS(futex, turn, 0, i, 0);
            turn[1] += turn[0];
            turn[2] = i + 1;
            SYS(futex, turn + 2, 1, 1);
        }
        SYS(exit_group, 0);
    }
    for (int i = 0; i < 10; i++) {
        turn[0] = i + 1;
        SYS(futex, turn, 1, 1);
        while (turn[2] == i) SYS(futex, turn + 2, 0, i, 0);
    }
    SYS(wait4, pid, 0, 0, 0);
    V(turn[1]);
    /* What is read into shared memory is in the file. */
    V(SYS(pread64, fd, a + 100, 5, 0));
    say_file(fd, 100, 5);
    /* Protection, growth, and a second place. */
    V(SYS(mprotect, a, P, 1)); V(store(a, 1)); V(SYS(mprotect, a, P, 3)); V(store(a, 'f'));
    V(SYS(mprotect, b, P, 3)); V(store(b, 'B')); V(load(a + P));
    char *c = (char *)SYS(mremap, b, P, 2 * P, MREMAP_MAYMOVE);
    V(load(c)); V(load(c + P)); V(store(c + P, 'C')); V(load(a + 2 * P));
    char *d = (char *)SYS(mremap, c, 0, P, MREMAP_MAYMOVE);
    V(load(d)); V(store(d, 'D')); V(load(c)); V(load(a + P));
    V(SYS(madvise, a, 3 * P, 4)); V(load(a)); V(load(a + P));
    V(SYS(fallocate, fd, 3, P, 2)); V(load(a + P)); V(load(a + P + 2));
    V(SYS(munmap, a, 3 * P)); V(load(a));
    V(store(d + 1, 'E'));
    say_file(fd, P, 4);
    V(SYS(munmap, d, P)); V(SYS(munmap, c, 2 * P));
    say_file(fd, P, 4);
    /* Mapped again: as it was left. */
    a = map(P, 3, MAP_SHARED, fd, P);
    V(load(a)); V(load(a + 1));
    SYS(munmap, a, P);
    V(load(mine)); V(load(mine + P));
    SYS(munmap, mine, 3 * P);
}

static void files(void) {
    long fd = make("shared", "0123456789");
    shares(fd);
    /* The file stays mapped when it is closed and has no name. */
    char *a = map(P, 3, MAP_SHARED, fd, 0);
    long other = SYS(open, "shared", O_RDONLY);
    SYS(close, fd);
    V(SYS(unlink, "shared"));
    put(a, "gone");
    say_file(other, 0, 6);
    T(mmap, 0, P, 3, MAP_SHARED, other, 0);
    char *ro_map = map(P, 1, MAP_SHARED, other, 0);
    V(load(ro_map));
    V(SYS(mprotect, ro_map, P, 3));
    put(a, "more");
    V(load(ro_map));
    SYS(munmap, a, P); SYS(munmap, ro_map, P); SYS(close, other);
    /* By its name. */
    fd = make("named", "named file");
    a = map(P, 3, MAP_SHARED, fd, 0);
    put(a, "NAMED");
    other = SYS(open, "named", O_RDWR);
    say_file(other, 0, 10);
    V(SYS(truncate, "named", 3));
    V(load(a + 2)); V(load(a + 3));
    say_file(other, 0, 10);
    SYS(close, SYS(open, "named", O_RDWR | O_TRUNC));
    V(load(a));
    SYS(write, fd, 0, 0);
    V(SYS(pwrite64, other, "x", 1, P));
    V(load(a)); V(store(a, 'y'));
    say_file(fd, 0, 3);
    HIDE(STAT_FILE); T(fstat, fd, out.bytes);
    /* A file of the host that is changed by another process. */
    char *old = map(P, 1, MAP_PRIVATE, FD(RD), 0);
    V(load(old));
    CHILD(long w = SYS(open, "file", O_RDWR); char *m = map(P, 3, MAP_SHARED, w, 0); V(store(m, 'Z')));
    V(load(old));
    say_file(FD(RD), 0, 4);
    SYS(munmap, old, P);
}

static void memory(void) {
    /* Each mapping of /dev/zero is its own. */
    char *a = map(P, 3, MAP_SHARED, FD(ZERO), 0), *b = map(P, 3, MAP_SHARED, FD(ZERO), 0);
    V(store(a, 1)); V(load(b));
    CHILD(V(store(a, 2)); V(store(b, 3)));
    V(load(a)); V(load(b));
    /* Anonymous memory has the size that was mapped first. */
    a = map(2 * P, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    a[0] = 5; a[P] = 6;
    char *grown = (char *)SYS(mremap, a, 2 * P, 4 * P, MREMAP_MAYMOVE);
    V(load(grown)); V(load(grown + P)); V(load(grown + 2 * P));
    char *moved = map(4 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    V(SYS(mremap, grown, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, moved) - (long)moved);
    V(load(moved)); V(load(grown));
    CHILD(V(store(moved, 8)));
    V(load(moved));
    V(SYS(mremap, moved, 0, P, 0));
    V(SYS(mremap, moved + P, 0, P, MREMAP_MAYMOVE));
}

static void cases(void) {
    on_signal(11, handler, SA_SIGINFO | SA_NODEFER, 0);
    on_signal(7, handler, SA_SIGINFO | SA_NODEFER, 0);
    files();
    long fd = SYS(memfd_create, "m", 0);
    shares(fd);
    fd = SYS(open, "/dev/shm", O_RDWR | O_DIRECTORY | 020000000, 0600);
    V(fd > 0);
    shares(fd);
    memory();
}
