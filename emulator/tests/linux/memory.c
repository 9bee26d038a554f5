/* Memory, and invalid accesses to it. */
#include "start.h"
#include <linux/mman.h>
#include <linux/fcntl.h>

#define P 4096
static word caught, code, address, error, cr2, trap;
static char *expected;
static word back;

/* Continues after the access, at `back`. */
static void handler(int signal, char *info, word *context) {
    caught = signal;
    code = *(int *)(info + 8);
    address = *(word *)(info + 16) - (word)expected;
    error = context[5 + 19];
    trap = context[5 + 20];
    cr2 = context[5 + 22] - (word)expected;
    context[5 + 16] = back;
}
static void told(const char *what) {
    print(what);
    number(" signal", caught);
    number(" code", code);
    number(" address", address);
    number(" error", error);
    number(" trap", trap);
    caught = 0;
}
static void load(char *at, char *says) {
    expected = says;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n mov (%1), %%al\n 1:"
                     : "=m"(back) : "r"(at) : "rax", "memory");
}
static void store(char *at, char *says) {
    expected = says;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movb $1, (%1)\n 1:"
                     : "=m"(back) : "r"(at) : "rax", "memory");
}
static void go(char *at, char *says) {
    expected = says;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n mov %%rsp, %%rbx\n jmp *%1\n 1: mov %%rbx, %%rsp"
                     : "=m"(back) : "r"(at) : "rax", "rbx", "memory");
}
#define MAP(at, size, prot, flags, fd, offset) (char *)SYS(mmap, at, size, prot, flags, fd, offset)

int run(word *stack) {
    word *vector = stack + stack[0] + 2;
    while (*vector++) {}
    for (; *vector; vector += 2) {
        unsigned eax = 1, ebx, ecx = 0, edx;
        __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
        if (vector[0] == 16) number("hwcap is cpuid", vector[1] == edx);
        if (vector[0] == 51) number("room for a frame", vector[1] > 1000);
    }
    on_signal(11, handler, SA_SIGINFO, 0);
    on_signal(7, handler, SA_SIGINFO, 0);
    char *a = MAP(0, 4 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    number("aligned", (word)a % P);
    number("zero", a[0] + a[4 * P - 1]);
    a[0] = 1; a[P] = 2; a[2 * P] = 3;
    number("noreplace", SYS(mmap, a + P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    number("munmap", SYS(munmap, a + P, P));
    load(a + P, a);
    told("unmapped load");
    store(a + P + 5, a);
    told("unmapped store");
    number("kept", a[0] + a[2 * P]);
    number("protect", SYS(mprotect, a + 2 * P, P, 1));
    store(a + 2 * P, a);
    told("read only");
    number("value", a[2 * P]);
    number("protect", SYS(mprotect, a + 2 * P, P, 0));
    load(a + 2 * P, a);
    told("nothing");
    go(a, a);
    told("no execute");
    load((char *)0x8000000000000000, 0);
    told("not canonical");
    load(0, 0);
    told("null");
    number("hole", SYS(mprotect, a, 4 * P, 3));
    number("unaligned", SYS(mprotect, a + 1, P, 3));
    number("unaligned", SYS(munmap, a + 1, P));
    number("nothing", SYS(munmap, a, 0));
    number("nothing", SYS(mmap, 0, 0, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    number("no kind", SYS(mmap, 0, P, 3, MAP_ANONYMOUS, -1, 0));
    number("no file", SYS(mmap, 0, P, 3, MAP_PRIVATE, 99, 0));
    number("too much", SYS(mmap, 0, 1ul << 47, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    number("hint", MAP(a + P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == a + P);
    number("new", a[P]);

    char *b = MAP(0, 8 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b[0] = 5; b[P] = 6;
    SYS(munmap, b + 2 * P, 6 * P);
    number("grow", SYS(mremap, b, 2 * P, 4 * P, 0) - (word)b);
    number("grown", b[0] + b[P] + b[3 * P]);
    SYS(mmap, b + 4 * P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    number("stuck", SYS(mremap, b, 4 * P, 6 * P, 0));
    char *c = (char *)SYS(mremap, b, 4 * P, 6 * P, MREMAP_MAYMOVE);
    number("moved", c != b && c[0] == 5 && c[P] == 6 && c[5 * P] == 0);
    load(b, b);
    told("left");
    number("shrink", SYS(mremap, c, 6 * P, P, 0) - (word)c);
    load(c + P, c);
    told("shrunk");
    c[7] = 9;
    number("dontneed", SYS(madvise, c, P, 4));
    number("zero", c[7] + c[0]);

    char *heap = (char *)SYS(brk, 0);
    number("brk", SYS(brk, heap + 3 * P + 5) - (word)heap);
    heap[3 * P] = 1;
    number("brk", SYS(brk, heap + 10) - (word)heap);
    number("brk back", SYS(brk, heap + 3 * P + 5) - (word)heap);
    number("zero", heap[3 * P]);
    number("brk low", SYS(brk, 4096) - (word)heap);

    long fd = SYS(open, "mapped", O_RDWR | O_CREAT, 0600);
    SYS(write, fd, "abcdefgh", 8);
    SYS(pwrite64, fd, "second", 6, P);
    char *m = MAP(0, 4 * P, 3, MAP_PRIVATE, fd, 0);
    number("file", same(m, "abcdefgh", 9) && same(m + P, "second", 7));
    m[0] = 'X';
    char one;
    SYS(pread64, fd, &one, 1, 0);
    number("private", one);
    load(m + 2 * P + 9, m);
    told("behind");
    SYS(mprotect, m, 4 * P, 1);
    load(m + 3 * P, m);
    told("behind");
    char *n = MAP(0, P, 1, MAP_SHARED, fd, P);
    number("shared", same(n, "second", 7));
    number("odd offset", SYS(mmap, 0, P, 1, MAP_PRIVATE, fd, 5));
    SYS(close, fd);
    number("closed", n[0]);
    fd = SYS(open, "mapped", O_WRONLY);
    number("write only", SYS(mmap, 0, P, 1, MAP_PRIVATE, fd, 0));
    SYS(unlink, "mapped");
    return 0;
}
