// Coroutine stacks freed and reused, also abandoned ones; by a hand-written switch.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void sw(void **from, void *to);
#ifdef JMP
asm(".text\n.globl sw\n.type sw,@function\nsw:\n.cfi_startproc\n push %rbp\n push %rbx\n push %r15\n push %r14\n push %r13\n push %r12\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n pop %rbx\n pop %rbp\n pop %r8\n jmp *%r8\n.cfi_endproc\n.size sw,.-sw\n");
#else
asm(".text\n.globl sw\n.type sw,@function\nsw:\n.cfi_startproc\n push %rbp\n push %rbx\n push %r15\n push %r14\n push %r13\n push %r12\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n pop %rbx\n pop %rbp\n ret\n.cfi_endproc\n.size sw,.-sw\n");
#endif
static __thread void *home, *co; static __thread long sum; static __thread int depth;
static void end(void) { abort(); }
__attribute__((noinline)) static int rec(int n) { volatile int p[4]; p[n & 3] = n; if (n % 3 == 0) sw(&co, home); return n ? rec(n - 1) + p[n & 3] : 0; }
__attribute__((noinline)) static int rec2(int n) { volatile int p[6]; p[n & 3] = n; if (n % 2 == 0) sw(&co, home); return n ? rec2(n - 1) + p[n & 3] : 0; }
static void f(void) { for (;;) { sum += rec(depth); sw(&co, home); } }
static void g(void) { for (;;) { sum += rec2(depth); sw(&co, home); } }
static void *th(void *arg) {
  char *stack = malloc(16384);
  for (int i = 0; i < 40; i++) {
    void **sp = (void **)(((unsigned long)stack + 16384) & -16); 
    *--sp = 0; *--sp = i & 2 ? (void *)end : 0; *--sp = i & 1 ? f : g; sp -= 6; for (int k = 0; k < 6; k++) sp[k] = (void *)(long)(i * 10 + k);
    co = sp; depth = i % 11;
    for (int k = 0; k < i % 7; k++) sw(&home, co);
    if (i % 8 == 7) { free(stack); stack = malloc(16384); }
  }
  free(stack);
  return (void *)sum;
}
int main(void) { long n = 0; for (int r = 0; r < 3; r++) { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(t + i, 0, th, 0); for (int i = 0; i < 3; i++) { void *v; pthread_join(t[i], &v); n += (long)v; } } printf("%ld\n", n); }
