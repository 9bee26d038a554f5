/* Everybody waits for what cannot happen. Prints what the test needs to know. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t inherits;
static pthread_barrier_t both;

__attribute__((noinline)) static void *take(pthread_mutex_t *own, pthread_mutex_t *other) {
  pthread_mutex_lock(own);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(other);
  puts("never");
  return 0;
}

static void *crosses(void *arg) {
  (void)arg;
  prctl(PR_SET_NAME, "crosses");
  return take(&second, &first);
}

static void *wants(void *arg) {
  (void)arg;
  pthread_mutex_lock(&inherits);
  return 0;
}

static void *joins(void *arg) {
  pthread_join(*(pthread_t *)arg, 0);
  return 0;
}

static void *waits(void *arg) {
  (void)arg;
  wait(0);
  return 0;
}

static void *handles(void *arg) {
  (void)arg;
  sigset_t none;
  sigemptyset(&none);
  sigsuspend(&none);
  return 0;
}

int main(void) {
#ifdef __GLIBC__
  puts("glibc");
#endif
  char name[] = "/tmp/locked-XXXXXX";
  int ends[2], others[2], held = mkstemp(name);
  if (pipe(ends) || pipe(others)) return 1;
  if (fork() == 0) {
    char byte;
    close(others[1]);
    /* It could write into the pipe itself. */
    if (read(ends[0], &byte, 1) < 0) return 1;
    _exit(0);
  }
  if (fork() == 0) {
    close(ends[1]);
    struct pollfd polled[] = {{others[0], POLLIN, 0}, {ends[0], POLLIN, 0}};
    poll(polled, 2, -1);
    _exit(0);
  }
  if (flock(held, LOCK_EX)) return 1;
  if (fork() == 0) {
    int again = open(name, O_RDWR);
    flock(again, LOCK_SH);
    _exit(0);
  }
  struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
  if (fcntl(held, F_SETLK, &range)) return 1;
  if (fork() == 0) {
    range.l_len = 1;
    fcntl(held, F_SETLKW, &range);
    _exit(0);
  }
  if (fork() == 0) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {0, -1, 0};
    semop(set, &take, 1);
    _exit(0);
  }
  if (fork() == 0) {
    char message[16];
    msgrcv(msgget(IPC_PRIVATE, 0600), message, 8, 0, 0);
    _exit(0);
  }
  if (fork() == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  close(others[0]);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(&inherits, &attributes);
  pthread_mutex_lock(&inherits);
  pthread_barrier_init(&both, 0, 2);
  fflush(stdout);
  pthread_t crossing, thread;
  pthread_create(&crossing, 0, crosses, 0);
  pthread_create(&thread, 0, wants, 0);
  pthread_create(&thread, 0, joins, &crossing);
  pthread_create(&thread, 0, waits, 0);
  pthread_create(&thread, 0, handles, 0);
  take(&first, &second);
  return 0;
}
