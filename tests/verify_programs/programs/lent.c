// A thread leaves its own stack by a call on another one and waits there, as Go's scheduler does,
// and another thread goes on with the stack that was left: back, deeper, and away again.
#include <pthread.h>
#include <stdio.h>

// Calls the function with the stack that ends at `top`. It does not return: `resume` goes on
// with the stack that `left` tells.
void lend(void **left, void *top, void (*function)(void));
// Goes on with the stack `next`, and tells in `left` how to come back.
void sw(void **left, void *next);
void resume(void *next) __attribute__((noreturn));
__asm__(".globl lend\n.type lend,@function\nlend:\n.cfi_startproc\n"
        "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp,-16\n"
        "mov %rsp,%rbp\n.cfi_def_cfa_register %rbp\n"
        "push %rbx\n.cfi_offset %rbx,-24\npush %r12\n.cfi_offset %r12,-32\n"
        "push %r13\n.cfi_offset %r13,-40\npush %r14\n.cfi_offset %r14,-48\n"
        "push %r15\n.cfi_offset %r15,-56\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\ncall *%rdx\nud2\n.cfi_endproc\n.size lend,.-lend\n"
        ".globl sw\n.type sw,@function\nsw:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rdi\n"
        ".size sw,.-sw\n"
        ".globl resume\n.type resume,@function\nresume:\n"
        "mov %rdi,%rsp\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size resume,.-resume\n");

static void *own, *borrower;
static char stack[65536] __attribute__((aligned(16)));
static pthread_barrier_t lent, returned;
static volatile long sum;

__attribute__((noinline)) static int deep(int n) {
    volatile char pad[n * 8 + 8];
    pad[0] = n;
    if (n == 0) return 1;
    int below = deep(n - 1) + 1;
    return below + (pad[0] - n);
}

static void waits(void) {
    pthread_barrier_wait(&lent);
    pthread_barrier_wait(&returned);
    sum += deep(2);
    resume(own);
}

// Returns in the other thread.
__attribute__((noinline)) static int leave(int n) {
    volatile char pad[n * 8 + 8];
    pad[0] = n;
    if (n == 0) lend(&own, stack + sizeof stack, waits);
    else return leave(n - 1) + (pad[0] - n);
    return deep(4);
}

// Begins in the other thread, and returns in the first one.
__attribute__((noinline)) static int give_back(int n) {
    volatile char pad[n * 8 + 8];
    pad[0] = n;
    if (n == 0) sw(&own, borrower);
    else return give_back(n - 1) + (pad[0] - n);
    return deep(5);
}

static void *borrow(void *unused) {
    pthread_barrier_wait(&lent);
    sw(&borrower, own);
    sum += deep(6);
    pthread_barrier_wait(&returned);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_barrier_init(&lent, 0, 2);
    pthread_barrier_init(&returned, 0, 2);
    pthread_create(&thread, 0, borrow, 0);
    sum += leave(3);
    sum += give_back(2);
    pthread_join(thread, 0);
    printf("%ld\n", sum);
    return 0;
}
