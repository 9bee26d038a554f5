/*
 * Lets a kernel walk its stacks in every other way than for perf: for /proc/PID/stack, for a tracer, and on its
 * console. It is the first process of a kernel that `record --kernel` boots: see docs/in-vivo.md.
 *
 *   gcc -Os -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-stack-protector -fno-builtin \
 *       -ffreestanding -nostdlib -static -no-pie traces.c -o traces
 *
 * It ends with a panic.
 */
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>

#include "init.h"

#define PAGE 4096
#define TRACING "/sys/kernel/tracing/"

static void text_to(const char *path, const char *text)
{
	long file = CALL(__NR_open, path, 1, 0);
	word length = 0;

	while (text[length])
		length++;
	if (file < 0 || CALL(__NR_write, file, text, length) < 0) {
		print(path);
		print(" cannot be written\n");
	}
	CALL(__NR_close, file, 0, 0);
}

static long lines_of(const char *path)
{
	static char text[PAGE];
	long file = CALL(__NR_open, path, 0, 0), length, lines = 0, at;

	while (file >= 0 && (length = CALL(__NR_read, file, text, PAGE)) > 0)
		for (at = 0; at < length; at++)
			lines += text[at] == '\n';
	CALL(__NR_close, file, 0, 0);
	return lines;
}

/* Lines of /proc/NUMBER/stack. */
static long stack_of(long number)
{
	char path[32] = "/proc/", digits[8];
	int count = 0, at = 6;
	const char *end = "/stack";

	do
		digits[count++] = '0' + number % 10;
	while (number /= 10);
	while (count)
		path[at++] = digits[--count];
	while ((path[at++] = *end++))
		;
	return lines_of(path);
}

static void pause_for(long seconds, long nanoseconds)
{
	long time[2] = { seconds, nanoseconds };

	CALL(__NR_nanosleep, time, 0, 0);
}

/* Children that sleep in different ways. */
FUNCTION long sleeps(void)
{
	long child = CALL(__NR_fork, 0, 0, 0);

	if (!child)
		for (;;)
			pause_for(1000, 0);
	return child;
}

FUNCTION long reads(void)
{
	int ends[2];
	char byte;
	long child;

	CALL(__NR_pipe, ends, 0, 0);
	child = CALL(__NR_fork, 0, 0, 0);
	if (!child) {
		CALL(__NR_read, ends[0], &byte, 1);
		CALL(__NR_exit, 0, 0, 0);
	}
	return child;
}

FUNCTION long waits(void)
{
	long child = CALL(__NR_fork, 0, 0, 0);

	if (!child) {
		sleeps();
		call(__NR_wait4, -1UL, 0, 0, 0, 0, 0);
		CALL(__NR_exit, 0, 0, 0);
	}
	return child;
}

/*
 * A child writes to a pipe from a page that nobody fills: it holds the pipe's mutex. Another one waits for that
 * without being interruptible, longer than the kernel finds right.
 */
FUNCTION void hangs(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *page = (char *)call(__NR_mmap, 0, PAGE, 3, 0x22, -1, 0);
	long fault = CALL(__NR_userfaultfd, 0, 0, 0);
	int ends[2], round;

	range.range.start = (word)page;
	range.range.len = PAGE;
	CALL(__NR_pipe, ends, 0, 0);
	if (fault < 0 || CALL(__NR_ioctl, fault, UFFDIO_API, &api) < 0)
		print("userfaultfd failed\n");
	text_to("/proc/sys/kernel/hung_task_timeout_secs", "1");
	for (round = 0; round < 2; round++) {
		/* A thread that shares memory: the registered page stays so. */
		static char stacks[2][PAGE] __attribute__((aligned(16)));
		char *stack = stacks[round] + PAGE - 16;
		long child;

		if (!round && CALL(__NR_ioctl, fault, UFFDIO_REGISTER, &range) < 0)
			print("UFFDIO_REGISTER failed\n");
		/* CLONE_VM | CLONE_FILES | SIGCHLD, with the child's loop in assembly: its stack is empty. */
		__asm__ volatile("syscall\n\t"
				 "test %%rax, %%rax\n\t"
				 "jnz 1f\n\t"
				 "mov %4, %%rdi\n\t"
				 "mov %5, %%rsi\n\t"
				 "mov $1, %%edx\n\t"
				 "mov $1, %%eax\n\t"
				 "syscall\n\t"
				 "mov $60, %%eax\n\t"
				 "syscall\n\t"
				 "1:"
				 : "=a"(child)
				 : "a"((long)__NR_clone), "D"(0x511UL), "S"(stack), "r"((word)ends[1]),
				   "r"(page)
				 : "rcx", "r11", "rdx", "memory");
		pause_for(0, 10000000);
	}
	pause_for(4, 0);
	text_to("/proc/sys/kernel/hung_task_timeout_secs", "0");
}

/* A child that takes all memory. */
FUNCTION void takes(void)
{
	long child = CALL(__NR_fork, 0, 0, 0);

	if (!child) {
		word length = 1UL << 32, at;
		char *pages;

		text_to("/proc/self/oom_score_adj", "1000");
		pages = (char *)call(__NR_mmap, 0, length, 3, 0x4022, -1, 0);
		for (at = 0; at < length; at += PAGE)
			pages[at] = 1;
		CALL(__NR_exit, 0, 0, 0);
	}
	call(__NR_wait4, child, 0, 0, 0, 0, 0);
}

int main(void)
{
	volatile word spin;
	long children[3], number, lines = 0, count = 0;

	/* Long enough in user mode for `record --from-init` to see it. */
	for (spin = 0; spin < 20000; spin++)
		;
	call(__NR_mount, (word) "proc", (word) "/proc", (word) "proc", 0, 0, 0);
	call(__NR_mount, (word) "sysfs", (word) "/sys", (word) "sysfs", 0, 0, 0);
	call(__NR_mount, (word) "tracefs", (word) TRACING, (word) "tracefs", 0, 0, 0);
	/* All messages go to the console. */
	CALL(__NR_syslog, 8, 0, 8);

	children[0] = sleeps();
	children[1] = reads();
	children[2] = waits();
	pause_for(0, 1000000);

	/* Its own, its children's, the kernel's threads'. */
	lines = lines_of("/proc/self/stack");
	for (number = 0; number < 3; number++)
		lines += stack_of(children[number]);
	for (number = 2; number < 60; number++) {
		long found = stack_of(number);

		lines += found;
		count += found > 0;
	}
	print("/proc/PID/stack: ");
	print_number(lines);
	print(" lines, ");
	print_number(count);
	print(" tasks\n");

	/* A tracer that stores the stacks of an event, of user space, and of a probe with its registers. */
	text_to(TRACING "options/stacktrace", "1");
	text_to(TRACING "options/userstacktrace", "1");
	text_to(TRACING "kprobe_events", "p:probe vfs_read");
	text_to(TRACING "events/kprobes/probe/enable", "1");
	text_to(TRACING "events/sched/sched_switch/enable", "1");
	text_to(TRACING "events/timer/hrtimer_expire_entry/enable", "1");
	for (number = 0; number < 5; number++)
		pause_for(0, 5000000);
	lines_of("/proc/self/maps");
	text_to(TRACING "events/enable", "0");
	text_to(TRACING "options/stacktrace", "0");

	/* On the console: the processor's, the blocked tasks', all tasks'. */
	text_to("/proc/sysrq-trigger", "l");
	text_to("/proc/sysrq-trigger", "w");
	text_to("/proc/sysrq-trigger", "t");
	hangs();
	takes();
	text_to("/proc/sysrq-trigger", "c");
	return 0;
}
