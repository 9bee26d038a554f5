// coroutine stacks in local arrays of different threads' frames
#define _GNU_SOURCE
#include <ucontext.h>
#include <pthread.h>
#include <stdio.h>
static __thread ucontext_t home, co; static __thread long sum;
__attribute__((noinline)) static int rec(int n) { volatile int p[4]; p[n & 3] = n; swapcontext(&co, &home); return n ? rec(n - 1) + p[n & 3] : 0; }
static void f(int n) { sum += rec(n); }
__attribute__((noinline)) static void run(int i) { char stack[16384]; getcontext(&co); co.uc_stack.ss_sp = stack; co.uc_stack.ss_size = sizeof stack; co.uc_link = &home; makecontext(&co, (void (*)(void))f, 1, i); for (int k = 0; k < i + 2; k++) swapcontext(&home, &co); }
static void *th(void *a) { for (int i = 0; i < 8; i++) run(i); return (void *)sum; }
int main(void) { long n = 0; pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(t + i, 0, th, 0); n += (long)th(0); for (int i = 0; i < 3; i++) { void *v; pthread_join(t[i], &v); n += (long)v; } printf("%ld\n", n); }
