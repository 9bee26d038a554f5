#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static __thread sigjmp_buf jb; static __thread int hits; static __thread int mode;
__attribute__((noinline)) static void leave(int n) { if (n) { leave(n - 1); asm volatile(""); } else siglongjmp(jb, 1); }
static void on(int s, siginfo_t *si, void *u) { hits++; if (mode) leave(3); }
__attribute__((noinline)) static void fault(int n) { if (n) { fault(n - 1); asm volatile(""); } else { if (mode == 2) *(volatile int *)0 = 1; pthread_kill(pthread_self(), SIGUSR1); } }
static void *th(void *arg) {
  stack_t ss = {.ss_sp = malloc(65536), .ss_size = 65536}; sigaltstack(&ss, 0);
  for (int i = 0; i < 6; i++) { mode = i % 3; if (!sigsetjmp(jb, 1)) fault(i); }
  ss.ss_flags = SS_DISABLE; sigaltstack(&ss, 0); free(ss.ss_sp);
  return (void *)(long)hits;
}
int main(void) {
  struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_ONSTACK}; sigaction(SIGUSR1, &sa, 0); sigaction(SIGSEGV, &sa, 0);
  long n = 0; for (int r = 0; r < 3; r++) { pthread_t t[4]; for (int i = 0; i < 4; i++) pthread_create(t + i, 0, th, 0); for (int i = 0; i < 4; i++) { void *v; pthread_join(t[i], &v); n += (long)v; } }
  printf("%ld\n", n); return 0;
}
