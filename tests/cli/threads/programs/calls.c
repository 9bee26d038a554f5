/* Calls `target` in several threads and processes: from the first thread, from two others, from a
   child, and, as the program given as argument, after execve. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES 400

__attribute__((noinline)) int target(int n) {
  __asm__ volatile("" : "+r"(n));
  return n + 1;
}

__attribute__((noinline)) int deep(int n) {
  int below = n ? deep(n - 1) : target(0);
  __asm__ volatile("" : "+r"(below));
  return below + 1;
}

static void *many(void *arg) {
  for (int i = 0; i < TIMES; i++) deep(6);
  return arg;
}

int main(int argc, char **argv) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, many, 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
  many(0);
  if (fork() == 0) {
    many(0);
    _exit(0);
  }
  wait(0);
  if (argc > 1) {
    if (fork() == 0) {
      execl(argv[1], argv[1], (char *)0);
      _exit(1);
    }
    wait(0);
  }
  return 0;
}
