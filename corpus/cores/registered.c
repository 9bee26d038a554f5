// Generated code whose unwind tables libgcc knows, in a program without a C library: `outer` calls
// `inner`, which stops at an undefined instruction. Both are written into memory, each with a
// table. libgcc has looked up a row of `outer` and has sorted that table; the table of `inner` is as
// it was registered. The table of the program itself is registered by the start file crtbeginT.o.
//
//   gcc -O1 -fno-stack-protector -fcf-protection=none -static -nostdlib -Wl,--no-eh-frame-hdr \
//       -Wl,--build-id -Wl,-z,noseparate-code -fno-pie -no-pie registered.c crtbeginT.o \
//       libgcc_eh.a libgcc.a crtend.o -o /usr/local/bin/registered
//
// and `strip` behind it. What libgcc calls is here as far as it is called.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;

extern void __register_frame(void *);
struct bases { void *tbase, *dbase, *func; };
extern const void *_Unwind_Find_FDE(void *, struct bases *);
extern void (*__init_array_start[])(void), (*__init_array_end[])(void);

static u8 heap[4096] __attribute__((aligned(16)));
static u64 used;
void *malloc(u64 size)
{
    u8 *at = heap + used;
    used += (size + 15) & ~15ul;
    return at;
}
void free(void *at) { (void)at; }
void abort(void) { __builtin_trap(); }
u64 strlen(const char *s) { u64 n = 0; while (s[n]) n++; return n; }
void *memcpy(void *to, const void *from, u64 n)
{
    u8 *t = to;
    const u8 *f = from;
    while (n--)
        *t++ = *f++;
    return to;
}
void *memmove(void *to, const void *from, u64 n) { return memcpy(to, from, n); }
void *memset(void *to, int c, u64 n) { u8 *t = to; while (n--) *t++ = c; return to; }
int _dl_find_object(void *pc, void *out) { (void)pc; (void)out; return -1; }
int pthread_mutex_lock(void *m) { (void)m; return 0; }
int pthread_mutex_unlock(void *m) { (void)m; return 0; }
int pthread_cond_wait(void *c, void *m) { (void)c; (void)m; return 0; }
int pthread_cond_broadcast(void *c) { (void)c; return 0; }

// `sub $8, %rsp; call *%rsi; add $8, %rsp; ret` and `push %rbx; ud2`.
static const u8 outer[] = { 0x48, 0x83, 0xec, 0x08, 0xff, 0xd6, 0x48, 0x83, 0xc4, 0x08, 0xc3 };
static const u8 inner[] = { 0x53, 0x0f, 0x0b };

// A CIE (CFA rsp+8, absolute addresses), an FDE with rows behind the first instruction, the end.
static u8 *table(u8 *at, const u8 *code, u32 size, u8 advance, u8 saved)
{
    static const u8 cie[] = { 0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0,
                              0x0c, 7, 8, 0x90, 1, 0, 0 };
    memcpy(at, cie, sizeof cie);
    u8 *fde = at + sizeof cie;
    u8 rows[] = { 0x40 | advance, 0x0e, 16, saved ? 0x83 : 0, saved ? 2 : 0, 0, 0 };
    *(u32 *)fde = 4 + 16 + 1 + sizeof rows;
    *(u32 *)(fde + 4) = sizeof cie + 4;
    *(u64 *)(fde + 8) = (u64)code;
    *(u64 *)(fde + 16) = size;
    fde[24] = 0;
    memcpy(fde + 25, rows, sizeof rows);
    *(u32 *)(fde + 25 + sizeof rows) = 0;
    return at;
}

__attribute__((noinline)) static void generate(u8 *page)
{
    struct bases bases;
    u8 *first = memcpy(page, outer, sizeof outer);
    u8 *second = memcpy(page + 0x40, inner, sizeof inner);
    __register_frame(table(heap + 0x800, first, sizeof outer, 4, 0));
    if (!_Unwind_Find_FDE(first + 5, &bases))
        abort();
    __register_frame(table(heap + 0x900, second, sizeof inner, 1, 1));
    ((void (*)(void *, void *))first)(0, second);
}

__attribute__((used)) static void begin(void)
{
    for (void (**f)(void) = __init_array_start; f < __init_array_end; f++)
        (*f)();
    u8 *page;
    // mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    register long r10 __asm__("r10") = 0x22, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall" : "=a"(page) : "a"(9), "D"(0), "S"(4096), "d"(7), "r"(r10),
                     "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    generate(page);
}

__asm__(".globl _start\n.type _start, @function\n_start: .cfi_startproc\n.cfi_undefined %rip\n"
        "call begin\nud2\n.cfi_endproc\n.size _start, . - _start");
