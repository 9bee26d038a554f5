/*
 * Opens perf events of every kind that has a callchain, lets each of them happen, and powers off. It is
 * the first process of a kernel that `record --kernel` boots: see docs/in-vivo.md.
 *
 *   gcc -Os -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-stack-protector -fno-builtin \
 *       -ffreestanding -nostdlib -static -no-pie events.c -o events
 *
 * It prints, for each kind, how many samples were read from the rings and how many were lost.
 */
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>

#include "init.h"

#define PAGE 4096
#define PAGES 64
#define RECORD_CALLCHAIN_DEFERRED 22
/* Bits of perf_event_attr's flags that older headers lack (Linux 6.19). */
#define DEFER_CALLCHAIN (1UL << 38)
#define DEFER_OUTPUT (1UL << 39)

/* What happens while an event is on. */

static volatile word sink;

/* Faults in the kernel, which copies to a page that is not there yet, and in user space. */
FUNCTION void faults(void)
{
	word length = 8 * PAGE, at;
	char *pages = (char *)call(__NR_mmap, 0, length, 3, 0x22, -1, 0);
	long file = CALL(__NR_open, "/proc/self/maps", 0, 0);

	for (at = 0; at < 4; at++)
		CALL(__NR_read, file, pages + at * PAGE + 8, 64);
	for (; at < 8; at++)
		pages[at * PAGE] = 1;
	CALL(__NR_close, file, 0, 0);
	CALL(__NR_munmap, pages, length, 0);
}

/* System calls that take long enough for a timer. */
FUNCTION void reads(void)
{
	static char text[PAGE];
	int round;

	for (round = 0; round < 40; round++) {
		long file = CALL(__NR_open, "/proc/self/smaps", 0, 0);

		while (CALL(__NR_read, file, text, sizeof(text)) > 0)
			;
		CALL(__NR_close, file, 0, 0);
	}
}

FUNCTION void sleeps(void)
{
	long time[2] = { 0, 100000 };
	int round;

	for (round = 0; round < 10; round++)
		CALL(__NR_nanosleep, time, 0, 0);
}

/* A child that writes to a pipe, and ends. */
FUNCTION void forks(void)
{
	int ends[2];
	char byte = 0;
	long child;

	CALL(__NR_pipe, ends, 0, 0);
	child = CALL(__NR_fork, 0, 0, 0);
	if (!child) {
		CALL(__NR_write, ends[1], &byte, 1);
		CALL(__NR_exit, 0, 0, 0);
	}
	CALL(__NR_read, ends[0], &byte, 1);
	call(__NR_wait4, child, 0, 0, 0, 0, 0);
	CALL(__NR_close, ends[0], 0, 0);
	CALL(__NR_close, ends[1], 0, 0);
}

FUNCTION void works(void)
{
	faults();
	reads();
	sleeps();
	forks();
	sink++;
}

FUNCTION void works_inside(void)
{
	works();
	sink++;
}

/* Rings. */

static void count(const char *kind, char *ring)
{
	struct perf_event_mmap_page *head = (void *)ring;
	word at = head->data_tail, end = head->data_head, size = PAGES * PAGE;
	char *data = ring + PAGE;
	long samples = 0, lost = 0, deferred = 0;

	while (at < end) {
		struct perf_event_header *record = (void *)(data + at % size);

		samples += record->type == PERF_RECORD_SAMPLE;
		deferred += record->type == RECORD_CALLCHAIN_DEFERRED;
		if (record->type == PERF_RECORD_LOST)
			lost += *(word *)(data + (at + 16) % size);
		at += record->size;
	}
	head->data_tail = end;
	print(kind);
	print(": ");
	print_number(samples);
	print(" samples, ");
	print_number(lost);
	print(" lost");
	if (deferred) {
		print(", ");
		print_number(deferred);
		print(" deferred");
	}
	print("\n");
}

static void clear(struct perf_event_attr *attr)
{
	fill(attr, 0, sizeof(*attr));
	attr->size = sizeof(*attr);
	attr->sample_period = 1;
	attr->sample_type = PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_IP | PERF_SAMPLE_TID;
	attr->disabled = 1;
}

/* The word of the attribute with its flags. */
static word *flags_of(struct perf_event_attr *attr)
{
	return (word *)&attr->read_format + 1;
}

static void happens(const char *kind, struct perf_event_attr *attr, long program)
{
	word length = (PAGES + 1) * PAGE;
	long event = call(__NR_perf_event_open, (word)attr, 0, -1, -1, 0, 0);
	char *ring;

	if (event < 0) {
		print(kind);
		print(": perf_event_open: ");
		print_number(event);
		print("\n");
		return;
	}
	ring = (char *)call(__NR_mmap, 0, length, 3, 1, event, 0);
	if (program >= 0 && CALL(__NR_ioctl, event, PERF_EVENT_IOC_SET_BPF, program) < 0)
		print("PERF_EVENT_IOC_SET_BPF failed\n");
	CALL(__NR_ioctl, event, PERF_EVENT_IOC_ENABLE, 0);
	works_inside();
	CALL(__NR_ioctl, event, PERF_EVENT_IOC_DISABLE, 0);
	count(kind, ring);
	CALL(__NR_munmap, ring, length, 0);
	CALL(__NR_close, event, 0, 0);
}

/*
 * The same in a child that is over, or becomes another program, before it returns to user space. Another child
 * competes with it, so that it is preempted, too. Nobody reads its ring.
 */
static void leaves(struct perf_event_attr *attr, int executes)
{
	long child = CALL(__NR_fork, 0, 0, 0), other;

	if (!child) {
		static char *words[] = { "/init", 0 };
		long event = call(__NR_perf_event_open, (word)attr, 0, -1, -1, 0, 0);

		call(__NR_mmap, 0, (PAGES + 1) * PAGE, 3, 1, event, 0);
		CALL(__NR_ioctl, event, PERF_EVENT_IOC_ENABLE, 0);
		reads();
		if (executes)
			CALL(__NR_execve, words[0], words, 0);
		CALL(__NR_exit, 0, 0, 0);
	}
	other = CALL(__NR_fork, 0, 0, 0);
	if (!other) {
		reads();
		CALL(__NR_exit, 0, 0, 0);
	}
	call(__NR_wait4, child, 0, 0, 0, 0, 0);
	call(__NR_wait4, other, 0, 0, 0, 0, 0);
}

static void software(const char *kind, word config, word period, word flags, long program)
{
	struct perf_event_attr attr;

	clear(&attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = config;
	attr.sample_period = period;
	/* With a callchain of the event, a program's helper takes that one. */
	if (program >= 0)
		attr.sample_type &= ~PERF_SAMPLE_CALLCHAIN;
	*flags_of(&attr) |= flags;
	happens(kind, &attr, program);
}

static void tracepoint(const char *kind, const char *path, word period, word flags, long program)
{
	struct perf_event_attr attr;

	clear(&attr);
	attr.type = PERF_TYPE_TRACEPOINT;
	attr.config = number_in(path);
	attr.sample_period = period;
	*flags_of(&attr) |= flags;
	happens(kind, &attr, -1);
}

static void kprobe(const char *kind, const char *function, word offset, word config, long program)
{
	struct perf_event_attr attr;

	clear(&attr);
	attr.type = number_in("/sys/bus/event_source/devices/kprobe/type");
	attr.config = config;
	attr.config1 = (word)function;
	attr.config2 = offset;
	happens(kind, &attr, program);
}

/* Programs: their stacks go to a map, and to the program's own memory. */

static long bpf(int command, union bpf_attr *attr)
{
	return CALL(__NR_bpf, command, attr, sizeof(*attr));
}

static long stack_map(void)
{
	union bpf_attr attr;

	fill(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_STACK_TRACE;
	attr.key_size = 4;
	attr.value_size = 127 * 8;
	attr.max_entries = 4096;
	return bpf(BPF_MAP_CREATE, &attr);
}

/* bpf_get_stackid(context, map, 0); bpf_get_stack(context, 128 bytes, 128, 0); the sample is kept. */
static long program(int type)
{
	long map = stack_map();
	struct bpf_insn code[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0 },
		{ BPF_LD | BPF_DW | BPF_IMM, 2, BPF_PSEUDO_MAP_FD, 0, map },
		{ 0, 0, 0, 0, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_stackid },
		{ BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -128 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 128 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_stack },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	union bpf_attr attr;
	long loaded;

	fill(&attr, 0, sizeof(attr));
	attr.prog_type = type;
	attr.insns = (word)code;
	attr.insn_cnt = sizeof(code) / sizeof(*code);
	attr.license = (word) "GPL";
	loaded = bpf(BPF_PROG_LOAD, &attr);
	if (map < 0 || loaded < 0) {
		print("bpf: ");
		print_number(map < 0 ? map : loaded);
		print("\n");
	}
	return loaded;
}

#define EVENTS "/sys/kernel/tracing/events/"

int main(void)
{
	int execs;

	/* The program that a child has become. */
	if (CALL(__NR_getpid, 0, 0, 0) != 1) {
		faults();
		return 0;
	}
	/* Long enough in user mode for `record --from-init` to see it. */
	for (sink = 0; sink < 20000; sink++)
		;
	call(__NR_mount, (word) "proc", (word) "/proc", (word) "proc", 0, 0, 0);
	call(__NR_mount, (word) "sysfs", (word) "/sys", (word) "sysfs", 0, 0, 0);
	call(__NR_mount, (word) "tracefs", (word) "/sys/kernel/tracing", (word) "tracefs", 0, 0, 0);

	/* Hardware registers, of an interrupt and of an exception. */
	software("cpu-clock", PERF_COUNT_SW_CPU_CLOCK, 20000, 0, -1);
	software("page-faults", PERF_COUNT_SW_PAGE_FAULTS, 1, 0, -1);
	/* Made-up registers. */
	software("context-switches", PERF_COUNT_SW_CONTEXT_SWITCHES, 1, 0, -1);
	tracepoint("sched:sched_switch", EVENTS "sched/sched_switch/id", 1, 0, -1);
	tracepoint("raw_syscalls:sys_enter", EVENTS "raw_syscalls/sys_enter/id", 4, 0, -1);
	tracepoint("kmem:mm_page_alloc", EVENTS "kmem/mm_page_alloc/id", 1, 0, -1);
	tracepoint("sched:sched_wakeup", EVENTS "sched/sched_wakeup/id", 1, 0, -1);
	/* Registers of probes: at a function's entry, inside it, and when it returns. */
	kprobe("kprobe", "vfs_read", 0, 0, -1);
	kprobe("kprobe, inside", "vfs_read", 11, 0, -1);
	kprobe("kretprobe", "vfs_read", 0, 1, -1);
	/* Programs of each kind of event. */
	software("cpu-clock, BPF", PERF_COUNT_SW_CPU_CLOCK, 100000, 0,
		 program(BPF_PROG_TYPE_PERF_EVENT));
	tracepoint("kmem:mm_page_alloc, BPF", EVENTS "kmem/mm_page_alloc/id", 1, 0,
		   program(BPF_PROG_TYPE_TRACEPOINT));
	kprobe("kprobe, BPF", "vfs_open", 0, 0, program(BPF_PROG_TYPE_KPROBE));
	/* Callchains of user space that are walked later (Linux 6.19). */
	software("cpu-clock, deferred", PERF_COUNT_SW_CPU_CLOCK, 20000,
		 DEFER_CALLCHAIN | DEFER_OUTPUT, -1);
	tracepoint("kmem:mm_page_alloc, deferred", EVENTS "kmem/mm_page_alloc/id", 1,
		   DEFER_CALLCHAIN | DEFER_OUTPUT, -1);

	for (execs = 0; execs < 2; execs++) {
		struct perf_event_attr attr;

		clear(&attr);
		*flags_of(&attr) |= DEFER_CALLCHAIN | DEFER_OUTPUT;
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
		attr.sample_period = 20000;
		leaves(&attr, execs);
		attr.type = PERF_TYPE_TRACEPOINT;
		attr.config = number_in(EVENTS "kmem/mm_page_alloc/id");
		attr.sample_period = 1;
		leaves(&attr, execs);
	}

	CALL(__NR_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_POWER_OFF);
	return 0;
}
