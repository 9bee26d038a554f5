/* A histogram of instruction pointers by cache line of 64 bytes, and the periods it stands for. */
#include "bpf.h"

struct line {
	u64 samples;
	u64 period;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct line);
} lines SEC(".maps");

static __attribute__((noinline)) u64 line_of(u64 ip)
{
	return ip & ~63ULL;
}

SEC("perf_event")
int cache_lines(struct bpf_perf_event_data *context)
{
	u64 key = line_of(context->regs.ip);
	struct line first = {1, context->sample_period};
	struct line *line = bpf_map_lookup_elem(&lines, &key);

	if (line) {
		__sync_fetch_and_add(&line->samples, 1);
		__sync_fetch_and_add(&line->period, first.period);
	} else {
		bpf_map_update_elem(&lines, &key, &first, BPF_NOEXIST);
	}
	return 1;
}

char _license[] SEC("license") = "GPL";
