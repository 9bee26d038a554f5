#define _GNU_SOURCE
#include <unistd.h>
#include <stdio.h>
#include <sys/wait.h>
#include <spawn.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/syscall.h>
#include <signal.h>
extern char **environ;
__attribute__((noinline)) static int nested(int n, int *w) { volatile char p[64]; p[n & 63] = n; if (n) return nested(n - 1, w) + p[n & 63] - n; *w = getpid(); return 0; }
__attribute__((noinline)) static pid_t vf(int how) {
  volatile int where = 0;
  pid_t p = vfork();
  if (p == 0) { int w; nested(5, &w); where = w; if (how) execl("/bin/true", "true", (char *)0); _exit(3); }
  return p + (where == 0);
}
static int cf(void *a) { int w; nested(7, &w); *(int *)a = w; return 4; }
int main(void) {
  int st, t = 0;
  for (int i = 0; i < 4; i++) { pid_t p = vf(i & 1); waitpid(p, &st, 0); t = t * 7 + WEXITSTATUS(st); }
  pid_t p; char *av[] = {"true", 0}; posix_spawn(&p, "/bin/true", 0, 0, av, environ); waitpid(p, &st, 0); t = t * 7 + WEXITSTATUS(st);
  static int seen; char *stack = malloc(65536);
  p = clone(cf, stack + 65536, CLONE_VM | SIGCHLD, &seen); waitpid(p, &st, 0); t = t * 7 + WEXITSTATUS(st); 
  p = clone(cf, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, &seen); waitpid(p, &st, 0); t = t * 7 + WEXITSTATUS(st); 
  free(stack);
  printf("%d %d\n", t, seen == p); return system("exit 0");
}
