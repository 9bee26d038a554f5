/*
 * Lets performance counters interrupt a kernel and a program, and powers off. It is the first process of a kernel
 * that is booted with `--pmu`: see docs/in-vivo.md.
 *
 *   gcc -Os -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-stack-protector -fno-builtin \
 *       -ffreestanding -nostdlib -static -no-pie counters.c -o counters
 *
 * First an NMI comes every so many instructions of the kernel, in entry code, too. Then the call stacks of the last
 * branch records (LBR) are read of a program that runs beside another one, by an event of its own and by one of the
 * whole system. It prints how many samples there were, and how many calls each had.
 */
#include <linux/perf_event.h>
#include <linux/reboot.h>

#include "init.h"

#define PAGE 4096
#define PAGES 256
#define SIZE (PAGES * PAGE)

static volatile word sink;

/* What the kernel is asked for while it is counted: system calls, page faults, and switches to another task. */

FUNCTION static void faults(void)
{
	word length = 8 * PAGE, at;
	char *pages = (char *)call(__NR_mmap, 0, length, 3, 0x22, -1, 0);

	for (at = 0; at < length; at += PAGE)
		pages[at] = 1;
	CALL(__NR_munmap, pages, length, 0);
}

FUNCTION static void calls(void)
{
	static char text[PAGE];
	long file = CALL(__NR_open, "/proc/self/maps", 0, 0);

	CALL(__NR_read, file, text, sizeof(text));
	CALL(__NR_close, file, 0, 0);
	CALL(__NR_getppid, 0, 0, 0);
}

FUNCTION static void forks(void)
{
	long child = CALL(__NR_fork, 0, 0, 0);

	if (!child)
		CALL(__NR_exit, 0, 0, 0);
	call(__NR_wait4, child, 0, 0, 0, 0, 0);
}

FUNCTION static void works(void)
{
	int round;

	for (round = 0; round < 200; round++) {
		faults();
		calls();
		if (round % 10 == 0)
			forks();
	}
	sink++;
}

/* A program whose functions do most of their work in the innermost one. */

FUNCTION static void f3(int round)
{
	int turn;

	for (turn = 0; turn < 3000; turn++)
		sink++;
	/* Another task runs in between. */
	if (round % 16 == 7)
		CALL(__NR_sched_yield, 0, 0, 0);
	for (turn = 0; turn < 3000; turn++)
		sink++;
}

FUNCTION static void f2(int round)
{
	int turn;

	for (turn = 0; turn < 10; turn++)
		f3(round * 10 + turn);
	sink++;
}

FUNCTION static void f1(int round)
{
	int turn;

	for (turn = 0; turn < 5; turn++)
		f2(round * 5 + turn);
	sink++;
}

FUNCTION static void chain(void)
{
	int turn;

	for (turn = 0; turn < 6; turn++)
		f1(turn);
	sink++;
}

/* The one that runs in between. */
FUNCTION static void spins(void)
{
	int turn;

	for (turn = 0; turn < 100; turn++)
		sink++;
	CALL(__NR_sched_yield, 0, 0, 0);
}

/* Rings. */

static long opened(struct perf_event_attr *attr, long task, long processor)
{
	return call(__NR_perf_event_open, (word)attr, task, processor, -1, 0, 0);
}

static char *mapped(long event)
{
	return (char *)call(__NR_mmap, 0, SIZE + PAGE, 3, 1, event, 0);
}

/* A word of the ring's data. */
static word at(char *ring, word place)
{
	return *(word *)(ring + PAGE + place % SIZE);
}

#define LENGTHS 8

/* Samples of a task, by the number of their branch records; 0 for those of all tasks, which have none. */
static void count(const char *name, char *ring, unsigned int task)
{
	struct perf_event_mmap_page *head = (void *)ring;
	word place = head->data_tail, end = head->data_head, lengths[LENGTHS] = { 0 };
	long samples = 0, others = 0, lost = 0, throttled = 0, outside = 0, length;

	while (place < end) {
		word record = at(ring, place);
		unsigned int type = record;

		if (type == PERF_RECORD_LOST)
			lost += at(ring, place + 16);
		throttled += type == PERF_RECORD_THROTTLE;
		if (type == PERF_RECORD_SAMPLE && task && at(ring, place + 16) >> 32 != task) {
			others++;
		} else if (type == PERF_RECORD_SAMPLE) {
			samples++;
			/* The last instruction of the kernel before user mode, where the NMI then came. */
			outside += !task && (long)at(ring, place + 8) > 0;
			/* Behind the address and the task. */
			length = task ? at(ring, place + 24) : 0;
			lengths[length < LENGTHS ? length : LENGTHS - 1]++;
		}
		place += record >> 48;
	}
	head->data_tail = end;
	print("counters: ");
	print(name);
	print(": ");
	print_number(samples);
	print(" samples, ");
	print_number(lost);
	print(" lost");
	for (length = 0; task && length < LENGTHS; length++)
		if (lengths[length]) {
			print(", ");
			print_number(lengths[length]);
			print(" with ");
			print_number(length);
		}
	if (task && others) {
		print(", ");
		print_number(others);
		print(" of other tasks");
	}
	if (outside) {
		print(", in user mode ");
		print_number(outside);
	}
	if (throttled) {
		print(", throttled ");
		print_number(throttled);
	}
	print("\n");
}

static void clear(struct perf_event_attr *attr, word period)
{
	char *byte = (void *)attr;
	word number;

	for (number = 0; number < sizeof(*attr); number++)
		byte[number] = 0;
	attr->size = sizeof(*attr);
	attr->type = PERF_TYPE_HARDWARE;
	attr->config = PERF_COUNT_HW_INSTRUCTIONS;
	attr->sample_period = period;
	attr->disabled = 1;
}

/* Whether an event was opened; says so if not. */
static int is_open(const char *name, long event)
{
	if (event >= 0)
		return 1;
	print("counters: ");
	print(name);
	print(": perf_event_open: ");
	print_number(event);
	print("\n");
	return 0;
}

static void kernel_stacks(void)
{
	struct perf_event_attr attr;
	long event;
	char *ring;

	clear(&attr, 4999);
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN;
	attr.exclude_user = 1;
	event = opened(&attr, 0, -1);
	if (!is_open("kernel", event))
		return;
	ring = mapped(event);
	CALL(__NR_ioctl, event, PERF_EVENT_IOC_ENABLE, 0);
	works();
	CALL(__NR_ioctl, event, PERF_EVENT_IOC_DISABLE, 0);
	count("kernel", ring, 0);
	CALL(__NR_close, event, 0, 0);
}

/* The call stacks of `chain` in a child, beside another one. */
static void call_stacks(const char *name, int is_system_wide)
{
	struct perf_event_attr attr;
	int start[2];
	char byte = 0, *ring;
	long child, other, event;

	CALL(__NR_pipe, start, 0, 0);
	child = CALL(__NR_fork, 0, 0, 0);
	if (!child) {
		CALL(__NR_read, start[0], &byte, 1);
		chain();
		CALL(__NR_exit, 0, 0, 0);
	}
	other = CALL(__NR_fork, 0, 0, 0);
	if (!other)
		for (;;)
			spins();

	clear(&attr, 1511);
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_BRANCH_STACK;
	attr.branch_sample_type = PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_CALL_STACK;
	attr.exclude_kernel = 1;
	event = is_system_wide ? opened(&attr, -1, 0) : opened(&attr, child, -1);
	if (is_open(name, event)) {
		ring = mapped(event);
		CALL(__NR_ioctl, event, PERF_EVENT_IOC_ENABLE, 0);
		CALL(__NR_write, start[1], &byte, 1);
		call(__NR_wait4, child, 0, 0, 0, 0, 0);
		CALL(__NR_ioctl, event, PERF_EVENT_IOC_DISABLE, 0);
		count(name, ring, child);
		CALL(__NR_close, event, 0, 0);
	}
	CALL(__NR_kill, child, 9, 0);
	CALL(__NR_kill, other, 9, 0);
	call(__NR_wait4, other, 0, 0, 0, 0, 0);
}

static void set(const char *path, const char *value)
{
	long file = CALL(__NR_open, path, 1, 0);
	word length = 0;

	while (value[length])
		length++;
	CALL(__NR_write, file, value, length);
	CALL(__NR_close, file, 0, 0);
}

int main(void)
{
	/* Long enough in user mode for `record --from-init` to see it. */
	for (sink = 0; sink < 20000; sink++)
		;
	call(__NR_mount, (word) "proc", (word) "/proc", (word) "proc", 0, 0, 0);
	/* So that no event is throttled. The rate cannot be set once the share of time has no limit. */
	set("/proc/sys/kernel/perf_event_max_sample_rate", "2000000");
	set("/proc/sys/kernel/perf_cpu_time_max_percent", "0");

	kernel_stacks();
	call_stacks("branches of the task", 0);
	call_stacks("branches of the system", 1);

	CALL(__NR_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_POWER_OFF);
	return 0;
}
