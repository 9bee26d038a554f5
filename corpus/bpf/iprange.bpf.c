/* Writes the instruction pointer of each sample that lies in a range of the kernel's text, and
 * drops the sample itself. The map is of the old kind: a structure in the section `maps`. */
#include "bpf.h"

#define RANGE_START 0xffffffff81214b90ULL
#define RANGE_END 0xffffffff81214cd0ULL
#define CPUS_MAX 256

struct bpf_map_def {
	u32 type, key_size, value_size, max_entries;
};

struct bpf_map_def SEC("maps") channel = {
	.type = BPF_MAP_TYPE_PERF_EVENT_ARRAY,
	.key_size = sizeof(int),
	.value_size = sizeof(u32),
	.max_entries = CPUS_MAX,
};

SEC("perf_event")
int ip_range(struct bpf_perf_event_data *context)
{
	u64 ip = context->regs.ip;

	if (ip >= RANGE_START && ip < RANGE_END)
		bpf_perf_event_output(context, &channel, BPF_F_CURRENT_CPU, &ip, sizeof(ip));
	return 0;
}

char _license[] SEC("license") = "GPL";
