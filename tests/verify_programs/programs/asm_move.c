// Coroutines move between threads by a hand-written switch. It returns, or with JMP it pops the
// return address and jumps to it, as in libco and boost.context.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#define N 16
#define T 4
#define ROUNDS 30
void sw(void **from, void *to);
#ifdef JMP   // boost.context: pops the return address and jumps
asm(".text\n.globl sw\n.type sw,@function\nsw:\n push %rbp\n push %rbx\n push %r15\n push %r14\n push %r13\n push %r12\n sub $8,%rsp\n stmxcsr (%rsp)\n fnstcw 4(%rsp)\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n ldmxcsr (%rsp)\n fldcw 4(%rsp)\n add $8,%rsp\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n pop %rbx\n pop %rbp\n pop %r8\n jmp *%r8\n.size sw,.-sw\n");
#define EXTRA 1
#else
asm(".text\n.globl sw\n.type sw,@function\nsw:\n push %rbp\n push %rbx\n push %r15\n push %r14\n push %r13\n push %r12\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n pop %rbx\n pop %rbp\n ret\n.size sw,.-sw\n");
#define EXTRA 0
#endif
struct co { void *sp, *home; int id, round, done; char *stack; };
static struct co *queue[N], cos[N]; static int head, tail, live = N;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long sum; static __thread struct co *cur;
__attribute__((noinline)) static struct co *current(void) { asm volatile(""); return cur; }
__attribute__((noinline)) static void yield_co(struct co *co) { sw(&co->sp, co->home); }
__attribute__((noinline)) static int deep(struct co *co, int n) { volatile char pad[n * 8 + 8]; pad[0] = n; if (!n) { yield_co(co); return 1; } int r = deep(co, n - 1) + 1; return r + (pad[0] - n); }
static void body(void) {
  struct co *co = current();
  for (co->round = 0; co->round < ROUNDS; co->round++) __atomic_add_fetch(&sum, deep(co, (co->id + co->round) % 7), __ATOMIC_SEQ_CST);
  co->done = 1; yield_co(co); abort();
}
static void push(struct co *co) { pthread_mutex_lock(&m); queue[tail++ % N] = co; pthread_cond_signal(&c); pthread_mutex_unlock(&m); }
static void make(struct co *co) {
  void **sp = (void **)(co->stack + 65536);
  *--sp = 0; *--sp = 0; *--sp = 0; // return address of body: 0
  sp--; *sp = body; sp -= 6; for (int i = 0; i < 6; i++) sp[i] = 0;
  if (EXTRA) { *--sp = (void *)0x037f00001f80; }
  co->sp = sp;
}
static void *worker(void *arg) {
  void *home;
  for (;;) {
    pthread_mutex_lock(&m); while (head == tail && live) pthread_cond_wait(&c, &m);
    if (!live) { pthread_mutex_unlock(&m); pthread_cond_broadcast(&c); return 0; }
    struct co *co = queue[head++ % N]; pthread_mutex_unlock(&m);
    cur = co; sw(&co->home, co->sp);
    if (co->done) { munmap(co->stack, 65536); pthread_mutex_lock(&m); live--; pthread_mutex_unlock(&m); pthread_cond_broadcast(&c); } else push(co);
  }
}
int main(void) {
  pthread_t t[T];
  for (int i = 0; i < N; i++) { struct co *co = &cos[i]; co->id = i; co->stack = mmap(0, 65536, 3, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0); make(co); push(co); }
  for (int i = 0; i < T; i++) pthread_create(&t[i], 0, worker, 0);
  for (int i = 0; i < T; i++) pthread_join(t[i], 0);
  printf("%ld\n", sum); return 0;
}
