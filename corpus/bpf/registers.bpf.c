/* Writes the registers that the event hands to its programs: ip, sp, bp, cs and flags. */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} outputs SEC(".maps");

SEC("perf_event")
int registers(struct bpf_perf_event_data *context)
{
	u64 words[5] = {
		context->regs.ip, context->regs.sp, context->regs.bp, context->regs.cs, context->regs.flags,
	};

	bpf_perf_event_output(context, &outputs, BPF_F_CURRENT_CPU, words, sizeof(words));
	return 1;
}

char _license[] SEC("license") = "GPL";
