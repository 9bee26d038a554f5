/* main < drive starts a coroutine by makecontext: body < deep < deep < deep < deep aborts there. */
#include <stdlib.h>
#include <ucontext.h>

static ucontext_t outside, inside;
static char stack[65536];

__attribute__((noinline)) static void deep(int n)
{
    volatile char room[40];
    room[n] = 1;
    if (!n)
        abort();
    deep(n - 1);
    room[0] = 2;
}

__attribute__((noinline)) static void body(void)
{
    deep(3);
    __asm__ volatile("");
}

__attribute__((noinline)) static void drive(void)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, body, 0);
    swapcontext(&outside, &inside);
}

int main(void)
{
    drive();
    return 0;
}
