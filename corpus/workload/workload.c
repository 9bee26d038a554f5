/* A first process that uses as much of a kernel as it can, group by group, says of each what became of
 * it, and powers the computer off. Each group runs in a child that is killed if it takes too long, so the
 * program always ends. It is for `unwind-sim verify --kernel`: anywhere but as the first process it does
 * nothing. Here are the list of groups, and what they share. */
#include "workload.h"
#include <linux/reboot.h>

/* How long a group may take, in milliseconds of the kernel's time. */
#define GROUP_MS 4000
#define STACK_SIZE (64 * 1024UL)

static const char *group;
static const char *failed;
static long failed_with;

void *memset(void *to, int byte, ulong size)
{
	void *start = to;
	asm volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(byte) : "memory");
	return start;
}

void *memcpy(void *to, const void *from, ulong size)
{
	void *start = to;
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
	return start;
}

int memcmp(const void *a, const void *b, ulong size)
{
	const u8 *x = a, *y = b;
	for (ulong i = 0; i < size; i++)
		if (x[i] != y[i])
			return x[i] - y[i];
	return 0;
}

ulong length(const char *text)
{
	ulong size = 0;
	while (text[size])
		size++;
	return size;
}

int equal(const char *a, const char *b)
{
	ulong size = length(a);
	return size == length(b) && memcmp(a, b, size) == 0;
}

int contains(const char *text, const char *part)
{
	ulong size = length(part);
	for (; length(text) >= size; text++)
		if (memcmp(text, part, size) == 0)
			return 1;
	return 0;
}

char *append(char *to, const char *text)
{
	ulong size = length(text);
	memcpy(to, text, size + 1);
	return to + size;
}

char *append_number(char *to, ulong number)
{
	char digits[24];
	int count = 0;
	do {
		digits[count++] = '0' + number % 10;
		number /= 10;
	} while (number);
	while (count)
		*to++ = digits[--count];
	*to = 0;
	return to;
}

ulong number_of(const char *text)
{
	ulong number = 0;
	for (; *text >= '0' && *text <= '9'; text++)
		number = 10 * number + (*text - '0');
	return number;
}

void print(const char *text)
{
	S(write, 1, text, length(text));
}

long need(const char *step, long result)
{
	if (result < 0 && !failed) {
		failed = step;
		failed_with = -result;
	}
	return result;
}

void expect(const char *step, int is_true)
{
	if (!is_true && !failed) {
		failed = step;
		failed_with = 0;
	}
}

_Noreturn void leave(int status)
{
	for (;;)
		S(exit_group, status);
}

void spin(ulong count)
{
	for (ulong i = 0; i < count; i += 2)
		asm volatile("");
}

void sleep_ms(ulong ms)
{
	struct __kernel_timespec time = {ms / 1000, ms % 1000 * 1000000};
	S(nanosleep, &time, NULL);
}

int wait_for(long pid)
{
	int status = -1;
	while (S(wait4, pid, &status, __WALL, NULL) == -EINTR)
		;
	return status;
}

int wait_within(long pid, ulong ms)
{
	int status = -1;
	/* Steps of a millisecond cost little: the processor is idle between them. */
	for (ulong waited = 0; waited < ms; waited++) {
		if (S(wait4, pid, &status, __WALL | WNOHANG, NULL) != 0)
			return status;
		sleep_ms(1);
	}
	S(kill, pid, SIGKILL);
	/* What waits uninterruptibly cannot be killed. */
	for (int i = 0; i < 100; i++) {
		if (S(wait4, pid, &status, __WALL | WNOHANG, NULL) != 0)
			return status;
		sleep_ms(1);
	}
	return -1;
}

int in_child(void (*run)(void), ulong ms)
{
	long pid = S(fork);
	if (pid == 0) {
		run();
		leave(0);
	}
	return wait_within(pid, ms);
}

long thread_start(struct thread *thread, int (*run)(void *), void *arg)
{
	thread->stack = map(STACK_SIZE);
	ulong flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		      CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	return clone_with(flags, thread->stack + STACK_SIZE, &thread->tid, &thread->tid, run, arg);
}

void thread_join(struct thread *thread)
{
	for (;;) {
		int tid = *(volatile int *)&thread->tid;
		if (tid == 0)
			break;
		S(futex, &thread->tid, 0 /* FUTEX_WAIT */, tid, NULL);
	}
	S(munmap, thread->stack, STACK_SIZE);
}

long open_file(const char *path, int flags)
{
	return S(openat, AT_FDCWD, path, flags, 0644);
}

long write_file(const char *path, const char *text)
{
	long fd = open_file(path, O_WRONLY | O_NONBLOCK);
	if (fd < 0)
		return fd;
	long done = S(write, fd, text, length(text));
	S(close, fd);
	return done;
}

long read_file(const char *path, char *buffer, ulong size)
{
	buffer[0] = 0;
	long fd = open_file(path, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return fd;
	long done = S(read, fd, buffer, size - 1);
	S(close, fd);
	buffer[done < 0 ? 0 : done] = 0;
	return done;
}

void *map(ulong size)
{
	return (void *)S(mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void handle(int signal, void (*handler)(int, siginfo_t *, void *), ulong flags)
{
	struct sigaction action = {
		.sa_handler = (__sighandler_t)handler,
		.sa_flags = flags | SA_SIGINFO | SA_RESTORER,
		.sa_restorer = restore,
	};
	S(rt_sigaction, signal, &action, NULL, sizeof(sigset_t));
}

void ignore(int signal)
{
	struct sigaction action = {.sa_handler = SIG_IGN};
	S(rt_sigaction, signal, &action, NULL, sizeof(sigset_t));
}

/* Writes a line with one call, so that no other line comes into it. */
static void report(const char *what, long number)
{
	char line[256], *end = line;
	end = append(end, "workload: ");
	end = append(end, group);
	end = append(end, ": ");
	end = append(end, what);
	if (number >= 0)
		end = append_number(end, number);
	append(end, "\n");
	print(line);
}

static void run_group(const char *name, void (*run)(void))
{
	group = name;
	long pid = S(fork);
	if (pid == 0) {
		S(setsid);
		run();
		if (!failed)
			leave(0);
		char text[160], *end = append(text, failed);
		append(end, failed_with ? ": errno " : ": not as expected");
		report(text, failed_with ? failed_with : -1);
		leave(1);
	}

	int status = pid < 0 ? -1 : wait_within(pid, GROUP_MS);
	if (status == 0)
		report("ok", -1);
	else if (status == -1)
		report("does not end", -1);
	else if ((status & 0x7f) == SIGKILL)
		report("did not end in time", -1);
	else if ((status & 0x7f) != 0)
		report("killed by signal ", status & 0x7f);

	/* The group's session may have left processes behind, and orphans are children of this one. */
	S(kill, -pid, SIGKILL);
	while (S(wait4, -1, &status, __WALL | WNOHANG, NULL) > 0)
		;
}

static void mount_all(void)
{
	static const char *const all[][2] = {
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/try"},
		{"devpts", "/dev/pts"}, {"debugfs", "/sys/kernel/debug"},
		{"tracefs", "/sys/kernel/tracing"}, {"bpf", "/sys/fs/bpf"},
	};
	for (ulong i = 0; i < LEN(all); i++) {
		S(mkdir, all[i][1], 0755);
		S(mount, all[i][0], all[i][1], all[i][0], 0, NULL);
	}
	S(chdir, "/try");
	/* Messages go into the log, not onto the console. */
	S(syslog, 8 /* SYSLOG_ACTION_CONSOLE_LEVEL */, NULL, 1);
	/* Addresses that are not hidden, and nothing forbidden: more code runs. */
	write_file("/proc/sys/kernel/kptr_restrict", "0");
	write_file("/proc/sys/kernel/perf_event_paranoid", "-1");
	write_file("/proc/sys/kernel/sysrq", "1");
}

/* What the program is when a group starts it again. */
static int again(const char *how, long *stack)
{
	if (equal(how, "exit"))
		return 42;
	if (equal(how, "core")) {
		/* The kernel's pipe for a core: it is read to its end. */
		static char buffer[PAGE];
		while (S(read, 0, buffer, sizeof(buffer)) > 0)
			;
		return 0;
	}
	/* The interpreter of a script has its argument and its name. */
	return stack[0] == 3 ? 43 : 44;
}

_Noreturn void start(long *stack)
{
	char **argv = (char **)(stack + 1);
	int is_init = equal(argv[0], "/init"), is_first = S(getpid) == 1;
	/* The kernel may give the first process more words: those of its command line that it does not know. */
	if (is_init && !is_first && stack[0] > 1)
		leave(again(argv[1], stack));
	if (!is_init || !is_first) {
		static const char text[] = "workload: this is the first process of a kernel in `unwind-sim "
					   "verify --kernel`, and does nothing elsewhere\n";
		S(write, 2, text, sizeof(text) - 1);
		leave(2);
	}

	mount_all();
	print("workload: begin\n");
#define RUN(name) run_group(#name, group_##name);
	GROUPS(RUN)
	print("workload: end\n");
	S(sync);
	S(reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_POWER_OFF, NULL);
	leave(1);
}
