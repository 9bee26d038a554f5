/* What the files of the workload share: system calls without a C library, and the few helpers that
 * every group uses. Structures come from the kernel's own headers (linux-libc-dev). */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <asm/ioctls.h>
#include <asm/poll.h>
#include <asm/siginfo.h>
#include <asm/signal.h>
#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <linux/time_types.h>
#include <linux/uio.h>
#include <linux/wait.h>

typedef unsigned long ulong;
typedef unsigned int uint;
typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

#define NULL ((void *)0)
#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define PAGE 4096UL

/* A system call with any number of arguments; the result is negative for an error. What is not given
 * is 0. */
long syscall6(long number, long a, long b, long c, long d, long e, long f);
long syscall3(long number, long a, long b, long c);
#define SYSCALL3(number, a, b, c, ...) syscall3(number, (long)(a), (long)(b), (long)(c))
#define SYSCALL6(number, a, b, c, d, e, f, ...) \
	syscall6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SEVENTH(a, b, c, d, e, f, g, ...) g
#define KIND(...) \
	SEVENTH(__VA_ARGS__ __VA_OPT__(,) SYSCALL6, SYSCALL6, SYSCALL6, SYSCALL3, SYSCALL3, SYSCALL3, SYSCALL3)
#define NUMBERED(number, ...) \
	KIND(__VA_ARGS__)(number __VA_OPT__(,) __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define S(name, ...) NUMBERED(__NR_##name __VA_OPT__(,) __VA_ARGS__)

/* start.S: the calls whose child goes on with another stack, or with this one. */
long clone_with(ulong flags, void *stack, int *parent, int *child, int (*run)(void *), void *arg);
long vfork_exec(const char *path, char **argv, char **env);
void restore(void);

/* Strings and memory; the compiler calls the first three, too. */
void *memset(void *to, int byte, ulong size);
void *memcpy(void *to, const void *from, ulong size);
int memcmp(const void *a, const void *b, ulong size);
ulong length(const char *text);
int equal(const char *a, const char *b);
int contains(const char *text, const char *part);
char *append(char *to, const char *text);
char *append_number(char *to, ulong number);
ulong number_of(const char *text);

void print(const char *text);
/* The first step of the running group that failed is what the group reports. */
long need(const char *step, long result);
/* A condition instead of a result. */
void expect(const char *step, int is_true);

/* The processor runs for about this many instructions. */
void spin(ulong count);
void sleep_ms(ulong ms);
/* A child is waited for; the result is its status as wait4 gives it. */
int wait_for(long pid);
/* Runs a function in a child that is ended after `ms`; the result is its status. */
int in_child(void (*run)(void), ulong ms);
/* The child with this number is waited for, at most `ms`, and then killed. */
int wait_within(long pid, ulong ms);
_Noreturn void leave(int status);

/* A thread with a stack of its own, and its end. */
struct thread {
	int tid;
	char *stack;
};
long thread_start(struct thread *thread, int (*run)(void *), void *arg);
void thread_join(struct thread *thread);

long open_file(const char *path, int flags);
/* Writes a text to a file that is there. */
long write_file(const char *path, const char *text);
/* Reads a file into a buffer, with a 0 behind it. */
long read_file(const char *path, char *buffer, ulong size);
void *map(ulong size);
void handle(int signal, void (*handler)(int, siginfo_t *, void *), ulong flags);
void ignore(int signal);

/* The groups. */
#define GROUPS(X) \
	X(files) X(directories) X(copying) X(watching) X(pipes) X(polling) X(terminals) X(devices) \
	X(unix_sockets) X(inet_sockets) X(netlink) X(io_uring) X(aio) \
	X(mappings) X(faults) X(exceptions) X(userfaults) \
	X(processes) X(threads) X(programs) X(scheduling) X(ptrace) X(credentials) X(cores) \
	X(signals) X(timers) X(seccomp) X(namespaces) X(mounts) X(cgroups) \
	X(ipc) X(keyrings) X(system) X(bad_arguments) X(proc) X(sysfs) \
	X(perf) X(tracing) X(probes) X(bpf) X(bpf_attached)
#define DECLARE(name) void group_##name(void);
GROUPS(DECLARE)

#endif
