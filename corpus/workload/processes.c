/* Processes and threads: how they start, wait, are scheduled, traced and end, and what they may do. */
#include "workload.h"
#include <asm/ptrace-abi.h>
#include <linux/capability.h>
#include <linux/elf.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/prctl.h>
#include <linux/ptrace.h>
#include <linux/resource.h>
#include <linux/rseq.h>
#include <linux/sched/types.h>

struct registers {
	ulong r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs,
		flags, rsp, ss, fs_base, gs_base, ds, es, fs, gs;
};

void group_processes(void)
{
	int status;
	u8 info[128];
	struct rusage usage;
	/* Children that end, are killed, stop and go on. */
	long pid = need("fork", S(fork));
	if (pid == 0)
		leave(3);
	need("wait4", S(wait4, pid, &status, 0, &usage));
	expect("status", status == 3 << 8);
	pid = S(fork);
	if (pid == 0)
		for (;;)
			S(pause);
	S(kill, pid, SIGSTOP);
	S(wait4, pid, &status, WUNTRACED, NULL);
	S(waitid, 1 /* P_PID */, pid, info, WSTOPPED | WNOHANG | WNOWAIT, &usage);
	S(kill, pid, SIGCONT);
	S(waitid, 1, pid, info, WCONTINUED, NULL);
	S(tgkill, pid, pid, SIGTERM);
	expect("killed", wait_for(pid) == SIGTERM);

	/* A process by a descriptor. */
	int pidfd = -1;
	struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (ulong)&pidfd, .exit_signal = SIGCHLD};
	pid = need("clone3", S(clone3, &args, sizeof(args)));
	if (pid == 0)
		for (;;)
			S(pause);
	S(pidfd_getfd, pidfd, 1, 0);
	need("pidfd_send_signal", S(pidfd_send_signal, pidfd, SIGKILL, NULL, 0));
	need("waitid", S(waitid, 3 /* P_PIDFD */, pidfd, info, WEXITED, NULL));
	S(kcmp, S(getpid), S(getpid), 0, 0, 1);

	/* A child of a child, which is an orphan then. */
	pid = S(fork);
	if (pid == 0) {
		S(prctl, PR_SET_PDEATHSIG, SIGKILL);
		if (S(fork) == 0) {
			sleep_ms(2);
			leave(0);
		}
		leave(0);
	}
	wait_for(pid);
	S(prctl, PR_SET_CHILD_SUBREAPER, 1);
	pid = S(fork);
	if (pid == 0) {
		if (S(fork) == 0)
			leave(5);
		leave(0);
	}
	wait_for(pid);
	S(wait4, -1, &status, 0, NULL);
	S(setpgid, 0, 0);
	S(getpgid, 0);
	S(getsid, 0);
	S(setsid);

	for (int option = 1; option < 75; option++)
		if (option != PR_SET_SECCOMP && option != PR_SET_MM)
			S(prctl, option, info, 0, 0, 0);
	for (int limit = 0; limit < 16; limit++) {
		u64 both[2];
		S(prlimit64, 0, limit, NULL, both);
		S(prlimit64, 0, limit, both, NULL);
		S(getrlimit, limit, both);
	}
	ulong times[4];
	S(getrusage, 0, &usage);
	S(getrusage, -1, &usage);
	S(times, times);
	S(personality, 0x0040000);
	S(ioprio_set, 1, 0, 2 << 13 | 4);
	S(ioprio_get, 1, 0);
	for (int command = 0; command < 10; command++)
		S(membarrier, 1 << command, 0, 0);
	S(membarrier, 0, 0, 0);
}

static volatile u32 word, other_word;
static volatile int done;
static u64 robust[3];

static int waiter(void *arg)
{
	S(futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL);
	__sync_fetch_and_add(&done, 1);
	return (long)arg;
}

static int locker(void *arg)
{
	(void)arg;
	S(futex, &other_word, FUTEX_LOCK_PI, 0, NULL);
	S(futex, &other_word, FUTEX_UNLOCK_PI);
	__sync_fetch_and_add(&done, 1);
	return 0;
}

void group_threads(void)
{
	struct thread threads[6];
	for (int i = 0; i < 4; i++)
		need("thread", thread_start(&threads[i], waiter, NULL));
	sleep_ms(2);
	/* Some wait somewhere else then. */
	S(futex, &word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1, &other_word, 0);
	word = 1;
	S(futex, &other_word, FUTEX_WAKE_PRIVATE, 9);
	S(futex, &word, FUTEX_WAKE_OP_PRIVATE, 9, 9, &other_word, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_GT, 0));
	S(futex, &word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 1);
	for (int i = 0; i < 4; i++)
		thread_join(&threads[i]);
	expect("woken", done == 4);
	struct __kernel_timespec short_time = {0, 500000};
	S(futex, &word, FUTEX_WAIT, 1, &short_time);
	S(futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 1, &short_time, NULL, 1);

	/* One that has a lock, two that are higher and want it. */
	other_word = 0;
	need("lock", S(futex, &other_word, FUTEX_LOCK_PI, 0, NULL));
	thread_start(&threads[4], locker, NULL);
	thread_start(&threads[5], locker, NULL);
	sleep_ms(2);
	S(futex, &other_word, FUTEX_TRYLOCK_PI);
	need("unlock", S(futex, &other_word, FUTEX_UNLOCK_PI));
	thread_join(&threads[4]);
	thread_join(&threads[5]);
	expect("unlocked", done == 6);
	struct futex_waitv several[2] = {{1, (ulong)&word, 2}, {0, (ulong)&other_word, 2}};
	S(futex_waitv, several, 2, 0, &short_time, 1);

	robust[0] = (ulong)robust;
	S(set_robust_list, robust, 24);
	ulong size;
	void *head;
	S(get_robust_list, 0, &head, &size);
	static struct rseq area __attribute__((aligned(32)));
	need("rseq", S(rseq, &area, 32, 0, 0x53053053));
	/* The kernel fills it in when the task has been switched. */
	sleep_ms(1);
	spin(100000);
	S(rseq, &area, 32, 1, 0x53053053);
	S(set_tid_address, &size);
}

void group_programs(void)
{
	char *argv[] = {"/init", "exit", NULL}, *env[] = {"A=b", NULL};
	long pid = need("vfork", vfork_exec("/init", argv, env));
	expect("vfork", wait_for(pid) == 42 << 8);
	pid = S(fork);
	if (pid == 0) {
		long fd = open_file("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		S(execveat, fd, "", argv, env, 0x1000);
		leave(1);
	}
	expect("execveat", wait_for(pid) == 42 << 8);

	/* A script: the kernel starts its interpreter with its name and the argument. */
	long fd = S(openat, AT_FDCWD, "/try/script", O_WRONLY | O_CREAT, 0755);
	S(write, fd, "#!/init three\n", 14);
	S(close, fd);
	char *script[] = {"/try/script", NULL};
	pid = need("script", vfork_exec("/try/script", script, env));
	expect("script", wait_for(pid) == 43 << 8);
	/* What is not a program, may not be run, is not there, or has too many words. */
	fd = S(openat, AT_FDCWD, "/try/nothing", O_WRONLY | O_CREAT, 0755);
	S(write, fd, "\x7f" "ELF\2\1\1", 7);
	wait_for(vfork_exec("/try/nothing", script, env));
	S(write, fd, "nothing", 7);
	S(close, fd);
	S(execve, "/try/nothing", script, env);
	S(execve, "/try", script, env);
	S(execve, "/missing", script, env);
	S(execve, "/init", (char **)8, env);
	S(chmod, "/try/nothing", 0600);
	S(execve, "/try/nothing", script, env);
	/* The last thread is another program. */
	pid = S(fork);
	if (pid == 0) {
		struct thread thread;
		thread_start(&thread, waiter, NULL);
		sleep_ms(1);
		S(execve, "/init", argv, env);
	}
	expect("execve", wait_within(pid, 300) == 42 << 8);
}

static void busy(void)
{
	for (int i = 0; i < 4; i++) {
		spin(400000);
		S(sched_yield);
	}
}

void group_scheduling(void)
{
	struct sched_attr attributes = {.size = sizeof(attributes)};
	u64 cpus[16];
	struct __kernel_timespec time;
	int priority = 0;
	need("sched_getaffinity", S(sched_getaffinity, 0, sizeof(cpus), cpus));
	need("sched_setaffinity", S(sched_setaffinity, 0, sizeof(cpus), cpus));
	/* Two compete under each policy. */
	for (int policy = 0; policy < 8; policy++) {
		int wanted = policy == 1 || policy == 2 ? 5 : 0;
		long pid = S(fork);
		S(sched_setscheduler, 0, policy, &wanted);
		S(sched_getscheduler, 0);
		S(sched_getparam, 0, &priority);
		S(sched_rr_get_interval, 0, &time);
		busy();
		if (pid == 0)
			leave(0);
		wait_within(pid, 200);
		S(sched_setscheduler, 0, 0, &priority);
	}
	need("sched_getattr", S(sched_getattr, 0, &attributes, sizeof(attributes), 0));
	attributes.sched_policy = 6 /* SCHED_DEADLINE */;
	attributes.sched_runtime = 2000000;
	attributes.sched_deadline = 5000000;
	attributes.sched_period = 10000000;
	S(sched_setattr, 0, &attributes, 0);
	for (int i = 0; i < 4; i++) {
		spin(1500000);
		S(sched_yield);
	}
	attributes.sched_policy = 0;
	S(sched_setattr, 0, &attributes, 0);
	S(setpriority, 0, 0, 5);
	S(getpriority, 0, 0);
	S(setpriority, 1, 0, 5);
	S(sched_get_priority_max, 1);
	S(sched_get_priority_min, 1);
	u32 cpu;
	S(getcpu, &cpu, NULL, NULL);
}

static void traced(void)
{
	S(ptrace, PTRACE_TRACEME);
	S(kill, S(getpid), SIGSTOP);
	for (int i = 0; i < 3; i++)
		S(getppid);
	long pid = S(fork);
	if (pid == 0)
		leave(0);
	S(wait4, pid, NULL, 0, NULL);
	S(kill, S(getpid), SIGUSR1);
	char *argv[] = {"/init", "exit", NULL};
	S(execve, "/init", argv, argv + 2);
}

void group_ptrace(void)
{
	int status;
	struct registers registers;
	static u8 extended[8192];
	long pid = S(fork);
	if (pid == 0) {
		traced();
		leave(1);
	}
	S(wait4, pid, &status, 0, NULL);
	expect("stopped", (status & 0xff) == 0x7f);
	need("SETOPTIONS", S(ptrace, PTRACE_SETOPTIONS, pid, 0, 0x7f | PTRACE_O_EXITKILL));
	need("GETREGS", S(ptrace, PTRACE_GETREGS, pid, 0, &registers));
	need("SETREGS", S(ptrace, PTRACE_SETREGS, pid, 0, &registers));
	ulong old = 0;
	need("PEEKDATA", S(ptrace, PTRACE_PEEKDATA, pid, registers.rsp, &old));
	need("POKEDATA", S(ptrace, PTRACE_POKEDATA, pid, registers.rsp, old));
	S(ptrace, PTRACE_PEEKTEXT, pid, registers.rip, &old);
	S(ptrace, PTRACE_POKETEXT, pid, registers.rip, old);
	S(ptrace, PTRACE_PEEKUSR, pid, 8 * 16, &old);
	S(ptrace, PTRACE_POKEUSR, pid, 848 /* debug register 0 */, registers.rip);
	S(ptrace, PTRACE_POKEUSR, pid, 848 + 7 * 8, 0x1);
	S(ptrace, PTRACE_POKEUSR, pid, 848 + 7 * 8, 0);
	S(ptrace, PTRACE_GETFPREGS, pid, 0, extended);
	S(ptrace, PTRACE_SETFPREGS, pid, 0, extended);
	static const u32 sets[] = {1 /* registers */, 2, 0x201, 0x202, 0x200};
	for (ulong i = 0; i < LEN(sets); i++) {
		struct iovec set = {extended, sizeof(extended)};
		if (S(ptrace, PTRACE_GETREGSET, pid, sets[i], &set) >= 0)
			S(ptrace, PTRACE_SETREGSET, pid, sets[i], &set);
	}
	S(ptrace, PTRACE_GETSIGINFO, pid, 0, extended);
	S(ptrace, PTRACE_GETSIGMASK, pid, 8, extended);
	S(ptrace, PTRACE_SETSIGMASK, pid, 8, extended);
	S(ptrace, PTRACE_GETEVENTMSG, pid, 0, extended);
	for (int i = 0; i < 30; i++) {
		S(ptrace, PTRACE_SINGLESTEP, pid, 0, 0);
		S(wait4, pid, &status, 0, NULL);
	}
	/* Stops at system calls and events up to its end. A child of it is traced as well. */
	S(ptrace, PTRACE_SYSCALL, pid, 0, 0);
	for (int i = 0; i < 200; i++) {
		long stopped = S(wait4, -1, &status, __WALL, NULL);
		if (stopped < 0)
			break;
		if ((status & 0xff) != 0x7f)
			continue;
		S(ptrace, PTRACE_GET_SYSCALL_INFO, stopped, sizeof(extended), extended);
		S(ptrace, PTRACE_GETEVENTMSG, stopped, 0, extended);
		int signal = status >> 8 & 0xff;
		S(ptrace, i % 5 ? PTRACE_SYSCALL : PTRACE_SYSEMU, stopped, 0, signal == SIGUSR2 ? signal : 0);
	}

	/* One that did not ask for it. */
	pid = S(fork);
	if (pid == 0)
		for (;;)
			spin(1000);
	need("SEIZE", S(ptrace, PTRACE_SEIZE, pid, 0, 0));
	need("INTERRUPT", S(ptrace, PTRACE_INTERRUPT, pid, 0, 0));
	S(wait4, pid, &status, __WALL, NULL);
	S(ptrace, PTRACE_LISTEN, pid, 0, 0);
	S(ptrace, PTRACE_INTERRUPT, pid, 0, 0);
	S(wait4, pid, &status, __WALL | WNOHANG, NULL);
	S(ptrace, PTRACE_SINGLEBLOCK, pid, 0, 0);
	S(wait4, pid, &status, __WALL | WNOHANG, NULL);
	S(ptrace, PTRACE_DETACH, pid, 0, 0);
	S(ptrace, PTRACE_ATTACH, pid, 0, 0);
	S(wait4, pid, &status, __WALL, NULL);
	S(ptrace, PTRACE_CONT, pid, 0, 0);
	S(kill, pid, SIGKILL);
	wait_within(pid, 100);
	S(ptrace, PTRACE_ATTACH, S(getpid), 0, 0);
}

void group_credentials(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];
	u32 groups[4] = {1, 2, 3, 4}, ids[3];
	need("capget", S(capget, &header, data));
	data[0].inheritable = 0;
	need("capset", S(capset, &header, data));
	S(prctl, PR_CAPBSET_DROP, 3);
	S(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 5);
	S(prctl, PR_SET_SECUREBITS, 1 << 4);
	need("setgroups", S(setgroups, 4, groups));
	S(getgroups, 4, groups);
	S(setfsuid, 7);
	S(setfsgid, 7);
	S(setregid, 5, 5);
	S(setresgid, 5, 6, 5);
	need("setresuid", S(setresuid, -1, 1000, 0));
	S(getresuid, ids, ids + 1, ids + 2);
	S(getresgid, ids, ids + 1, ids + 2);
	/* Not as root any longer. */
	open_file("/proc/kcore", O_RDONLY);
	S(kill, 1, SIGTERM);
	S(mount, "x", "/try", "tmpfs", 0, NULL);
	S(chown, "/init", 1, 1);
	S(sethostname, "x", 1);
	S(setreuid, 1000, 1000);
	S(setuid, 1000);
	S(setgid, 1000);
	expect("lost", S(setuid, 0) < 0);
	S(landlock_create_ruleset, NULL, 0, 1);
	u64 rights[2] = {0x1fff, 0};
	long rules = S(landlock_create_ruleset, rights, 8, 0);
	struct {
		u64 allowed;
		int fd;
	} __attribute__((packed)) beneath = {4, open_file("/try", 010000000)};
	S(landlock_add_rule, rules, 1, &beneath, 0);
	S(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	S(landlock_restrict_self, rules, 0);
	open_file("/try/file", O_RDWR | O_CREAT);
	open_file("/init", O_RDONLY);
	S(rename, "/try/file", "/try/x/y");
}

static void crash(void)
{
	u64 limit[2] = {-1UL, -1UL};
	S(prlimit64, 0, 4 /* RLIMIT_CORE */, limit, NULL);
	struct thread thread;
	thread_start(&thread, waiter, NULL);
	sleep_ms(1);
	asm volatile("movl $1, 16");
}

void group_cores(void)
{
	struct stat status;
	write_file("/proc/sys/kernel/core_pattern", "/try/core.%e.%s");
	word = 0;
	expect("crash", (in_child(crash, 500) & 0x7f) == SIGSEGV);
	expect("core", S(stat, "/try/core.init.11", &status) == 0 && status.st_size > 4096);
	S(unlink, "/try/core.init.11");
	/* A program gets it. */
	write_file("/proc/sys/kernel/core_pattern", "|/init core");
	in_child(crash, 500);
	write_file("/proc/sys/kernel/core_pattern", "core");
}
