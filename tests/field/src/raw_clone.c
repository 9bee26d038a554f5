/* A thread by the system call itself, on a stack of its own: nothing called thread_entry, and the word
   above it is 0. It aborts below lower. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) void lower(void)
{
    volatile char room[40];
    room[1] = 1;
    abort();
}

__attribute__((noinline)) void upper(void)
{
    lower();
    __asm__ volatile("");
}

__attribute__((noinline, noreturn)) void thread_entry(void)
{
    upper();
    for (;;)
        pause();
}

int main(void)
{
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void **end = (void **)(stack + 65536);
    *--end = 0;
    *--end = 0;
    *--end = (void *)thread_entry;
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall\n test %%rax,%%rax\n jnz 1f\n xor %%ebp,%%ebp\n ret\n1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(end), "d"(0L), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    for (;;)
        pause();
}
