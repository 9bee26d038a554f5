/* What a schedule has to replay besides threads: pipes that are filled in parts, children, vfork,
   execve by a thread that is not the first, signals, sleeping, and a thread that gives way. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char bytes[300000];
static volatile sig_atomic_t signals;
static char *self;

static void count(int signal) {
  (void)signal;
  signals++;
}

static void pass(void) {
  int ends[2], sum = 0, got;
  if (pipe(ends)) exit(1);
  if (fork() == 0) {
    close(ends[1]);
    static char part[30000];
    while ((got = read(ends[0], part, sizeof part)) > 0) {
      sum += got;
      for (volatile int i = 0; i < got / 4; i++);
    }
    printf("read %d\n", sum);
    fflush(stdout);
    _exit(0);
  }
  close(ends[0]);
  if (write(ends[1], bytes, sizeof bytes) != sizeof bytes) exit(1);
  close(ends[1]);
  wait(0);
}

static void *yield(void *arg) {
  for (int i = 0; i < 50; i++) sched_yield();
  return arg;
}

static void *replace(void *arg) {
  execl(self, self, "again", (char *)0);
  return arg;
}

int main(int argc, char **argv) {
  self = argv[0];
  if (argc > 1) {
    puts(argv[1]);
    return 0;
  }
  signal(SIGUSR1, count);
  pass();
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, yield, 0);
  pid_t parent = getpid();
  if (fork() == 0) {
    for (int i = 0; i < 20; i++) {
      struct timespec pause = {0, 1000 * (i % 3)};
      nanosleep(&pause, 0);
      kill(parent, SIGUSR1);
    }
    _exit(0);
  }
  int status;
  while (wait(&status) < 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
  if (vfork() == 0) {
    execl(self, self, "child", (char *)0);
    _exit(1);
  }
  wait(0);
  printf("signals %s\n", signals > 0 ? "came" : "did not come");
  fflush(stdout);
  pthread_create(&threads[0], 0, replace, 0);
  for (;;) pause();
}
