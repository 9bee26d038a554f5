#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int cleaned; static volatile int ready;
static void clean(void *p) { __atomic_add_fetch(&cleaned, *(int *)p, __ATOMIC_SEQ_CST); }
__attribute__((noinline)) static void waitdeep(int n) { int v = n; pthread_cleanup_push(clean, &v); if (n) waitdeep(n - 1); else for (;;) sleep(100); pthread_cleanup_pop(0); }
__attribute__((noinline)) static void spin(int n) { int v = n; pthread_cleanup_push(clean, &v); if (n) spin(n - 1); else { ready = 1; for (;;) asm volatile("pause"); }; pthread_cleanup_pop(0); }
__attribute__((noinline)) static void exitdeep(int n) { int v = n; pthread_cleanup_push(clean, &v); if (n) exitdeep(n - 1); else pthread_exit((void *)7); pthread_cleanup_pop(0); }
static void *a(void *x) { waitdeep(5); return 0; }
static void *b(void *x) { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0); spin(5); return 0; }
static void *c(void *x) { exitdeep(5); return 0; }
static void *d(void *x) { return x; }
static int done; __attribute__((noinline)) static void quit(int n) { if (n) { quit(n - 1); asm volatile(""); } else exit(cleaned == 180 ? 0 : 1); }
static void *e(void *x) { quit(4); return 0; }
int main(void) {
  for (int r = 0; r < 4; r++) {
    pthread_t t[4]; pthread_create(t, 0, a, 0); pthread_create(t + 1, 0, b, 0); pthread_create(t + 2, 0, c, 0); pthread_create(t + 3, 0, d, 0);
    while (!ready) usleep(1000); ready = 0; pthread_cancel(t[0]); pthread_cancel(t[1]); for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
  }
  printf("%d\n", cleaned); fflush(stdout);
  pthread_t q; pthread_create(&q, 0, e, 0); pthread_join(q, 0); return 2;
}
