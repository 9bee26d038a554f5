/* main < drive < code < spin. `code` is a few bytes without a symbol or a row: written to private
   anonymous memory, where spin aborts, or with FILE_NAME in that file, which is not ELF; there it
   spins. With BARE it has no frame pointer. */
#include <stdlib.h>
#include <sys/mman.h>

long syscall(long number, ...);

static const unsigned char code[] = {
#ifdef BARE
    0x48, 0x83, 0xec, 0x28, /* sub $40,%rsp */
    0xff, 0xd7,             /* call *%rdi */
    0x48, 0x83, 0xc4, 0x28, /* add $40,%rsp */
    0xc3,                   /* ret */
#else
    0x55,                   /* push %rbp */
    0x48, 0x89, 0xe5,       /* mov %rsp,%rbp */
    0x48, 0x83, 0xec, 0x20, /* sub $32,%rsp */
    0xff, 0xd7,             /* call *%rdi */
    0xc9,                   /* leave */
    0xc3,                   /* ret */
#endif
};

__attribute__((noinline)) long spin(void)
{
    volatile char room[40];
    room[1] = 1;
#ifdef FILE_NAME
    for (long n = 500000000; n; n--)
        __asm__ volatile("");
    return room[1];
#else
    abort();
#endif
}

__attribute__((noinline)) long drive(char *memory)
{
    return ((long (*)(void *))(memory + 0x100))((void *)spin) + 1;
}

int main(void)
{
#ifdef FILE_NAME
    int fd = syscall(2, FILE_NAME, 0);
    char *memory = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
#else
    int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    char *memory = mmap(0, 4096, access, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    for (unsigned i = 0; i < sizeof code; i++)
        ((volatile char *)memory)[0x100 + i] = code[i];
#endif
    return drive(memory) & 1;
}
