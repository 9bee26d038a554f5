/* Files with holes: what they cost, where their data is, and mappings of them. */
#include "cases.h"
#include <linux/mman.h>
#define P 4096ul
#define G (1ul << 30)
#define SEEK_DATA 3
#define SEEK_HOLE 4
#define KEEP_SIZE 1
#define PUNCH 3

static volatile word caught;
static word back;
static void handler(int signal, char *info, word *context) {
    caught = signal * 1000 + *(int *)(info + 8);
    context[5 + 16] = back;
}
/* The value of a byte, or 1000 times the signal plus its si_code. */
static long load(char *at) {
    long value = 0;
    caught = 0;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movzbl (%2), %k1\n 1:"
                     : "=m"(back), "+r"(value) : "r"(at) : "rax", "memory");
    return caught ? (long)caught : value;
}
static long byte_at(long fd, word at) {
    unsigned char byte = 0;
    long read = SYS(pread64, fd, &byte, 1, at);
    return read == 1 ? byte : read - 1000;
}
static void seek(long fd) {
    word places[] = { 0, 1, P - 1, P, 5 * P, 5 * P + 9, 6 * P, G, 2 * G - 1, 2 * G };
    for (int i = 0; i < COUNT(places); i++) {
        V(places[i]); V(SYS(lseek, fd, places[i], SEEK_DATA)); V(SYS(lseek, fd, places[i], SEEK_HOLE));
    }
    V(SYS(lseek, fd, -1, SEEK_DATA)); V(SYS(lseek, fd, -1, SEEK_HOLE));
}

/* 2 GiB, of which 13 pages are touched. */
static void large(long fd, long how) {
    V(SYS(ftruncate, fd, 2 * G));
    seek(fd);
    V(SYS(pwrite64, fd, "data", 4, 5 * P)); V(SYS(pwrite64, fd, "more", 4, G - 2));
    seek(fd);
    char *m = (char *)SYS(mmap, 0, 2 * G, 3, how, fd, 0);
    for (int i = 0; i < 13; i++) V(load(m + i * (G / 7)));
    V(load(m + 5 * P)); V(load(m + G - 2)); V(load(m + G)); V(load(m + 2 * G - 1));
    m[G / 2] = 'x', m[2 * G - 1] = 'y';
    V(byte_at(fd, G / 2)); V(byte_at(fd, 2 * G - 1));
    V(SYS(pwrite64, fd, "z", 1, G / 4)); V(load(m + G / 4));
    long child = SYS(fork, 0);
    if (child == 0) {
        m[3 * P] = 'c';
        SYS(exit, m[5 * P] == 'd' && m[G / 2] == 'x' && m[G / 4] == 'z' ? 7 : 8);
    }
    int status = 0;
    SYS(wait4, child, &status, 0, 0);
    V(status); V(load(m + 3 * P));
    V(SYS(fallocate, fd, PUNCH, 5 * P + 1, 2)); V(load(m + 5 * P)); V(load(m + 5 * P + 1)); V(load(m + 5 * P + 3));
    V(SYS(fallocate, fd, PUNCH, 5 * P, P)); V(load(m + 5 * P)); V(byte_at(fd, 5 * P));
    V(SYS(fallocate, fd, PUNCH, G - P, 2 * P)); V(load(m + G - 2)); V(load(m + G)); V(byte_at(fd, G));
    V(SYS(fallocate, fd, PUNCH, 2 * G, P)); V(SYS(lseek, fd, 0, 2) == 2 * G);
    V(SYS(ftruncate, fd, G / 2 + 1)); V(load(m + G / 2)); V(load(m + G / 2 + P)); V(load(m + G));
    V(SYS(ftruncate, fd, 2 * G)); V(load(m + G)); V(load(m + 2 * G - 1)); V(byte_at(fd, G / 4));
    V(SYS(munmap, m, 2 * G));
    V(SYS(ftruncate, fd, 0));
}

static void holes(long fd) {
    V(SYS(pwrite64, fd, "0123456789", 10, 0)); V(SYS(pwrite64, fd, "abc", 3, 8 * P));
    V(SYS(lseek, fd, 0, SEEK_HOLE)); V(SYS(lseek, fd, P, SEEK_DATA)); V(SYS(lseek, fd, 8 * P + 1, SEEK_DATA));
    V(SYS(fallocate, fd, PUNCH, 2, 3)); V(byte_at(fd, 1)); V(byte_at(fd, 2)); V(byte_at(fd, 5));
    V(SYS(fallocate, fd, PUNCH, 0, 9 * P)); V(byte_at(fd, 1)); V(byte_at(fd, 8 * P)); V(SYS(lseek, fd, 0, 2));
    V(SYS(lseek, fd, 0, SEEK_DATA)); V(SYS(lseek, fd, 0, SEEK_HOLE));
    V(SYS(fallocate, fd, KEEP_SIZE, 0, 20 * P)); V(SYS(lseek, fd, 0, 2)); V(byte_at(fd, P));
    V(SYS(fallocate, fd, 0, 20 * P, P)); V(SYS(lseek, fd, 0, 2)); V(byte_at(fd, 20 * P));
    V(SYS(fallocate, fd, 2, 0, P)); V(SYS(fallocate, fd, PUNCH, 0, 0)); V(SYS(fallocate, fd, PUNCH, -1, P));
    V(SYS(ftruncate, fd, 3)); V(SYS(ftruncate, fd, 10)); V(byte_at(fd, 3));
    V(SYS(ftruncate, fd, -1));
    V(SYS(close, fd));
}

static void cases(void) {
    on_signal(11, handler, SA_SIGINFO, 0);
    on_signal(7, handler, SA_SIGINFO, 0);
    for (int kind = 0; kind < 2; kind++) {
        about = kind ? "memory " : "file ";
        long fd = kind ? SYS(memfd_create, "m", 0) : make("holes", "");
        large(fd, MAP_SHARED);
        large(fd, MAP_PRIVATE | MAP_NORESERVE);
        holes(fd);
        SYS(unlink, "holes");
    }
    about = "";
}
