/* Counts samples by stacks, name and process, inside the kernel: nothing leaves it but the map.
 * Stacks that cannot be read are counted by their error. */
#include "bpf.h"

struct key {
	s64 kernel_stack;
	s64 user_stack;
	u32 pid;
	char comm[16];
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 40960);
	__type(key, struct key);
	__type(value, u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 127 * sizeof(u64));
} stacks SEC(".maps");

/* Samples that found no room in `counts`. */
u64 lost;

SEC("perf_event")
int profile(struct bpf_perf_event_data *context)
{
	struct key key = {};
	u64 one = 1, *count;

	key.pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	key.kernel_stack = bpf_get_stackid(context, &stacks, 0);
	key.user_stack = bpf_get_stackid(context, &stacks, BPF_F_USER_STACK);
	count = bpf_map_lookup_elem(&counts, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST))
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

char _license[] SEC("license") = "GPL";
