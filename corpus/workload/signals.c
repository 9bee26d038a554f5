/* Signals, timers that send them, and filters of system calls. */
#include "workload.h"
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>

static volatile int caught, count, value;

static void note(int signal, siginfo_t *info, void *context)
{
	(void)context;
	caught = signal;
	value = info->si_int;
	count++;
}

/* Another one comes while it runs. */
static void nested(int signal, siginfo_t *info, void *context)
{
	note(signal, info, context);
	S(kill, S(getpid), SIGUSR2);
}

static long queue(int signal, int number)
{
	siginfo_t info = {0};
	info.si_signo = signal;
	info.si_code = SI_QUEUE;
	info.si_int = number;
	return S(rt_sigqueueinfo, S(getpid), signal, &info);
}

void group_signals(void)
{
	u64 mask = -1UL, old, pending;
	/* On a stack of its own, with one in the other, once, and restarted. */
	stack_t stack = {map(16 * PAGE), 0, 16 * PAGE}, was;
	need("sigaltstack", S(sigaltstack, &stack, NULL));
	handle(SIGUSR1, nested, SA_ONSTACK);
	handle(SIGUSR2, note, SA_RESTART | SA_ONSTACK);
	need("kill", S(kill, S(getpid), SIGUSR1));
	expect("handled", count == 2 && caught == SIGUSR2);
	S(sigaltstack, NULL, &was);
	handle(SIGUSR1, note, SA_RESETHAND | SA_NODEFER);
	S(tkill, S(gettid), SIGUSR1);

	/* Real-time signals are queued, with their values. */
	need("mask", S(rt_sigprocmask, SIG_BLOCK, &mask, &old, 8));
	count = 0;
	for (int i = 0; i < 10; i++) {
		handle(34 + i % 3, note, 0);
		need("queue", queue(34 + i % 3, i));
	}
	S(rt_tgsigqueueinfo, S(getpid), S(gettid), 34, NULL);
	S(rt_sigpending, &pending, 8);
	siginfo_t info;
	struct __kernel_timespec time = {0, 1000000};
	u64 one = 1UL << 33;
	expect("waited", S(rt_sigtimedwait, &one, &info, &time, 8) == 34);
	S(rt_sigprocmask, SIG_SETMASK, &old, NULL, 8);
	expect("queued", count == 9);
	one = 1UL << 50;
	S(rt_sigtimedwait, &one, &info, &time, 8);

	/* A sleep is interrupted, a read goes on, and one is waited for. */
	int pipe[2];
	char byte;
	S(pipe2, pipe, 0);
	long pid = S(fork);
	if (pid == 0) {
		for (int i = 0; i < 3; i++) {
			sleep_ms(1);
			S(kill, S(getppid), i == 1 ? SIGUSR2 : 34);
		}
		S(write, pipe[1], "x", 1);
		leave(0);
	}
	time = (struct __kernel_timespec){0, 50000000};
	expect("interrupted", S(nanosleep, &time, &time) == -EINTR);
	/* Only one of the signals lets a call go on. */
	while (S(read, pipe[0], &byte, 1) == -EINTR)
		;
	mask = 0;
	wait_within(pid, 100);
	pid = S(fork);
	if (pid == 0) {
		sleep_ms(1);
		S(kill, S(getppid), 34);
		leave(0);
	}
	expect("suspended", S(rt_sigsuspend, &mask, 8) == -EINTR);
	wait_within(pid, 100);
	for (int signal = 1; signal <= 64; signal++) {
		/* Each as it ends, stops or ignores. */
		if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU)
			continue;
		pid = S(fork);
		if (pid == 0) {
			u64 limit[2] = {0, 0};
			S(prlimit64, 0, 4, limit, NULL);
			handle(signal, (void *)SIG_DFL, 0);
			S(kill, S(getpid), signal);
			leave(0);
		}
		wait_within(pid, 50);
	}
	/* A frame that cannot be pushed, and one that cannot be restored. */
	pid = S(fork);
	if (pid == 0) {
		stack.ss_sp = (void *)0x1000;
		S(sigaltstack, &stack, NULL);
		handle(SIGUSR1, note, SA_ONSTACK);
		S(kill, S(getpid), SIGUSR1);
		leave(0);
	}
	expect("no stack", (wait_within(pid, 100) & 0x7f) == SIGSEGV);
	pid = S(fork);
	if (pid == 0) {
		asm volatile("mov $16, %%rsp; mov $15, %%eax; syscall" : : : "rax", "rcx", "r11", "memory");
		leave(0);
	}
	expect("no frame", (wait_within(pid, 100) & 0x7f) == SIGSEGV);
}

void group_timers(void)
{
	struct __kernel_timespec time, short_time = {0, 200000};
	struct __kernel_itimerspec soon = {{0, 500000}, {0, 300000}}, old;
	struct {
		ulong interval[2], value[2];
	} interval = {{0, 500}, {0, 500}};
	handle(SIGALRM, note, 0);
	handle(SIGVTALRM, note, 0);
	handle(SIGPROF, note, 0);
	handle(34, note, 0);
	for (int which = 0; which < 3; which++) {
		need("setitimer", S(setitimer, which, &interval, NULL));
		spin(9000000);
		S(getitimer, which, &old);
		static const ulong zero[4];
		S(setitimer, which, zero, NULL);
	}
	expect("expired", count > 0);

	static const int clocks[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11};
	for (ulong i = 0; i < LEN(clocks); i++) {
		S(clock_gettime, clocks[i], &time);
		S(clock_getres, clocks[i], &time);
		/* The processor time of a process that sleeps stands still. */
		if (clocks[i] != 2 && clocks[i] != 3)
			S(clock_nanosleep, clocks[i], 0, &short_time, NULL);
		int timer;
		struct {
			u64 value;
			int signal, notify, thread;
			int pad[12];
		} event = {7, 34, i % 2 ? 0 : 4 /* SIGEV_THREAD_ID */, S(gettid)};
		if (S(timer_create, clocks[i], &event, &timer) < 0)
			continue;
		S(timer_settime, timer, 0, &soon, &old);
		spin(1500000);
		S(timer_gettime, timer, &old);
		S(timer_getoverrun, timer);
		S(timer_delete, timer);
	}
	S(clock_gettime, 1, &time);
	time.tv_nsec += 300000;
	if (time.tv_nsec < 1000000000)
		S(clock_nanosleep, 1, 1 /* absolute */, &time, NULL);
	S(prctl, PR_SET_TIMERSLACK, 1000);
	S(nanosleep, &short_time, NULL);
	ulong day[2];
	S(gettimeofday, day, NULL);
	S(time, NULL);
	u8 adjustment[256];
	memset(adjustment, 0, sizeof(adjustment));
	S(adjtimex, adjustment);
	S(clock_adjtime, 0, adjustment);
	S(clock_gettime, 0, &time);
	S(clock_settime, 0, &time);
	S(alarm, 1);
	S(alarm, 0);
	/* A process of its own has a limit of processor time. */
	long pid = S(fork);
	if (pid == 0) {
		u64 limit[2] = {0, 1};
		handle(24 /* SIGXCPU */, (void *)SIG_DFL, 0);
		S(prlimit64, 0, 0, limit, NULL);
		spin(30000000);
		leave(0);
	}
	wait_within(pid, 200);
}

static long install(struct sock_filter *code, int size, int flags)
{
	struct sock_fprog program = {size, code};
	S(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return S(seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* What getppid gets; everything else is allowed. */
static long filter(u32 action, int flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xc000003e, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return install(code, LEN(code), flags);
}

static void strict(void)
{
	S(prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	S(getppid);
}

static void killed(void)
{
	filter(SECCOMP_RET_KILL_PROCESS, 0);
	S(getppid);
}

void group_seccomp(void)
{
	static const u32 harmless[] = {SECCOMP_RET_LOG, SECCOMP_RET_TRACE};
	handle(31 /* SIGSYS */, note, 0);
	expect("strict", (in_child(strict, 100) & 0x7f) == SIGKILL);
	expect("killed", (in_child(killed, 100) & 0x7f) == 31);
	u32 action = SECCOMP_RET_TRAP;
	S(seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);
	u16 sizes[3];
	S(seccomp, SECCOMP_GET_NOTIF_SIZES, 0, sizes);

	/* Another process answers for the kernel. */
	int pair[2];
	S(socketpair, 1, 1, 0, pair);
	long pid = S(fork);
	if (pid == 0) {
		long listener = need("listener", filter(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER));
		S(dup2, listener, 100);
		S(write, pair[1], "x", 1);
		leave(S(getppid) == 77 ? 0 : 1);
	}
	char byte;
	S(read, pair[0], &byte, 1);
	long pidfd = S(pidfd_open, pid, 0), listener = need("pidfd_getfd", S(pidfd_getfd, pidfd, 100, 0));
	struct seccomp_notif asked = {0};
	if (S(ioctl, listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) >= 0) {
		struct seccomp_notif_resp answer = {asked.id, 77, 0, 0};
		S(ioctl, listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &asked.id);
		S(ioctl, listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	expect("answered", wait_within(pid, 200) == 0);

	for (ulong i = 0; i < LEN(harmless); i++) {
		need("filter", filter(harmless[i], SECCOMP_FILTER_FLAG_LOG));
		S(getppid);
	}
	need("filter", filter(SECCOMP_RET_ERRNO | 5, SECCOMP_FILTER_FLAG_TSYNC));
	expect("error", S(getppid) == -5);
	need("filter", filter(SECCOMP_RET_TRAP, 0));
	S(getppid);
	expect("trap", caught == 31);
}
