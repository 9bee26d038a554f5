// ucontext coroutines that migrate between threads through a queue.
#define _GNU_SOURCE
#include <ucontext.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define N 16
#define T 4
#define ROUNDS 20
struct co { ucontext_t ctx; ucontext_t *home; int id, round, done; char stack[32768] __attribute__((aligned(16))); };
static struct co *queue[N]; static int head, tail, live = N;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static struct co cos[N];
static long sum;
__attribute__((noinline)) static void yield_co(struct co *co) { swapcontext(&co->ctx, co->home); }
__attribute__((noinline)) static int deep(struct co *co, int n) {
  volatile char pad[n * 8 + 8]; pad[0] = n;
  if (n == 0) { yield_co(co); return 1; }
  int r = deep(co, n - 1) + 1; return r + (pad[0] - n);
}
static void body(unsigned lo, unsigned hi) {
  struct co *co = (struct co *)((unsigned long)lo | (unsigned long)hi << 32);
  for (co->round = 0; co->round < ROUNDS; co->round++) __atomic_add_fetch(&sum, deep(co, (co->id + co->round) % 7), __ATOMIC_SEQ_CST);
  co->done = 1; yield_co(co);
  abort();
}
static void push(struct co *co) { pthread_mutex_lock(&m); queue[tail++ % N] = co; pthread_cond_signal(&c); pthread_mutex_unlock(&m); }
static void *worker(void *arg) {
  ucontext_t home;
  for (;;) {
    pthread_mutex_lock(&m);
    while (head == tail && live) pthread_cond_wait(&c, &m);
    if (!live) { pthread_mutex_unlock(&m); pthread_cond_broadcast(&c); return 0; }
    struct co *co = queue[head++ % N]; pthread_mutex_unlock(&m);
    co->home = &home;
    swapcontext(&home, &co->ctx);
    if (co->done) { pthread_mutex_lock(&m); live--; pthread_mutex_unlock(&m); pthread_cond_broadcast(&c); } else push(co);
  }
}
int main(void) {
  pthread_t t[T];
  for (int i = 0; i < N; i++) { struct co *co = &cos[i]; co->id = i; getcontext(&co->ctx); co->ctx.uc_stack.ss_sp = co->stack; co->ctx.uc_stack.ss_size = sizeof co->stack; co->ctx.uc_link = 0;
    makecontext(&co->ctx, (void (*)(void))body, 2, (unsigned)(unsigned long)co, (unsigned)((unsigned long)co >> 32)); push(co); }
  for (int i = 0; i < T; i++) pthread_create(&t[i], 0, worker, 0);
  for (int i = 0; i < T; i++) pthread_join(t[i], 0);
  printf("%ld\n", sum); return 0;
}
