/* Jumps out of nested frames, and a context of its own stack. */
#include <setjmp.h>
#include <stdio.h>
#include <ucontext.h>

static jmp_buf buffer;
static ucontext_t home, other;
static char stack[1 << 16];
static int visits;

__attribute__((noinline)) static int down(int n)
{
    volatile int local = n;
    if (n == 0)
        longjmp(buffer, 7);
    return down(n - 1) + local;
}

static void elsewhere(void)
{
    visits++;
    swapcontext(&other, &home);
    visits += 10;
}

int main(void)
{
    int landed = setjmp(buffer);
    if (landed == 0)
        return down(9);
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = sizeof stack;
    other.uc_link = &home;
    makecontext(&other, elsewhere, 0);
    swapcontext(&home, &other);
    visits += 100;
    swapcontext(&home, &other);
    printf("%d %d\n", landed, visits);
    return landed == 7 && visits == 111 ? 0 : 1;
}
