/* What the programs need of a C library: no more than this, so that a recording has a few KB of
   code. _start calls main, with INIT first _init of the start files. `abort` is an invalid
   instruction. */
#include <stddef.h>

__asm__(".text\n .globl _start\n .type _start,@function\n_start:\n"
        " .cfi_startproc\n .cfi_undefined %rip\n"
        " xor %ebp,%ebp\n"
#ifdef INIT
        " call _init\n"
#endif
        " mov (%rsp),%rdi\n lea 8(%rsp),%rsi\n call main\n"
        " mov %eax,%edi\n mov $231,%eax\n syscall\n hlt\n"
        " .cfi_endproc\n .size _start,.-_start\n");

__asm__(".globl abort\n .type abort,@function\nabort:\n .cfi_startproc\n ud2\n .cfi_endproc\n"
        " .size abort,.-abort\n");

/* syscall(number, up to six arguments), as in the C library. */
__asm__(".globl syscall\n .type syscall,@function\nsyscall:\n .cfi_startproc\n"
        " mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n mov %rcx,%rdx\n"
        " mov %r8,%r10\n mov %r9,%r8\n"
        " mov 8(%rsp),%r9\n syscall\n ret\n .cfi_endproc\n .size syscall,.-syscall\n");

long syscall(long number, ...);

void *mmap(void *at, size_t size, int access, int flags, int fd, long offset)
{
    return (void *)syscall(9, at, size, access, flags, fd, offset);
}

int pause(void)
{
    return syscall(34);
}

void exit(int status)
{
    for (;;)
        syscall(231, status);
}

void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((volatile char *)to)[i] = value;
    return to;
}

char *strcpy(char *to, const char *from)
{
    char *out = to;
    while ((*(volatile char *)out++ = *from++))
        ;
    return to;
}

long strtol(const char *text, char **end, int base)
{
    (void)end;
    long value = 0;
    while (*text >= '0' && *text <= '9')
        value = value * base + *text++ - '0';
    return value;
}

int atoi(const char *text)
{
    return strtol(text, 0, 10);
}
