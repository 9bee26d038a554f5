/*
 * Makes the callchains of corpus/kernel/6.12-callchains.bin: events and BPF helpers that ask
 * get_perf_callchain for different things, in functions whose return addresses return probes took.
 *
 *   gcc -O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls -static -no-pie callchains.c -o init
 *
 * It is the only program of a machine, /init of an initial RAM disk with empty folders proc, sys and
 * dev. When it has written "ready", the machine is recorded (docs/captures.md):
 *
 *   unwind-sim record --engine gdb ./gdb --kernel vmlinuz --at get_perf_callchain --max-samples 40
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))
#define TRACEPOINT "/sys/kernel/tracing/events/kmem/mm_page_alloc/id"

extern char __executable_start;
static volatile int sink;
static int sampled = -1;

/* Faults once, while the event that is tried is on. */
FUNCTION int leaf(int n)
{
	volatile char *page = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ioctl(sampled, PERF_EVENT_IOC_ENABLE, 0);
	page[0] = 1;
	ioctl(sampled, PERF_EVENT_IOC_DISABLE, 0);
	munmap((void *)page, 4096);
	sink++;
	return n + 1;
}

FUNCTION int middle(int n)
{
	int result = leaf(n);

	sink++;
	return result + 1;
}

FUNCTION int recursion(int n)
{
	int result = n ? recursion(n - 1) : middle(n);

	sink++;
	return result + 1;
}

FUNCTION int outer(int n)
{
	int result = recursion(n);

	sink++;
	return result + 1;
}

static int open_event(struct perf_event_attr *attr)
{
	int event;

	attr->size = sizeof(*attr);
	event = syscall(SYS_perf_event_open, attr, 0, -1, -1, 0);
	if (event < 0)
		perror("perf_event_open");
	return event;
}

static int number_in(const char *path)
{
	char text[64] = "";
	int file = open(path, O_RDONLY);

	if (file < 0 || read(file, text, sizeof(text) - 1) < 0)
		perror(path);
	close(file);
	return atoi(text);
}

static void return_probe(int (*function)(int))
{
	struct perf_event_attr attr = {
		.type = number_in("/sys/bus/event_source/devices/uprobe/type"),
		.config = 1,
		.uprobe_path = (unsigned long)"/init",
		.probe_offset = (char *)function - &__executable_start,
		.sample_period = 1000000,
	};

	open_event(&attr);
}

/* An event that is off: page faults, or pages given out by the kernel. */
static struct perf_event_attr event_of(int in_kernel)
{
	struct perf_event_attr attr = {
		.type = in_kernel ? PERF_TYPE_TRACEPOINT : PERF_TYPE_SOFTWARE,
		.config = in_kernel ? number_in(TRACEPOINT) : PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.disabled = 1,
	};

	return attr;
}

static int sampling(int in_kernel, int max_stack, int no_kernel, int no_user)
{
	struct perf_event_attr attr = event_of(in_kernel);
	int event;

	attr.sample_type = PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_IP | PERF_SAMPLE_TID;
	attr.sample_max_stack = max_stack;
	attr.exclude_callchain_kernel = no_kernel;
	attr.exclude_callchain_user = no_user;
	event = open_event(&attr);
	mmap(0, 9 * 4096, 3, MAP_SHARED, event, 0);
	return event;
}

/* bpf_get_stack(context, 128 bytes on the program's stack, 128, flags). */
static int program(int in_kernel, int flags)
{
	struct bpf_insn code[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -128 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 128 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, flags },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_stack },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	struct perf_event_attr attr = event_of(in_kernel);
	union bpf_attr load;
	int event, loaded;

	memset(&load, 0, sizeof(load));
	load.prog_type = in_kernel ? BPF_PROG_TYPE_TRACEPOINT : BPF_PROG_TYPE_PERF_EVENT;
	load.insns = (unsigned long)code;
	load.insn_cnt = sizeof(code) / sizeof(*code);
	load.license = (unsigned long)"GPL";
	loaded = syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof(load));
	event = open_event(&attr);
	if (ioctl(event, PERF_EVENT_IOC_SET_BPF, loaded))
		perror("PERF_EVENT_IOC_SET_BPF");
	return event;
}

static int event_number(int n)
{
	switch (n) {
	case 0: return sampling(0, 0, 0, 0);
	case 1: return sampling(1, 0, 0, 0);
	case 2: return sampling(1, 4, 0, 0);
	case 3: return sampling(1, 9, 0, 0);
	case 4: return sampling(1, 0, 1, 0);
	case 5: return sampling(1, 0, 0, 1);
	case 6: return program(1, BPF_F_USER_STACK);
	case 7: return program(1, 0);
	case 8: return program(0, BPF_F_USER_STACK | 2);
	default: return program(0, BPF_F_USER_STACK);
	}
}

int main(void)
{
	int console;

	mount("proc", "/proc", "proc", 0, 0);
	mount("sys", "/sys", "sysfs", 0, 0);
	mount("dev", "/dev", "devtmpfs", 0, 0);
	mount("tracing", "/sys/kernel/tracing", "tracefs", 0, 0);
	console = open("/dev/ttyS0", O_RDWR);
	dup2(console, 1);
	dup2(console, 2);
	return_probe(middle);
	return_probe(leaf);
	return_probe(recursion);
	puts("ready");
	fflush(stdout);
	for (int round = 0;; round++) {
		sampled = event_number(round % 10);
		outer(round % 3);
		close(sampled);
		usleep(1000);
	}
}
