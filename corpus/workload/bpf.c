/* BPF: maps, programs of most types, and programs that run where the kernel is probed. */
#include "workload.h"
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/perf_event.h>

#define INSN(c, d, s, o, i) ((struct bpf_insn){.code = c, .dst_reg = d, .src_reg = s, .off = o, .imm = i})
#define MOV(d, i) INSN(0xb7, d, 0, 0, i)
#define MOV_REG(d, s) INSN(0xbf, d, s, 0, 0)
#define ADD(d, i) INSN(0x07, d, 0, 0, i)
#define CALL(f) INSN(0x85, 0, 0, 0, f)
#define EXIT INSN(0x95, 0, 0, 0, 0)
#define STORE(d, s, o) INSN(0x7b, d, s, o, 0)
#define STORE_WORD(d, o, i) INSN(0x62, d, 0, o, i)
#define LOAD(d, s, o) INSN(0x79, d, s, o, 0)
#define IF_ZERO(d, o) INSN(0x15, d, 0, o, 0)
#define MAP(d, fd) INSN(0x18, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)

static char text[8192];

static long bpf(int command, union bpf_attr *attributes)
{
	return S(bpf, command, attributes, sizeof(*attributes));
}

static long new_map(u32 type, u32 key, u32 value, u32 entries)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.map_type = type;
	a.key_size = key;
	a.value_size = value;
	a.max_entries = entries;
	return bpf(BPF_MAP_CREATE, &a);
}

static long element(int command, long map, const void *key, void *value)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.map_fd = map;
	a.key = (ulong)key;
	a.value = (ulong)value;
	return bpf(command, &a);
}

static long load(u32 type, const struct bpf_insn *code, u32 count, u32 attach, u32 btf_id)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.prog_type = type;
	a.insns = (ulong)code;
	a.insn_cnt = count;
	a.license = (ulong) "GPL";
	a.expected_attach_type = attach;
	a.attach_btf_id = btf_id;
	a.log_buf = (ulong)text;
	a.log_size = sizeof(text);
	a.log_level = 1;
	append(a.prog_name, "workload");
	return bpf(BPF_PROG_LOAD, &a);
}

static long test_run(long program, u32 repeat)
{
	static u8 in[64], out[256];
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.test.prog_fd = program;
	a.test.data_in = (ulong)in;
	a.test.data_size_in = sizeof(in);
	a.test.data_out = (ulong)out;
	a.test.data_size_out = sizeof(out);
	a.test.repeat = repeat;
	return bpf(BPF_PROG_TEST_RUN, &a);
}

static void use_map(u32 type)
{
	u64 key[8] = {32, 0}, value[64] = {1};
	u32 key_size = type == BPF_MAP_TYPE_LPM_TRIE ? 8 : 4, value_size = 8, entries = 16;
	if (type == BPF_MAP_TYPE_QUEUE || type == BPF_MAP_TYPE_STACK || type == BPF_MAP_TYPE_BLOOM_FILTER)
		key_size = 0;
	if (type == BPF_MAP_TYPE_RINGBUF)
		key_size = value_size = 0, entries = PAGE;
	if (type == BPF_MAP_TYPE_STACK_TRACE)
		value_size = 64;
	if (type == BPF_MAP_TYPE_PROG_ARRAY || type == BPF_MAP_TYPE_PERF_EVENT_ARRAY ||
	    type == BPF_MAP_TYPE_CGROUP_ARRAY || type == BPF_MAP_TYPE_CPUMAP)
		value_size = 4;
	long map = new_map(type, key_size, value_size, entries);
	if (map < 0) {
		/* Those whose entries need a flag to come one by one. */
		union bpf_attr a;
		memset(&a, 0, sizeof(a));
		a.map_type = type;
		a.key_size = key_size;
		a.value_size = value_size;
		a.max_entries = entries;
		a.map_flags = 1 /* BPF_F_NO_PREALLOC */;
		map = bpf(BPF_MAP_CREATE, &a);
	}
	if (map < 0)
		return;
	for (u32 i = 0; i < 20; i++) {
		if (type == BPF_MAP_TYPE_LPM_TRIE)
			key[0] = (32 - i) | (u64)i << 32;
		else
			key[0] = i;
		element(BPF_MAP_UPDATE_ELEM, map, key_size ? key : NULL, value);
		element(BPF_MAP_LOOKUP_ELEM, map, key_size ? key : NULL, value);
	}
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.map_fd = map;
	a.key = 0;
	a.next_key = (ulong)key;
	for (int i = 0; i < 4 && bpf(BPF_MAP_GET_NEXT_KEY, &a) >= 0; i++)
		a.key = (ulong)key;
	memset(&a, 0, sizeof(a));
	a.batch.map_fd = map;
	a.batch.out_batch = (ulong)key;
	a.batch.keys = (ulong)text;
	a.batch.values = (ulong)value;
	a.batch.count = 4;
	bpf(BPF_MAP_LOOKUP_BATCH, &a);
	element(BPF_MAP_DELETE_ELEM, map, key, NULL);
	element(BPF_MAP_LOOKUP_AND_DELETE_ELEM, map, key_size ? key : NULL, value);
	memset(&a, 0, sizeof(a));
	a.info.bpf_fd = map;
	a.info.info_len = 80;
	a.info.info = (ulong)value;
	bpf(BPF_OBJ_GET_INFO_BY_FD, &a);
	memset(&a, 0, sizeof(a));
	a.map_fd = map;
	bpf(BPF_MAP_FREEZE, &a);
	element(BPF_MAP_UPDATE_ELEM, map, key, value);
	S(close, map);
}

void group_bpf(void)
{
	union bpf_attr a;
	for (u32 type = 1; type < 34; type++)
		use_map(type);

	/* A counter in a map, a program below a call, a loop, and one program after another. */
	long hash = need("map", new_map(BPF_MAP_TYPE_HASH, 4, 8, 16));
	long array = need("map", new_map(BPF_MAP_TYPE_PROG_ARRAY, 4, 4, 4));
	const struct bpf_insn tail[] = {MOV(0, 7), EXIT};
	long last = need("load", load(BPF_PROG_TYPE_SCHED_CLS, tail, LEN(tail), 0, 0));
	u32 zero = 0, last_fd = last;
	need("prog array", element(BPF_MAP_UPDATE_ELEM, array, &zero, &last_fd));
	const struct bpf_insn code[] = {
		MOV_REG(6, 1),
		STORE_WORD(10, -4, 1),
		MOV(1, 5), STORE(10, 1, -16),
		MAP(1, hash), MOV_REG(2, 10), ADD(2, -4), MOV_REG(3, 10), ADD(3, -16), MOV(4, 0),
		CALL(BPF_FUNC_map_update_elem),
		MAP(1, hash), MOV_REG(2, 10), ADD(2, -4),
		CALL(BPF_FUNC_map_lookup_elem),
		IF_ZERO(0, 2), MOV(1, 1), INSN(0xdb /* atomic add */, 0, 1, 0, 0),
		MOV(7, 10),
		ADD(7, -1), INSN(0x55, 7, 0, -2, 0),
		CALL(BPF_FUNC_ktime_get_ns), CALL(BPF_FUNC_get_prandom_u32), CALL(BPF_FUNC_get_smp_processor_id),
		INSN(0x85, 0, 1 /* a function of this program */, 0, 6),
		MOV_REG(1, 6), MAP(2, array), MOV(3, 0), CALL(BPF_FUNC_tail_call),
		MOV(0, 0), EXIT,
		MOV(0, 3), EXIT,
	};
	/* The call's distance is to the function at the end. */
	static struct bpf_insn copy[LEN(code)];
	memcpy(copy, code, sizeof(code));
	for (ulong i = 0; i < LEN(code); i++)
		if (copy[i].code == 0x85 && copy[i].src_reg == 1)
			copy[i].imm = LEN(code) - 2 - i - 1;
	long program = need("load", load(BPF_PROG_TYPE_SCHED_CLS, copy, LEN(code), 0, 0));
	need("run", test_run(program, 3));
	u64 value = 0;
	u32 one = 1;
	need("lookup", element(BPF_MAP_LOOKUP_ELEM, hash, &one, &value));
	expect("counted", value == 6);

	/* As many types as take two instructions, and what the verifier refuses. */
	for (u32 type = 1; type < 33; type++) {
		const struct bpf_insn nothing[] = {MOV(0, 0), EXIT};
		for (u32 attach = 0; attach < 48; attach += type > 7 ? 1 : 50) {
			long fd = load(type, nothing, 2, attach, 0);
			if (fd < 0)
				continue;
			test_run(fd, 1);
			S(close, fd);
			break;
		}
	}
	const struct bpf_insn endless[] = {MOV(0, 0), INSN(0x05, 0, 0, -2, 0), EXIT};
	const struct bpf_insn wild[] = {MOV(1, 0), LOAD(0, 1, 0), EXIT};
	const struct bpf_insn unset[] = {MOV_REG(0, 3), EXIT};
	expect("refused", load(BPF_PROG_TYPE_SOCKET_FILTER, endless, 3, 0, 0) < 0);
	expect("refused", load(BPF_PROG_TYPE_SOCKET_FILTER, wild, 3, 0, 0) < 0);
	expect("refused", load(BPF_PROG_TYPE_SOCKET_FILTER, unset, 2, 0, 0) < 0);

	/* A filter of a socket, and one of a control group. */
	const struct bpf_insn filter[] = {INSN(0x61, 0, 1, 0, 0), EXIT};
	long socket_filter = need("filter", load(BPF_PROG_TYPE_SOCKET_FILTER, filter, 2, 0, 0));
	int pair[2];
	S(socketpair, 1, 2, 0, pair);
	need("SO_ATTACH_BPF", S(setsockopt, pair[1], 1, 50, &socket_filter, 4));
	S(write, pair[0], "abc", 3);
	S(setsockopt, pair[1], 1, 27, &socket_filter, 4);
	S(mkdir, "/try/bpf-cgroup", 0755);
	S(mount, "none", "/try/bpf-cgroup", "cgroup2", 0, NULL);
	long group = open_file("/try/bpf-cgroup", O_RDONLY);
	const struct bpf_insn allow[] = {MOV(0, 1), EXIT};
	static const u32 hooks[][2] = {{BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS},
		{BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS},
		{BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE},
		{BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT},
		{BPF_PROG_TYPE_CGROUP_SYSCTL, BPF_CGROUP_SYSCTL},
		{BPF_PROG_TYPE_CGROUP_SOCKOPT, BPF_CGROUP_GETSOCKOPT},
		{BPF_PROG_TYPE_CGROUP_DEVICE, BPF_CGROUP_DEVICE}};
	for (ulong i = 0; i < 2 * LEN(hooks); i++) {
		u32 type = hooks[i % LEN(hooks)][0], attach = hooks[i % LEN(hooks)][1];
		memset(&a, 0, sizeof(a));
		a.target_fd = group;
		a.attach_bpf_fd = load(type, allow, 2, attach, 0);
		a.attach_type = attach;
		if (i < LEN(hooks)) {
			bpf(BPF_PROG_ATTACH, &a);
			continue;
		}
		/* All of them are asked, and removed. */
		if (i == LEN(hooks)) {
			struct {
				u16 family, port;
				u32 address;
				u64 pad;
			} lo = {2, 0x611e, 0x0100007f};
			long fd = S(socket, 2, 2, 0);
			S(connect, fd, &lo, sizeof(lo));
			S(write, fd, "x", 1);
			S(getsockopt, fd, 1, 4, text, &(int){4});
			read_file("/proc/sys/kernel/ostype", text, 32);
			open_file("/dev/null", O_RDONLY);
		}
		bpf(BPF_PROG_DETACH, &a);
	}
	S(umount2, "/try/bpf-cgroup", 2);

	/* Names in the file system, numbers, and what is said of them. */
	memset(&a, 0, sizeof(a));
	a.pathname = (ulong) "/sys/fs/bpf/workload";
	a.bpf_fd = program;
	need("pin", bpf(BPF_OBJ_PIN, &a));
	S(close, bpf(BPF_OBJ_GET, &a));
	S(unlink, "/sys/fs/bpf/workload");
	for (int command = BPF_PROG_GET_NEXT_ID; command <= BPF_MAP_GET_NEXT_ID; command++) {
		memset(&a, 0, sizeof(a));
		for (int i = 0; i < 50 && bpf(command, &a) >= 0; i++) {
			a.start_id = a.next_id;
			union bpf_attr by = a;
			S(close, bpf(command + 2, &by));
		}
	}
	static u64 info[40];
	memset(&a, 0, sizeof(a));
	a.info.bpf_fd = program;
	a.info.info_len = sizeof(info);
	a.info.info = (ulong)info;
	need("info", bpf(BPF_OBJ_GET_INFO_BY_FD, &a));
	/* Types of its own. */
	static const struct {
		struct btf_header header;
		u32 types[4];
		char strings[5];
	} types = {{BTF_MAGIC, 1, 0, sizeof(struct btf_header), 0, 16, 16, 5},
		   {1, 1 << 24, 4, 32}, "\0int"};
	memset(&a, 0, sizeof(a));
	a.btf = (ulong)&types;
	a.btf_size = sizeof(struct btf_header) + 21;
	need("BTF", bpf(BPF_BTF_LOAD, &a));
	memset(&a, 0, sizeof(a));
	a.enable_stats.type = 0;
	bpf(BPF_ENABLE_STATS, &a);
}

/* Functions around which a trampoline is put, and the numbers of their types, 0 if there is none. */
static const char *const functions[] = {"bpf_fentry_test1", "vfs_read", "hrtimer_nanosleep"};
static u32 function_types[LEN(functions)];

/* Finds the types of the functions in the kernel's own types. */
static void find_types(void)
{
	long fd = open_file("/sys/kernel/btf/vmlinux", O_RDONLY);
	struct stat status;
	if (fd < 0 || S(fstat, fd, &status) < 0)
		return;
	char *all = map(status.st_size + PAGE);
	long size = 0, got;
	while ((got = S(read, fd, all + size, status.st_size - size)) > 0)
		size += got;
	struct btf_header *header = (void *)all;
	char *types = all + header->hdr_len + header->type_off;
	char *strings = all + header->hdr_len + header->str_off;
	u32 id = 0;
	for (char *at = types; at < types + header->type_len;) {
		struct btf_type *type = (void *)at;
		u32 kind = BTF_INFO_KIND(type->info), count = BTF_INFO_VLEN(type->info);
		id++;
		const char *name = strings + type->name_off;
		for (ulong i = 0; kind == BTF_KIND_FUNC && i < LEN(functions); i++)
			if (name[0] == functions[i][0] && name[1] == functions[i][1] && equal(name, functions[i]))
				function_types[i] = id;
		static const u8 fixed[32] = {[BTF_KIND_INT] = 4, [BTF_KIND_ARRAY] = 12, [BTF_KIND_VAR] = 4,
			[BTF_KIND_DECL_TAG] = 4};
		static const u8 each[32] = {[BTF_KIND_STRUCT] = 12, [BTF_KIND_UNION] = 12,
			[BTF_KIND_ENUM] = 8, [BTF_KIND_FUNC_PROTO] = 8, [BTF_KIND_DATASEC] = 12,
			[BTF_KIND_ENUM64] = 12};
		at += sizeof(*type) + fixed[kind] + each[kind] * count;
	}
	S(munmap, all, status.st_size + PAGE);
	S(close, fd);
}

static void work(void)
{
	long fd = open_file("/proc/version", O_RDONLY);
	S(read, fd, text, 64);
	S(close, fd);
	char *page = map(PAGE);
	page[0] = 1;
	S(munmap, page, PAGE);
	S(getppid);
	sleep_ms(1);
	wait_for(S(fork) ?: (leave(0), 0));
	spin(300000);
}

static u32 point(const char *name)
{
	char path[96];
	append(append(append(path, "/sys/kernel/tracing/events/"), name), "/id");
	return read_file(path, text, 32) > 0 ? number_of(text) : 0;
}

void group_bpf_attached(void)
{
	union bpf_attr a;
	long stacks = need("map", new_map(BPF_MAP_TYPE_STACK_TRACE, 4, 8 * 64, 256));
	long events = need("map", new_map(BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 4, 1));
	long ring = need("map", new_map(BPF_MAP_TYPE_RINGBUF, 0, 0, 4 * PAGE));
	struct perf_event_attr output = {.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_BPF_OUTPUT,
		.size = sizeof(output), .sample_period = 1, .sample_type = PERF_SAMPLE_RAW | PERF_SAMPLE_CALLCHAIN};
	long fd = need("output", S(perf_event_open, &output, -1, 0, -1, 0));
	S(mmap, NULL, 9 * PAGE, 3, MAP_SHARED, fd, 0);
	u32 zero = 0;
	element(BPF_MAP_UPDATE_ELEM, events, &zero, &fd);

	/* Stacks by number and as they are, and a record of both kinds. */
	const struct bpf_insn code[] = {
		MOV_REG(6, 1),
		MAP(2, stacks), MOV(3, 0), CALL(BPF_FUNC_get_stackid),
		MOV_REG(1, 6), MAP(2, stacks), MOV(3, 0x100 /* of user space */), CALL(BPF_FUNC_get_stackid),
		MOV_REG(1, 6), MOV_REG(2, 10), ADD(2, -256), MOV(3, 256), MOV(4, 0), CALL(BPF_FUNC_get_stack),
		CALL(BPF_FUNC_get_current_pid_tgid), STORE(10, 0, -8),
		MOV_REG(1, 6), MAP(2, events), MOV(3, -1), INSN(0x67, 3, 0, 0, 32), INSN(0x77, 3, 0, 0, 32),
		MOV_REG(4, 10), ADD(4, -8), MOV(5, 8), CALL(BPF_FUNC_perf_event_output),
		MAP(1, ring), MOV_REG(2, 10), ADD(2, -8), MOV(3, 8), MOV(4, 0), CALL(BPF_FUNC_ringbuf_output),
		MOV(0, 0), EXIT,
	};
	static const struct {
		const char *name, *point;
		u32 program, type;
		u64 config, period;
		const char *function;
	} all[] = {
		{"tracepoint", "sched/sched_switch", BPF_PROG_TYPE_TRACEPOINT, PERF_TYPE_TRACEPOINT, 0, 0, NULL},
		{"syscall", "raw_syscalls/sys_enter", BPF_PROG_TYPE_TRACEPOINT, PERF_TYPE_TRACEPOINT, 0, 0, NULL},
		{"perf event", NULL, BPF_PROG_TYPE_PERF_EVENT, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK,
		 50000, NULL},
		{"page fault", NULL, BPF_PROG_TYPE_PERF_EVENT, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS,
		 1, NULL},
		{"kprobe", NULL, BPF_PROG_TYPE_KPROBE, 0, 0, 0, "vfs_read"},
		{"kretprobe", NULL, BPF_PROG_TYPE_KPROBE, 0, 1, 0, "vfs_read"},
		{"kprobe", NULL, BPF_PROG_TYPE_KPROBE, 0, 0, 0, "__x64_sys_getppid"},
	};
	for (ulong i = 0; i < LEN(all); i++) {
		long program = need(all[i].name, load(all[i].program, code, LEN(code), 0, 0));
		struct perf_event_attr event = {.type = all[i].type, .config = all[i].config,
			.size = sizeof(event), .sample_period = all[i].period, .wakeup_events = 1,
			.sample_type = all[i].program == BPF_PROG_TYPE_PERF_EVENT ? PERF_SAMPLE_CALLCHAIN : 0};
		if (all[i].point)
			event.config = point(all[i].point);
		if (all[i].function) {
			read_file("/sys/bus/event_source/devices/kprobe/type", text, 32);
			event.type = number_of(text);
			event.kprobe_func = (u64)all[i].function;
		}
		long at = need(all[i].name, S(perf_event_open, &event, -1, 0, -1, 0));
		need(all[i].name, S(ioctl, at, PERF_EVENT_IOC_SET_BPF, program));
		S(ioctl, at, PERF_EVENT_IOC_ENABLE, 0);
		work();
		S(ioctl, at, PERF_EVENT_IOC_DISABLE, 0);
		S(close, at);
		S(close, program);
	}
	u32 key = 0;
	memset(&a, 0, sizeof(a));
	a.map_fd = stacks;
	a.next_key = (ulong)&key;
	need("stacks", bpf(BPF_MAP_GET_NEXT_KEY, &a));
	element(BPF_MAP_LOOKUP_ELEM, stacks, &key, text);

	/* Raw tracepoints, and trampolines around a function. */
	const struct bpf_insn raw[] = {MAP(2, stacks), MOV(3, 0), CALL(BPF_FUNC_get_stackid), MOV(0, 0), EXIT};
	long program = need("raw", load(BPF_PROG_TYPE_RAW_TRACEPOINT, raw, LEN(raw), 0, 0));
	memset(&a, 0, sizeof(a));
	a.raw_tracepoint.name = (ulong) "sched_switch";
	a.raw_tracepoint.prog_fd = program;
	long link = need("raw", bpf(BPF_RAW_TRACEPOINT_OPEN, &a));
	work();
	S(close, link);

	find_types();
	static const u32 kinds[] = {BPF_TRACE_FENTRY, BPF_TRACE_FEXIT};
	const struct bpf_insn traced[] = {
		MAP(2, stacks), MOV(3, 0), CALL(BPF_FUNC_get_stackid), MOV(0, 0), EXIT,
	};
	for (ulong i = 0; i < LEN(functions) * LEN(kinds); i++) {
		u32 id = function_types[i / 2];
		if (!id)
			continue;
		program = need("trampoline", load(BPF_PROG_TYPE_TRACING, traced, LEN(traced), kinds[i % 2], id));
		memset(&a, 0, sizeof(a));
		a.raw_tracepoint.prog_fd = program;
		link = need("trampoline", bpf(BPF_RAW_TRACEPOINT_OPEN, &a));
		work();
		test_run(program, 2);
		S(close, link);
		S(close, program);
	}

	/* Several functions at once. */
	static const char *const several[] = {"vfs_read", "vfs_open", "__x64_sys_getppid"};
	program = load(BPF_PROG_TYPE_KPROBE, raw, LEN(raw), 42 /* BPF_TRACE_KPROBE_MULTI */, 0);
	for (u32 flags = 0; program >= 0 && flags < 2; flags++) {
		memset(&a, 0, sizeof(a));
		a.link_create.prog_fd = program;
		a.link_create.attach_type = 42;
		a.link_create.kprobe_multi.cnt = LEN(several);
		a.link_create.kprobe_multi.syms = (ulong)several;
		a.link_create.kprobe_multi.flags = flags;
		link = bpf(BPF_LINK_CREATE, &a);
		work();
		S(close, link);
	}
	sleep_ms(20);
}
