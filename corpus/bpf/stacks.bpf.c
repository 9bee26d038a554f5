/* Stacks by every helper, for programs of events, tracepoints and probes: numbers from a small map, in which
 * stacks collide, and frames, which are written with a word of what the program was called with. */
#include "bpf.h"

#define FRAMES 12
#define BPF_F_FAST_STACK_CMP (1ULL << 9)
#define BPF_F_REUSE_STACKID (1ULL << 10)

struct record {
	s64 kernel, user, reused, skipped;
	u64 word;
	s64 size, user_size;
	u64 frames[FRAMES], user_frames[FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 20 * sizeof(u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 8);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 20 * sizeof(u64));
} reused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, s64);
	__type(value, u64);
} counts SEC(".maps");

static inline __attribute__((always_inline)) int record(void *context, u64 word)
{
	struct record record = {};
	u64 one = 1, *count;

	record.kernel = bpf_get_stackid(context, &stacks, 0);
	record.user = bpf_get_stackid(context, &stacks, BPF_F_USER_STACK | BPF_F_FAST_STACK_CMP);
	record.reused = bpf_get_stackid(context, &reused, BPF_F_REUSE_STACKID);
	/* Without its innermost three frames. */
	record.skipped = bpf_get_stackid(context, &stacks, 3);
	record.word = word;
	record.size = bpf_get_stack(context, record.frames, sizeof(record.frames), 0);
	record.user_size = bpf_get_stack(context, record.user_frames, sizeof(record.user_frames), BPF_F_USER_STACK | 1);
	bpf_perf_event_output(context, &records, BPF_F_CURRENT_CPU, &record, sizeof(record));

	count = bpf_map_lookup_elem(&counts, &record.kernel);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&counts, &record.kernel, &one, BPF_NOEXIST);
	return 1;
}

SEC("perf_event")
int at_event(struct bpf_perf_event_data *context)
{
	return record(context, context->sample_period);
}

/* The page's number. */
SEC("tracepoint/kmem/mm_page_alloc")
int at_tracepoint(u64 *context)
{
	return record(context, context[1]);
}

/* The function's first argument. */
SEC("kprobe/vfs_open")
int at_probe(struct pt_regs *context)
{
	return record(context, context->di);
}

char _license[] SEC("license") = "GPL";
