/* What a program sees of exceptions, for many instructions: signal, code, address, trap number,
 * error code, rip, rsp and rbp. */
#include "start.h"

#define BAD 0x8000000000000000ul
/* Where a case continues, and its stack pointer there. */
word resume, stack_then, stack_given;
word begun;

static void handler(int signal, char *info, word *context) {
    print(" signal"); number("", signal);
    number("  code", *(int *)(info + 8));
    number("  address", *(word *)(info + 16));
    number("  trap", context[5 + 20]);
    number("  error", context[5 + 19]);
    number("  rip", context[5 + 16] - begun);
    number("  rsp", context[5 + 15] - stack_given);
    number("  rbp", context[5 + 10]);
    context[5 + 16] = resume;
    context[5 + 15] = stack_then;
    context[5 + 17] &= ~0x40100ul;
}

/* Runs `code` with rax = a, rcx = b, rdi = 5, rbp = `frame`, and rsp = `stack` unless that is 0. */
#define CASE(code, a, b, frame, stack) do {                                        \
        print(code "\n");                                                          \
        word frame_ = frame, sp_ = stack;                                          \
        __asm__ volatile(                                                          \
            "push %%rbp\n mov %%rsp, stack_then(%%rip)\n"                          \
            "lea 2f(%%rip), %%r8\n mov %%r8, resume(%%rip)\n"                      \
            "lea 1f(%%rip), %%r8\n mov %%r8, begun(%%rip)\n"                       \
            "mov %%rdx, %%rbp\n test %%rsi, %%rsi\n cmovnz %%rsi, %%rsp\n"         \
            "mov %%rsp, stack_given(%%rip)\n"                                     \
            "1: " code "\n2: pop %%rbp\n"                                          \
            : "+d"(frame_), "+S"(sp_)                                              \
            : "a"(a), "c"(b), "D"(5)                                               \
            : "rbx", "r8", "r9", "r10", "r11", "r12", "memory", "cc");             \
    } while (0)

static word words[64];

int run(word *stack) {
    (void)stack;
    static word alternate[4096];
    struct { void *start; int flags, pad; word size; } new = { alternate, 0, 0, sizeof alternate };
    SYS(sigaltstack, &new, 0);
    int signals[] = { 4, 5, 7, 8, 11 };
    for (int i = 0; i < 5; i++) on_signal(signals[i], handler, SA_SIGINFO | SA_ONSTACK, 0);
    word good = (word)(words + 32);

    /* Software interrupts. */
    CASE("int3", 0, 0, 0, 0);
    CASE(".byte 0xcd, 3", 0, 0, 0, 0);
    CASE("int1", 0, 0, 0, 0);
    CASE("int $0", 0, 0, 0, 0);
    CASE("int $1", 0, 0, 0, 0);
    CASE("int $2", 0, 0, 0, 0);
    CASE("int $4", 0, 0, 0, 0);
    CASE("int $5", 0, 0, 0, 0);
    CASE("int $6", 0, 0, 0, 0);
    CASE("int $8", 0, 0, 0, 0);
    CASE("int $13", 0, 0, 0, 0);
    CASE("int $14", 0, 0, 0, 0);
    CASE("int $0x20", 0, 0, 0, 0);
    CASE("int $0x7f", 0, 0, 0, 0);
    CASE("int $0x81", 0, 0, 0, 0);
    CASE("int $0xff", 0, 0, 0, 0);

    /* Non-canonical addresses: a stack fault through ss, otherwise a general protection fault. */
    CASE("mov (%%rax), %%r9", BAD, 0, 0, 0);
    CASE("mov %%r9, (%%rax)", BAD, 0, 0, 0);
    CASE("mov (%%rbp), %%r9", 0, 0, BAD, 0);
    CASE("mov %%r9, 8(%%rbp)", 0, 0, BAD, 0);
    CASE("mov (%%rax,%%rcx), %%r9", BAD, 0, 0, 0);
    CASE("mov (%%rbp,%%rcx), %%r9", 0, 0, BAD, 0);
    CASE("mov (%%rcx,%%rbp), %%r9", 0, 0, BAD, 0);
    CASE("mov (,%%rbp,2), %%r9", 0, 0, 0x4000000000000000, 0);
    CASE("mov (%%rsp), %%r9", 0, 0, 0, BAD);
    CASE("addq $1, 16(%%rsp)", 0, 0, 0, BAD);
    CASE("mov %%ds:(%%rbp), %%r9", 0, 0, BAD, 0);
    CASE("mov %%ss:(%%rax), %%r9", BAD, 0, 0, 0);
    CASE("mov %%fs:(%%rbp), %%r9", 0, 0, BAD, 0);
    CASE("mov %%es:(%%rsp), %%r9", 0, 0, 0, BAD);
    CASE("movups (%%rbp), %%xmm0", 0, 0, BAD, 0);
    CASE("movups (%%rax), %%xmm0", BAD, 0, 0, 0);
    CASE("push %%rax", 0, 0, 0, BAD);
    CASE("push $1", 0, 0, 0, BAD);
    CASE("pushf", 0, 0, 0, BAD);
    CASE("pop %%r9", 0, 0, 0, BAD);
    CASE("popf", 0, 0, 0, BAD);
    CASE("call 3f\n3:", 0, 0, 0, BAD);
    CASE("call *%%rax", BAD, 0, 0, 0);
    CASE("call *%%rax", good, 0, 0, BAD);
    CASE("call *(%%rax)", BAD, 0, 0, 0);
    CASE("call *(%%rbp)", 0, 0, BAD, 0);
    CASE("call *(%%rax)", good, 0, 0, BAD);
    CASE("jmp *%%rax", BAD, 0, 0, 0);
    CASE("jmp *(%%rax)", BAD, 0, 0, 0);
    CASE("jmp *(%%rbp)", 0, 0, BAD, 0);
    CASE("ret", 0, 0, 0, BAD);
    CASE("ret $8", 0, 0, 0, BAD);
    words[32] = BAD;
    CASE("ret", 0, 0, 0, good);
    CASE("jmp *(%%rax)", good, 0, 0, 0);
    CASE("call *(%%rax)", good, 0, 0, 0);
    words[32] = 0;
    CASE("leave", 0, 0, BAD, 0);
    CASE("enter $16, $0", 0, 0, 0, BAD);
    CASE("enter $16, $2", 0, 0, BAD, 0);
    CASE("push (%%rax)", BAD, 0, 0, 0);
    CASE("push (%%rbp)", 0, 0, BAD, 0);
    CASE("push (%%rax)", good, 0, 0, BAD);
    CASE("push (%%rbp)", 0, 0, good, BAD);
    CASE("push (,%%rax,2)", 0x4000000000000000, 0, 0, 0);
    CASE("pop (%%rax)", BAD, 0, 0, 0);
    CASE("pop (%%rbp)", 0, 0, BAD, 0);
    CASE("pop (%%rax)", good, 0, 0, BAD);
    CASE("lodsb", 0, 0, 0, 0);
    CASE("mov %%rax, %%rdi\n stosb", BAD, 0, 0, 0);
    CASE("mov %%rax, %%rsi\n lodsb", BAD, 0, 0, 0);
    CASE("mov %%rax, %%rsi\n lodsb %%ss:(%%rsi)", BAD, 0, 0, 0);
    CASE("mov %%rax, %%rdi\n mov %%rdi, %%rsi\n movsb", BAD, 0, 0, 0);
    CASE("mov %%rax, %%rdi\n rep stosb", BAD, 5, 0, 0);
    /* Operands across the end of the address space. */
    CASE("mov -4(%%rbp), %%r9", 0, 0, 0x800000000000, 0);
    CASE("mov -4(%%rax), %%r9", 0x800000000000, 0, 0, 0);
    CASE("push %%rax", 0, 0, 0, 0x800000000004);
    return 0;
}
