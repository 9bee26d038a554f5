/* Memory: mappings, invalid accesses, and mapped files. */
#include "cases.h"
#include <linux/mman.h>

#define P 4096
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
static volatile word caught, code;
static char *where;
static word back;
static void handler(int signal, char *info, word *context) {
    caught = signal;
    code = *(int *)(info + 8);
    if (*(char **)(info + 16) != where) code = -1;
    context[5 + 16] = back;
}
/* The value of a byte, or 1000 times the signal plus its si_code. */
static long load(char *at) {
    long value = 0;
    where = at, caught = 0;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movzbl (%2), %k1\n 1:"
                     : "=m"(back), "+r"(value) : "r"(at) : "rax", "memory");
    return caught ? (long)(caught * 1000 + code) : value;
}
static long store(char *at) {
    where = at, caught = 0;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movb $1, (%1)\n 1:"
                     : "=m"(back) : "r"(at) : "rax", "memory");
    return caught ? (long)(caught * 1000 + code) : 0;
}
static char *map(long size, long prot, long flags, long fd, long offset) {
    return (char *)SYS(mmap, 0, size, prot, flags, fd, offset);
}

static void mapping(void) {
    EACH_FD(fd, if (fd != FD(ZERO) && fd != FD(RD) && fd != FD(RW) && fd != FD(APPEND) && fd != FD(MEM))
            T(mmap, 0, P, 1, MAP_PRIVATE, fd, 0));
    OK(mmap, 0, P, 1, MAP_PRIVATE, FD(RD), 0);
    OK(mmap, 0, P, 3, MAP_PRIVATE, FD(RD), 0);
    OK(mmap, 0, P, 3, MAP_PRIVATE, FD(ZERO), 0);
    T(mmap, 0, P, 3, MAP_SHARED, FD(RD), 0);
    T(mmap, 0, P, 1, MAP_SHARED, FD(WR), 0);
    OK(mmap, 0, P, 1, MAP_SHARED, FD(RD), 0);
    OK(mmap, 0, P, 1, MAP_SHARED_VALIDATE, FD(RD), 0);
    T(mmap, 0, P, 1, MAP_SHARED_VALIDATE | 1 << 22, FD(RD), 0);
    T(mmap, 0, 0, 3, ANON, -1, 0);
    T(mmap, 0, -1, 3, ANON, -1, 0);
    T(mmap, 0, 1ul << 62, 3, ANON, -1, 0);
    T(mmap, 0, P, 3, MAP_ANONYMOUS, -1, 0);
    T(mmap, 0, P, 1, 0, FD(RD), 0);
    T(mmap, 0, P, 1, MAP_PRIVATE, FD(RD), 1);
    T(mmap, 0, P, 3, ANON, -1, 1);
    T(mmap, 0, P, 1, MAP_PRIVATE, FD(RD), -P);
    T(mmap, 1, P, 3, ANON | MAP_FIXED, -1, 0);
    T(mmap, 0x8000000000000000, P, 3, ANON | MAP_FIXED, -1, 0);
    T(mmap, -P, P, 3, ANON | MAP_FIXED, -1, 0);
    char *a = map(4 * P, 3, ANON, -1, 0);
    V(SYS(mmap, a + P, P, 3, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    V(SYS(mmap, a + P, P, 3, ANON | MAP_FIXED, -1, 0) - (long)a);
    V(SYS(mmap, a + 1, P, 3, ANON | MAP_FIXED, -1, 0));
    EACH_BAD(p, if (i_ == 3 || i_ == 4) { T(munmap, p, P); T(mprotect, p, P, 1); T(madvise, p, P, 0); T(msync, p, P, 4); });
    V(SYS(munmap, a + 1, P));
    V(SYS(munmap, a, 0));
    V(SYS(munmap, a, -1));
    V(SYS(munmap, a, 1ul << 62));
    V(SYS(munmap, a + 3 * P, 1));
    V(load(a + 3 * P));
    V(SYS(mprotect, a + 1, P, 1));
    V(SYS(mprotect, a, 0, 1));
    V(SYS(mprotect, a, -1, 1));
    V(SYS(mprotect, a, P, -1));
    V(SYS(mprotect, a, P, 0x40));
    V(SYS(mprotect, a, P, 0x03000001));
    V(SYS(mprotect, a, P, 0x01000001)); V(SYS(mprotect, a, P, 0x02000001));
    V(SYS(mprotect, a + 3 * P, P, 0x01000001)); V(SYS(mprotect, a + 3 * P, P, 0x02000001));
    V(SYS(mprotect, a, 4 * P, 1));
    V(store(a)); V(store(a + 2 * P)); V(load(a + 2 * P));
    V(SYS(mprotect, a, 3 * P, 3));
    V(store(a));
    char *file = map(P, 1, MAP_SHARED, FD(RD), 0);
    V(SYS(mprotect, file, P, 3));
    for (int advice = 0; advice < 5; advice++) V(SYS(madvise, a, P, advice));
    V(load(a));
    V(SYS(madvise, a, P, 99));
    V(SYS(madvise, a, P, -1));
    V(SYS(madvise, a + 1, P, 0));
    V(SYS(madvise, a, -1, 0));
    V(SYS(madvise, a, 0, 4));
    V(SYS(madvise, a, 4 * P, 4));
    V(SYS(madvise, a, 4 * P, 0));
    V(SYS(msync, a, P, 0));
    V(SYS(msync, a, P, 4));
    V(SYS(msync, a, P, 1));
    V(SYS(msync, a, P, 5));
    V(SYS(msync, a, P, 8));
    V(SYS(msync, a, P, -1));
    V(SYS(msync, a + 1, P, 4));
    V(SYS(msync, a, 4 * P, 4));
    V(SYS(msync, a, -1, 4));
    /* Whether mapped memory can be locked depends on a limit. */
    V(SYS(munlock, a, P));
    V(SYS(munlock, a, 4 * P));
    V(SYS(mlock, a + 3 * P, 0));
    V(SYS(mlock2, a, P, 2));
    V(SYS(mlock2, a, P, -1));
}

static void heap(void) {
    char *start = (char *)SYS(brk, 0);
    V(SYS(brk, start + P) - (long)start);
    V(load(start));
    V(SYS(brk, -1) - (long)start);
    V(SYS(brk, 1ul << 62) - (long)start);
    V(SYS(brk, 1) - (long)start);
    V(SYS(brk, start) - (long)start);
    V(load(start));
}

static void moving(void) {
    char *a = map(4 * P, 3, ANON, -1, 0);
    a[0] = 1, a[P] = 2;
    V(SYS(mremap, a + 1, P, 2 * P, 0));
    V(SYS(mremap, a, P, 0, 0));
    V(SYS(mremap, a, P, 2 * P, 8));
    V(SYS(mremap, a, P, 2 * P, -1));
    V(SYS(mremap, a, P, 2 * P, MREMAP_FIXED, a + 8 * P));
    V(SYS(mremap, a, P, P, MREMAP_FIXED | MREMAP_MAYMOVE, a));
    V(SYS(mremap, a, P, P, MREMAP_FIXED | MREMAP_MAYMOVE, a + 1));
    V(SYS(mremap, a, P, P, MREMAP_FIXED | MREMAP_MAYMOVE, -P));
    V(SYS(mremap, a, -1, P, 0));
    V(SYS(mremap, a, P, -1, MREMAP_MAYMOVE));
    V(SYS(mremap, a, 2 * P, 2 * P, 0) - (long)a);
    V(SYS(mremap, a, P, 3 * P, 0));
    V(SYS(mremap, a + 16 * P * 0, 8 * P, 9 * P, MREMAP_MAYMOVE));
    V(SYS(mremap, a, 2 * P, P, 0) - (long)a);
    V(load(a)); V(load(a + P)); V(load(a + 2 * P));
    V(SYS(mremap, a + P, P, 2 * P, MREMAP_MAYMOVE));
    char *b = (char *)SYS(mremap, a, P, 3 * P, MREMAP_MAYMOVE);
    V(load(b)); V(load(b + 2 * P));
    V(SYS(mremap, b, 3 * P, 2 * P, MREMAP_FIXED | MREMAP_MAYMOVE, a) - (long)a);
    V(load(a)); V(load(a + P));
    char *ro_page = map(2 * P, 1, ANON, -1, 0);
    char *moved = (char *)SYS(mremap, ro_page, P, 4 * P, MREMAP_MAYMOVE);
    V(load(moved + 3 * P)); V(store(moved + 3 * P));
    EACH_BAD(p, if (i_ >= 3 && i_ < 5) T(mremap, p, P, P, MREMAP_MAYMOVE));
    /* The mapping of a file is extended or moved. */
    long fd = make("pages", "first");
    SYS(pwrite64, fd, "second", 6, P);
    SYS(pwrite64, fd, "third", 5, 2 * P);
    char *f = map(4 * P, 3, MAP_PRIVATE, fd, 0);
    SYS(munmap, f + P, 3 * P);
    char *g = (char *)SYS(mremap, f, P, 3 * P, 0);
    V(g == f);
    V(load(f + P)); V(load(f + 2 * P));
    SYS(mmap, f + 3 * P, P, 0, ANON | MAP_FIXED, -1, 0);
    f[1] = 'X';
    g = (char *)SYS(mremap, f, 3 * P, 4 * P, MREMAP_MAYMOVE);
    V(load(g + 1)); V(load(g + P)); V(load(g + 3 * P));
    SYS(close, fd);
}

/* Pages past the end of a file, which changes. */
static void ending(void) {
    for (int kind = 0; kind < 4; kind++) {
        about = kind & 1 ? "shared " : "private ";
        long fd = kind & 2 ? SYS(memfd_create, "m", 0) : make("ends", "");
        SYS(write, fd, "0123456789", 10);
        char *m = map(4 * P, kind & 1 ? 1 : 3, kind & 1 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        V(load(m)); V(load(m + 10)); V(load(m + P - 1)); V(load(m + P)); V(load(m + 3 * P));
        V(SYS(ftruncate, fd, 2 * P + 1));
        V(load(m)); V(load(m + P)); V(load(m + 2 * P)); V(load(m + 2 * P + 1)); V(load(m + 3 * P));
        V(SYS(pwrite64, fd, "more", 4, P));
        V(load(m + P));
        V(SYS(pwrite64, fd, "end", 3, 3 * P + 7));
        V(load(m + 3 * P + 7)); V(load(m + 3 * P + 10));
        if (!(kind & 1)) {
            V(store(m)); V(store(m + P));
            V(SYS(pwrite64, fd, "ABC", 3, 0));
            V(load(m)); V(load(m + 1));
        }
        V(SYS(ftruncate, fd, P + 5));
        V(load(m)); V(load(m + P + 4)); V(load(m + P + 5)); V(load(m + 2 * P)); V(load(m + 3 * P + 7));
        V(SYS(mprotect, m, 4 * P, 1));
        V(load(m + 2 * P)); V(store(m + 2 * P));
        V(SYS(read, FD(ZERO), m + 2 * P, 1)); V(SYS(write, FD(WR), m + 2 * P, 1));
        V(SYS(ftruncate, fd, 4 * P));
        V(load(m + 2 * P)); V(load(m + 3 * P + 7));
        if (!(kind & 1)) V(store(m + 2 * P));
        V(SYS(ftruncate, fd, 0));
        V(load(m)); V(load(m + P));
        V(SYS(ftruncate, fd, 1));
        V(load(m)); V(load(m + P));
        if (!(kind & 2)) {
            V(SYS(close, SYS(open, "ends", O_RDWR | O_TRUNC)) < 0);
            V(load(m));
            V(SYS(truncate, "ends", 2 * P));
            V(load(m + P));
        }
        SYS(close, fd);
        V(load(m + 3 * P));
        V(SYS(munmap, m, 4 * P));
        SYS(unlink, "ends");
    }
    about = "";
}

/* The stack, as a dynamic linker makes it executable. */
static void growing(void) {
    char *here = (char *)((word)__builtin_frame_address(0) & -P), *below = here - 4 * P;
    *(volatile char *)below = 1;
    V(SYS(mprotect, below, 5 * P, 3));
    V(SYS(mprotect, here, P, 0x01000007)); V(SYS(mprotect, here, P, 0x03000007));
    *below = (char)0xc3;
    /* After a signal it goes on here. */
    caught = 0, where = below;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n call *%1\n 1:"
                     : "=m"(back) : "r"(below) : "rax", "memory");
    V(caught);
    V(SYS(mprotect, here, P, 0x02000003)); V(SYS(mprotect, here, P, 0x01000043));
    V(SYS(mprotect, here, P, 0x01000003));
    V(SYS(mprotect, here, 0, 0x01000003));
    V(store(below)); V(load(below));
}

static void cases(void) {
    on_signal(11, handler, SA_SIGINFO, 0);
    on_signal(7, handler, SA_SIGINFO, 0);
    mapping();
    heap();
    moving();
    ending();
    growing();
}
