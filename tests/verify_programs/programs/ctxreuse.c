#define _GNU_SOURCE
#include <ucontext.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
static __thread ucontext_t home, co; static __thread long sum;
__attribute__((noinline)) static int rec(int n) { volatile int p[4]; p[n & 3] = n; if (n % 3 == 0) swapcontext(&co, &home); return n ? rec(n - 1) + p[n & 3] : 0; }
static void f(int n) { sum += rec(n); }
static void *th(void *arg) {
  for (int i = 0; i < 40; i++) {
    size_t size = 16384 << (i & 1); char *stack = i % 4 < 2 ? malloc(size) : mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&co); co.uc_stack.ss_sp = stack; co.uc_stack.ss_size = size; co.uc_link = &home;
    makecontext(&co, (void (*)(void))f, 1, i % 11);
    int resumes = i % 11 / 3 + 2 - (i % 5 == 0); // some are abandoned before their end
    for (int k = 0; k < resumes; k++) swapcontext(&home, &co);
    if (i % 4 < 2) free(stack); else munmap(stack, size);
  }
  return (void *)sum;
}
int main(void) { long n = 0; for (int r = 0; r < 3; r++) { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(t + i, 0, th, 0); for (int i = 0; i < 3; i++) { void *v; pthread_join(t[i], &v); n += (long)v; } } printf("%ld\n", n); }
