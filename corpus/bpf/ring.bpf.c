/* Deep user stacks, into the ring buffer of the sample's processor: how many frames there are, and
 * which of them lie in the range that user space asks for. The rings of two processors are in an
 * array of maps; the frames are gone through by bpf_loop. */
#include "bpf.h"

#define FRAMES 32

struct event {
	u32 pid, cpu;
	u64 ip;
	u32 frames, inside;
};

struct range {
	u64 start, end;
};

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps") = { .values = { [0] = &first, [1] = &second } };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, struct range);
} ranges SEC(".maps");

struct state {
	u64 ips[FRAMES];
	u64 ip;
	u32 inside, frames;
};

static long contains(void *map, u32 *key, struct range *range, struct state *state)
{
	if (state->ip >= range->start && state->ip < range->end)
		state->inside++;
	return 0;
}

static long each(u32 index, struct state *state)
{
	if (index >= FRAMES || index >= state->frames)
		return 1;
	state->ip = state->ips[index];
	bpf_for_each_map_elem(&ranges, contains, state, 0);
	return 0;
}

SEC("perf_event")
int deep(struct bpf_perf_event_data *context)
{
	struct state state = {};
	long size = bpf_get_stack(context, state.ips, sizeof(state.ips), BPF_F_USER_STACK);

	if (size <= 0)
		return 0;
	state.frames = size / 8;
	bpf_loop(FRAMES, each, &state, 0);

	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!ring)
		return 0;
	struct event *event = bpf_ringbuf_reserve(ring, sizeof(*event), 0);
	if (!event)
		return 0;
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->cpu = cpu;
	event->ip = context->regs.ip;
	event->frames = state.frames;
	event->inside = state.inside;
	if (state.frames > 1)
		bpf_ringbuf_submit(event, 0);
	else
		bpf_ringbuf_discard(event, 0);
	return 1;
}

char _license[] SEC("license") = "GPL";
