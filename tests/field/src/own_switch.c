/* A coroutine made by hand: the word above its first frame is no return address (WORD), and nothing
   marks the end. With FINISH it is the start of a function. With MARKED the
   first frame is that of assembly whose row says that it is the last. It aborts in deep. */
#include <stdlib.h>
#include <string.h>

#ifdef FINISH
#define WORD (long)finish
#endif
#ifndef WORD
#define WORD 0x5a5a5a5a
#endif

void hop(void **keep, void *to);
static void *mine;
static long stack[8192];

#ifdef FINISH
__attribute__((noinline)) static void finish(void)
{
    exit(0);
}
#endif

__attribute__((noinline)) static void deep(int n)
{
    volatile char room[40];
    room[n] = 1;
    if (!n)
        abort();
    deep(n - 1);
    room[0] = 2;
}

__attribute__((noinline)) void entry(void)
{
    deep(3);
    abort();
}

#ifdef MARKED
void marked(void);
__asm__("marked:\n .cfi_startproc\n .cfi_undefined %rip\n nop\n call entry\n hlt\n .cfi_endproc\n");
#define entry marked
#endif

__attribute__((noinline)) static void drive(void)
{
    memset(stack, 0x5a, sizeof stack);
    long *end = stack + 8000;
    *--end = WORD;
    *--end = (long)entry;
    end -= 6;
    hop(&mine, end);
}

int main(void)
{
    drive();
    return 0;
}
