/* A coroutine aborts. Its stack is a mapping of a file (mode 0), or memory that the program left out
   of cores with MADV_DONTDUMP (mode 1). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static ucontext_t outside, inside;

__attribute__((noinline)) static void deep(int n)
{
    volatile char room[40];
    room[n] = 1;
    if (!n)
        abort();
    deep(n - 1);
    room[0] = 2;
}

static void body(void)
{
    deep(3);
    __asm__ volatile("");
}

int main(int count, char **arguments)
{
    int mode = count > 1 ? atoi(arguments[1]) : 0;
    int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (mode == 0) {
        fd = open("stack", O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (ftruncate(fd, 65536))
            return 2;
        flags = MAP_SHARED;
    }
    void *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (mode == 1)
        madvise(stack, 65536, MADV_DONTDUMP);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = 65536;
    inside.uc_link = &outside;
    makecontext(&inside, body, 0);
    swapcontext(&outside, &inside);
    return 0;
}
