/* A program without libc that is hard to follow: signals for every kind of fault,
   mappings that come and go, self-modifying code, repeated string instructions, flags that
   the manual leaves undefined, pushf, cpuid, clocks, x87 and SSE. It ends with status 42. */

typedef unsigned long u64;
typedef unsigned char u8;

static long call6(long n, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define call3(n, a, b, c) call6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)

enum { MMAP = 9, MPROTECT = 10, MUNMAP = 11, BRK = 12, RT_SIGACTION = 13, MREMAP = 25, MADVISE = 28,
       GETPID = 39, KILL = 62, CLOCK_GETTIME = 228, EXIT_GROUP = 231 };

static volatile int seen[32];

struct action { void *handler; u64 flags; void *restorer; u64 mask; };

__asm__(".globl restore\nrestore: mov $15, %eax\n syscall\n");
void restore(void);

/* Continues after the instruction, whose length is in rax. */
static void on_signal(int signal, void *info, u64 *context)
{
    (void)info;
    seen[signal]++;
    if (signal != 10)
        context[21] += context[18]; /* rip, rax */
}

#define FAULT(length, insn) \
    __asm__ volatile(insn : : "a"((u64)(length)), "c"(0L), "b"(8L) : "rdx", "memory", "cc")

static void signals(void)
{
    struct action action = { on_signal, 4 | 0x04000000, restore, 0 };
    const int all[] = { 4, 5, 7, 8, 10, 11 };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        call6(RT_SIGACTION, all[i], (long)&action, 0, 8, 0, 0);
    FAULT(3, "mov (%%rbx), %%rdx");                        /* SIGSEGV */
    FAULT(3, "mov %%rdx, (%%rbx)");
    FAULT(2, "ud2");                                       /* SIGILL */
    FAULT(3, "xor %%edx, %%edx; .byte 0x48, 0xf7, 0xf1");  /* div %rcx: SIGFPE */
    FAULT(1, "hlt");
    FAULT(0, "int3");                                      /* SIGTRAP */
    FAULT(4, "movabs $0x8000000000000000, %%rbx; mov (%%rbx), %%eax; nop; nop");
    call3(KILL, call3(GETPID, 0, 0, 0), 10, 0);            /* SIGUSR1 */
}

static void mappings(void)
{
    u8 *p = (u8 *)call6(MMAP, 0, 3 * 4096, 3, 0x22, -1, 0);
    p[0] = 1; p[4096] = 2; p[8192] = 3;
    call3(MUNMAP, p + 4096, 4096, 0);
    call3(MPROTECT, p, 4096, 1);
    FAULT(3, "nop");
    __asm__ volatile("movb $5, (%1)" : : "a"(3L), "r"(p) : "memory");
    call3(MADVISE, p + 8192, 4096, 4);
    u8 *q = (u8 *)call6(MREMAP, (long)p + 8192, 4096, 1 << 20, 1, 0, 0);
    q[(1 << 20) - 1] = q[0] + 1;
    u64 end = call3(BRK, 0, 0, 0);
    call3(BRK, end + 5000, 0, 0);
    *(u8 *)(end + 4999) = 7;
    call3(BRK, end, 0, 0);
}

static int changing_code(void)
{
    u8 *p = (u8 *)call6(MMAP, 0, 4096, 7, 0x22, -1, 0);
    int sum = 0;
    p[0] = 0xb8; p[2] = p[3] = p[4] = 0; p[5] = 0xc3;      /* mov $i, %eax; ret */
    for (int i = 0; i < 5; i++) {
        p[1] = i;
        sum += ((int (*)(void))p)();
    }
    return sum;
}

static void strings(u8 *a, u8 *b)
{
    long n, d = (long)a, s = (long)b;
    n = 300; __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(7) : "memory");
    d = (long)a + 8; s = (long)a; n = 33;
    __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
    d = (long)a; s = (long)b; n = 200;
    __asm__ volatile("cmp %%eax, %%eax; repe cmpsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory", "cc");
    d = (long)a; n = 200;
    __asm__ volatile("repne scasb" : "+D"(d), "+c"(n) : "a"(9) : "memory", "cc");
    d = (long)a + 99; s = (long)b + 99; n = 50;
    __asm__ volatile("std; rep movsb; cld" : "+D"(d), "+S"(s), "+c"(n) : : "memory", "cc");
    n = 0; __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(7) : "memory");
}

static u64 odd(u64 x)
{
    u64 flags, y = 1, z = 0;
    u8 small = 200;
    __asm__ volatile("and %1, %0; pushfq; pop %1" : "+r"(x), "+r"(y) : : "cc");
    __asm__ volatile("bsf %1, %0; pushfq; pop %1" : "+r"(y), "+r"(z) : : "cc");
    __asm__ volatile("shl $9, %0; pushfq; pop %1" : "+r"(x), "=r"(flags) : : "cc");
    __asm__ volatile("mul %2; pushfq; pop %1" : "+a"(x), "=r"(flags) : "r"(y) : "rdx", "cc");
    __asm__ volatile("rolb $3, %0; lahf; adc %%al, %0" : "+r"(small) : : "rax", "cc");
    __asm__ volatile("push %0; popfq" : : "r"(flags) : "cc");
    __asm__ volatile("lock cmpxchg %1, %2; xadd %1, %2; xchg %1, %2" : "+a"(x), "+r"(y), "+m"(z) : : "cc");
    for (unsigned leaf = 0; leaf < 8; leaf++) {
        unsigned a = leaf, b, c = 0, d;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        x += a + b + c + d;
    }
    __asm__ volatile("rdtsc; shl $32, %%rdx; or %%rdx, %%rax" : "=a"(flags) : : "rdx");
    u64 time[2];
    call3(CLOCK_GETTIME, 0, time, 0);
    return x + flags + time[1] + small;
}

static double numbers(int n)
{
    long double sum = 0;
    double d = 1;
    float f = 0.5f;
    u8 area[512] __attribute__((aligned(16)));
    for (int i = 1; i < n; i++) {
        sum += 1.0L / i;
        d = d * 1.0000001 + i;
        f = f / 3 + (float)d;
    }
    __asm__ volatile("fxsave64 %0; fninit; fxrstor64 %0" : "+m"(area));
    __asm__ volatile("fldpi; fsqrt; fstp %%st(0)" : : : "st");
    __asm__ volatile("rsqrtss %0, %0; rcpss %0, %0" : "+x"(f));
    return (double)sum + d + f;
}

static u8 one[4096], two[4096];
static volatile double result;

void _start(void)
{
    __asm__ volatile("and $-16, %rsp");
    for (unsigned i = 0; i < sizeof two; i++)
        two[i] = i * 7;
    signals();
    mappings();
    strings(one, two);
    result = numbers(50) + odd(0x123456789abcdef) + changing_code();
    int good = seen[4] == 1 && seen[5] == 1 && seen[8] == 1 && seen[10] == 1 && seen[11] == 5;
    call3(EXIT_GROUP, good ? 42 : seen[11], 0, 0);
    __builtin_unreachable();
}
