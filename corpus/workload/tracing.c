/* The kernel observed by itself: perf events with callchains, the tracers of tracefs, and probes. */
#include "workload.h"
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>

#define TRACING "/sys/kernel/tracing/"

static volatile int signals;
static char buffer[16384];

static void note(int signal, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	signals += signal != 0;
}

static long event_of(struct perf_event_attr *attributes, long pid, long cpu, long leader)
{
	attributes->size = sizeof(*attributes);
	return S(perf_event_open, attributes, pid, cpu, leader, PERF_FLAG_FD_CLOEXEC);
}

/* What the probes are at: it opens, reads, sleeps, faults, and has a child. */
__attribute__((noinline)) static void work(void)
{
	long fd = open_file("/proc/version", O_RDONLY);
	S(read, fd, buffer, 64);
	S(close, fd);
	char *page = map(2 * PAGE);
	page[0] = 1;
	S(munmap, page, 2 * PAGE);
	S(getppid);
	S(sched_yield);
	sleep_ms(1);
	wait_for(S(fork) ?: (leave(0), 0));
	spin(200000);
}

#define EVERYTHING \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_READ | \
	 PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | \
	 PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | \
	 PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_PHYS_ADDR | PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_CGROUP)

/* Samples the work by one event, into a ring that is read. */
static long sample(const char *step, u32 type, u64 config, u64 period)
{
	struct perf_event_attr attributes = {
		.type = type, .config = config, .sample_period = period, .sample_type = EVERYTHING,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
			       PERF_FORMAT_ID | PERF_FORMAT_GROUP,
		.disabled = 1, .mmap = 1, .comm = 1, .task = 1, .mmap2 = 1, .comm_exec = 1,
		.context_switch = 1, .sample_id_all = 1, .ksymbol = 1, .bpf_event = 1, .cgroup = 1,
		.sample_regs_user = 0xff0fff, .sample_regs_intr = 0xff0fff, .sample_stack_user = 512,
		.sample_max_stack = 100,
	};
	long fd = event_of(&attributes, 0, -1, -1);
	if (step)
		need(step, fd);
	if (fd < 0)
		return fd;
	char *ring = (char *)S(mmap, NULL, 9 * PAGE, 3, MAP_SHARED, fd, 0);
	S(ioctl, fd, PERF_EVENT_IOC_ENABLE, 0);
	work();
	S(ioctl, fd, PERF_EVENT_IOC_DISABLE, 0);
	if ((long)ring > 0) {
		struct perf_event_mmap_page *head = (void *)ring;
		if (step)
			expect(step, head->data_head > 0);
		head->data_tail = head->data_head;
	}
	S(read, fd, buffer, 256);
	S(munmap, ring, 9 * PAGE);
	return fd;
}

void group_perf(void)
{
	static const struct {
		const char *name;
		u64 config, period;
	} software[] = {
		{"cpu-clock", PERF_COUNT_SW_CPU_CLOCK, 50000}, {"task-clock", PERF_COUNT_SW_TASK_CLOCK, 50000},
		{"page-faults", PERF_COUNT_SW_PAGE_FAULTS, 1},
		{"context-switches", PERF_COUNT_SW_CONTEXT_SWITCHES, 1},
		{"faults-minor", PERF_COUNT_SW_PAGE_FAULTS_MIN, 1},
		{NULL, PERF_COUNT_SW_CPU_MIGRATIONS, 1}, {NULL, PERF_COUNT_SW_PAGE_FAULTS_MAJ, 1},
		{NULL, PERF_COUNT_SW_ALIGNMENT_FAULTS, 1}, {NULL, PERF_COUNT_SW_EMULATION_FAULTS, 1},
		{NULL, PERF_COUNT_SW_DUMMY, 1}, {NULL, PERF_COUNT_SW_BPF_OUTPUT, 1},
		{NULL, PERF_COUNT_SW_CGROUP_SWITCHES, 1},
	};
	for (ulong i = 0; i < LEN(software); i++)
		S(close, sample(software[i].name, PERF_TYPE_SOFTWARE, software[i].config, software[i].period));
	for (int i = 0; i < 10; i++)
		S(close, sample(NULL, i < 8 ? PERF_TYPE_HARDWARE : PERF_TYPE_HW_CACHE, i, 100000));
	S(close, sample(NULL, PERF_TYPE_RAW, 0xc0, 100000));

	/* Tracepoints, which sample with registers that are made up. */
	static const char *const points[] = {"sched/sched_switch", "kmem/mm_page_alloc", "kmem/kmalloc",
		"raw_syscalls/sys_enter", "syscalls/sys_exit_openat", "timer/hrtimer_start",
		"irq/softirq_entry", "exceptions/page_fault_user", "sched/sched_process_exec",
		"irq_vectors/local_timer_entry", "rcu/rcu_utilization", "sched/sched_wakeup"};
	char path[96];
	for (ulong i = 0; i < LEN(points); i++) {
		append(append(append(path, TRACING "events/"), points[i]), "/id");
		if (read_file(path, buffer, 32) > 0)
			S(close, sample(i ? NULL : "tracepoint", PERF_TYPE_TRACEPOINT, number_of(buffer), 1));
	}

	/* A group, inherited, on the processor, with a filter, and with a signal for each sample. */
	struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS,
		.inherit = 1, .inherit_stat = 1, .sample_period = 1, .sample_type = PERF_SAMPLE_CALLCHAIN,
		.wakeup_events = 1};
	long leader = need("leader", event_of(&attributes, 0, -1, -1));
	handle(SIGIO, note, 0);
	S(fcntl, leader, F_SETOWN, S(getpid));
	S(fcntl, leader, F_SETFL, FASYNC);
	S(mmap, NULL, 2 * PAGE, 3, MAP_SHARED, leader, 0);
	work();
	expect("signal", signals > 0);
	attributes.inherit = 0;
	attributes.config = PERF_COUNT_SW_CPU_CLOCK;
	attributes.sample_freq = 4000;
	attributes.freq = 1;
	attributes.exclude_user = 1;
	long on_processor = need("processor", event_of(&attributes, -1, 0, -1));
	S(mmap, NULL, 5 * PAGE, 3, MAP_SHARED, on_processor, 0);
	attributes.config = PERF_COUNT_SW_CONTEXT_SWITCHES;
	long member = event_of(&attributes, -1, 0, on_processor);
	S(ioctl, member, PERF_EVENT_IOC_SET_OUTPUT, on_processor);
	S(ioctl, on_processor, PERF_EVENT_IOC_PERIOD, &(u64){2000});
	work();
	for (int command = 0; command < 12; command++)
		S(ioctl, on_processor, 0x2400 + command, 1);
	S(ioctl, on_processor, PERF_EVENT_IOC_ID, buffer);
	S(read, on_processor, buffer, 64);
	S(close, member);
	S(close, on_processor);
	S(prctl, 31 /* PR_TASK_PERF_EVENTS_DISABLE */);
	S(prctl, 32);
	struct perf_event_attr watch = {.type = PERF_TYPE_BREAKPOINT, .bp_type = HW_BREAKPOINT_W,
		.bp_addr = (u64)buffer, .bp_len = 8, .sample_period = 1, .sample_type = PERF_SAMPLE_CALLCHAIN};
	long watched = event_of(&watch, 0, -1, -1);
	*(volatile u64 *)buffer = 1;
	S(close, watched);
	/* Signals that tell which event it was. */
	struct perf_event_attr trap = {.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1, .sigtrap = 1, .remove_on_exec = 1, .sig_data = 5};
	handle(SIGTRAP, note, 0);
	long trapped = event_of(&trap, 0, -1, -1);
	work();
	S(close, trapped);
}

static long set(const char *file, const char *text)
{
	char path[160];
	append(append(path, TRACING), file);
	return write_file(path, text);
}

static long show(const char *file)
{
	char path[160];
	append(append(path, TRACING), file);
	return read_file(path, buffer, sizeof(buffer));
}

/* Chooses every hundredth function by its number: all of them would be most of what is executed, and names
 * take long, since each is compared with those of all functions. A write takes one word. There may be fewer
 * functions than that. */
static long choose(const char *file)
{
	char path[160], number[24];
	append(append(path, TRACING), file);
	long fd = open_file(path, O_WRONLY), done = fd, chosen = 0;
	for (ulong i = 100; i < 40000 && done >= 0; i += 100) {
		append(append_number(number, i), " ");
		done = S(write, fd, number, length(number));
		chosen += done > 0;
	}
	S(close, fd);
	return chosen ?: done;
}

void group_tracing(void)
{
	char path[96];
	need("tracing_on", set("tracing_on", "1"));
	set("buffer_size_kb", "512");
	need("filter", choose("set_ftrace_filter"));
	static const char *const tracers[] = {"function", "function_graph", "wakeup", "wakeup_rt",
		"wakeup_dl", "blk", "hwlat", "osnoise", "timerlat", "mmiotrace", "irqsoff", "nop"};
	static const char *const options[] = {"func_stack_trace", "sym-addr", "stacktrace", "userstacktrace",
		"latency-format", "verbose", "raw", "bin", "function-fork", "irq-info", "display-graph"};
	for (ulong i = 0; i < LEN(tracers); i++) {
		if (set("current_tracer", tracers[i]) < 0)
			continue;
		for (ulong o = 0; o < LEN(options); o++) {
			append(append(path, "options/"), options[o]);
			if (o % 3 == i % 3)
				set(path, "1");
		}
		work();
		for (ulong o = 0; o < LEN(options); o++) {
			append(append(path, "options/"), options[o]);
			set(path, "0");
		}
		show("trace");
		show("trace_pipe");
	}
	need("graph", set("current_tracer", "nop"));
	set("max_graph_depth", "3");
	set("function_profile_enabled", "1");
	work();
	set("function_profile_enabled", "0");
	show("trace_stat/function0");
	set("current_tracer", "function");
	work();
	set("current_tracer", "nop");
	/* The deepest stack. */
	choose("stack_trace_filter");
	write_file("/proc/sys/kernel/stack_tracer_enabled", "1");
	work();
	write_file("/proc/sys/kernel/stack_tracer_enabled", "0");
	show("stack_trace");

	/* Events with filters, triggers and histograms, in an instance of their own as well. */
	need("events", set("events/sched/enable", "1"));
	set("events/syscalls/enable", "1");
	set("events/kmem/kmalloc/filter", "bytes_req > 64 && call_site != 0");
	set("events/kmem/kmalloc/enable", "1");
	set("events/sched/sched_switch/trigger", "stacktrace:3");
	set("events/sched/sched_wakeup/trigger", "hist:keys=pid,common_stacktrace:vals=prio:sort=pid:size=64");
	set("events/sched/sched_wakeup/trigger", "enable_event:timer:timer_start:1");
	set("synthetic_events", "delay u64 time; pid_t pid");
	set("events/sched/sched_wakeup/trigger", "hist:keys=pid:t=common_timestamp.usecs");
	set("events/sched/sched_switch/trigger",
	    "hist:keys=next_pid:d=common_timestamp.usecs-$t:onmatch(sched.sched_wakeup).delay($d,next_pid)");
	set("trace_marker", "a mark\n");
	work();
	show("trace");
	show("trace_pipe");
	show("events/sched/sched_wakeup/hist");
	show("saved_cmdlines");
	show("available_events");
	set("snapshot", "1");
	show("snapshot");
	show("per_cpu/cpu0/stats");
	show("per_cpu/cpu0/trace_pipe_raw");
	S(mkdir, TRACING "instances/one", 0755);
	set("instances/one/events/irq/enable", "1");
	work();
	set("instances/one/events/irq/enable", "0");
	show("instances/one/trace");
	S(rmdir, TRACING "instances/one");
	set("events/sched/sched_switch/trigger", "!stacktrace");
	set("events/enable", "0");
	set("set_event_pid", "1");
	set("set_ftrace_pid", "1");
	set("trace_clock", "uptime");
	set("trace_clock", "local");
	set("trace", "");
}

/* All functions are traced for a moment: each has its call of the tracer patched in, and out again. */
static void trace_all(void)
{
	set("set_ftrace_filter", "");
	need("function", set("current_tracer", "function"));
	S(getppid);
	set("current_tracer", "nop");
}

void group_probes(void)
{
	char path[96];
	static const char *const all[] = {"p:one vfs_read file=%di count=%dx:u64", "r:two vfs_read ret=$retval",
		"p:three do_sys_openat2 stack=$stack0 comm=$comm", "r4:four do_sys_openat2 $retval",
		"p:five __x64_sys_getppid", "r:six __x64_sys_getppid", "p:seven hrtimer_nanosleep",
		"r:eight schedule", "p:nine handle_mm_fault", "r:ten copy_process"};
	for (ulong i = 0; i < LEN(all); i++)
		need(all[i], set("kprobe_events", all[i]));
	set("dynamic_events", "f:twelve vfs_open%return $retval");
	set("dynamic_events", "t:thirteen sched_switch");
	set("uprobe_events", "p:fourteen /init:0x10 %ip");
	set("dynamic_events", "e:fifteen sched/sched_switch prev=$prev_pid");
	need("enable", set("events/kprobes/enable", "1"));
	set("events/fprobes/enable", "1");
	set("events/tracepoints/enable", "1");
	set("events/uprobes/enable", "1");
	set("options/stacktrace", "1");
	work();
	/* With the tracers of functions at the same places. */
	set("set_ftrace_filter", "vfs_read");
	set("current_tracer", "function");
	work();
	set("current_tracer", "function_graph");
	work();
	set("current_tracer", "nop");
	set("options/stacktrace", "0");
	show("trace");
	show("kprobe_profile");
	read_file("/sys/kernel/debug/kprobes/list", buffer, sizeof(buffer));
	write_file("/sys/kernel/debug/kprobes/enabled", "0");
	write_file("/sys/kernel/debug/kprobes/enabled", "1");

	/* The same by perf: with callchains from the probe's registers. */
	static const char *const names[] = {"one", "two", "five", "six", "nine", "ten"};
	for (ulong i = 0; i < LEN(names); i++) {
		append(append(append(path, TRACING "events/kprobes/"), names[i]), "/id");
		read_file(path, buffer, 32);
		S(close, sample(names[i], PERF_TYPE_TRACEPOINT, number_of(buffer), 1));
	}
	set("events/kprobes/enable", "0");
	set("events/fprobes/enable", "0");
	set("events/enable", "0");
	set("dynamic_events", "");
	set("kprobe_events", "");
	set("uprobe_events", "");
	for (int is_return = 0; is_return < 2; is_return++) {
		read_file("/sys/bus/event_source/devices/kprobe/type", buffer, 32);
		struct perf_event_attr attributes = {.type = number_of(buffer), .config = is_return,
			.kprobe_func = (u64) "vfs_read", .sample_period = 1,
			.sample_type = PERF_SAMPLE_CALLCHAIN};
		long fd = need("kprobe", event_of(&attributes, -1, 0, -1));
		S(mmap, NULL, 9 * PAGE, 3, MAP_SHARED, fd, 0);
		work();
		S(close, fd);

		/* Of this program: the place in the file is where its work begins. */
		read_file("/sys/bus/event_source/devices/uprobe/type", buffer, 32);
		attributes.type = number_of(buffer);
		attributes.uprobe_path = (u64) "/init";
		extern char __executable_start;
		attributes.probe_offset = (char *)work - &__executable_start;
		fd = event_of(&attributes, 0, -1, -1);
		S(mmap, NULL, 9 * PAGE, 3, MAP_SHARED, fd, 0);
		work();
		S(close, fd);
	}
	trace_all();
}
