/* Writes where the last branches were, newest first, as the processor's ring has them when the
 * program runs. No argument names an event: another one may have asked for the records, and a
 * software event, which has none of its own, gets them as well. */
#include "bpf.h"

#define BRANCHES 8

struct branch {
	u64 from, to, flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} outputs SEC(".maps");

SEC("perf_event")
int snapshot(struct bpf_perf_event_data *context)
{
	struct branch branches[BRANCHES] = {};
	u64 froms[1 + BRANCHES] = {};
	s64 size = bpf_get_branch_snapshot(branches, sizeof(branches), 0);

	froms[0] = size;
#pragma unroll
	for (int i = 0; i < BRANCHES; i++)
		froms[1 + i] = branches[i].from;
	bpf_perf_event_output(context, &outputs, BPF_F_CURRENT_CPU, froms, sizeof(froms));
	return 1;
}

char _license[] SEC("license") = "GPL";
