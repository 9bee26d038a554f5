/* Walks the user stack itself, by frame pointers, and writes the frames: their number, and the
 * addresses from the innermost on. What user memory does not give ends the walk. */
#include "bpf.h"

#define FRAMES 15

struct frame {
	u64 next, return_address;
};

struct chain {
	u64 count;
	u64 frames[FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} chains SEC(".maps");

SEC("perf_event")
int walk(struct bpf_perf_event_data *context)
{
	struct chain chain = {};
	struct frame frame;
	u64 bp = context->regs.bp;

	/* The sample hit the kernel: these are not the registers of user space. */
	if ((context->regs.cs & 3) != 3)
		return 1;
	chain.frames[0] = context->regs.ip;
	chain.count = 1;
#pragma unroll
	for (int i = 1; i < FRAMES; i++) {
		if (bpf_probe_read_user(&frame, sizeof(frame), bp) || !frame.return_address)
			break;
		chain.frames[i] = frame.return_address;
		chain.count = i + 1;
		/* The stack grows downwards: a caller's frame lies above. */
		if (frame.next <= bp)
			break;
		bp = frame.next;
	}
	bpf_perf_event_output(context, &chains, BPF_F_CURRENT_CPU, &chain, sizeof(chain));
	return 1;
}

char _license[] SEC("license") = "GPL";
