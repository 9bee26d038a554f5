/*
 * Attaches the BPF programs of corpus/bpf to perf events, lets these happen, and prints what the programs left, and
 * the events' samples, so that `perf bpf --against` can run the same programs on the same samples: see
 * docs/in-vivo.md. It is the first process of a kernel.
 *
 *   gcc -Os -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-stack-protector -fno-builtin \
 *       -ffreestanding -nostdlib -static -no-pie -Wa,-Icorpus/bpf tests/kernel/handlers.c -o handlers
 *
 * Each line begins with the name of a run. `NAME: ..` is a line of its maps, `NAME.data: ..` are bytes of a perf.data.
 */
#include <elf.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>

#include "init.h"

#define PAGE 4096
#define PAGES 128
#define INSNS_MAX 512
#define CLOCK_PERIOD 20000
#define ROUNDS_MAX 60

#define OBJECT(name)                                                                               \
	extern const char name[];                                                                  \
	__asm__(".section .rodata\n.balign 8\n" #name ": .incbin \"" #name ".bpf.o\"\n.text")

OBJECT(profile);
OBJECT(lines);
OBJECT(registers);
OBJECT(walk);
OBJECT(stacks);

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static void failed(const char *what, long error)
{
	print(what);
	print(" failed: ");
	print_number(error);
	print("\n");
}

/* What is printed: a line at a time, since each is a system call. */

static char line[1 << 16];
static word line_length;

static void add(const char *text)
{
	while (*text)
		line[line_length++] = *text++;
}

static void add_bytes(const void *from, word length, const char *between)
{
	static const char digits[] = "0123456789ABCDEF";
	const unsigned char *at = from;

	while (length--) {
		line[line_length++] = digits[*at >> 4];
		line[line_length++] = digits[*at++ & 15];
		if (length)
			add(between);
	}
}

static void end_line(void)
{
	add("\n");
	CALL(__NR_write, 1, line, line_length);
	line_length = 0;
}

/* Maps. */

struct map {
	const char *name;
	unsigned int type, key, value, entries;
	long file;
};

static long bpf(int command, union bpf_attr *attr)
{
	return CALL(__NR_bpf, command, attr, sizeof(*attr));
}

static void create(struct map *map)
{
	union bpf_attr attr;

	fill(&attr, 0, sizeof(attr));
	attr.map_type = map->type;
	attr.key_size = map->key;
	attr.value_size = map->value;
	attr.max_entries = map->entries;
	map->file = bpf(BPF_MAP_CREATE, &attr);
	if (map->file < 0)
		failed("BPF_MAP_CREATE", map->file);
}

/* As bpftool prints the entries of a map. */
static void dump(const char *run, struct map *map)
{
	static char key[64], next[64], value[PAGE];
	union bpf_attr attr;
	int is_first = 1;

	add(run);
	add(": map ");
	add(map->name);
	end_line();
	for (;;) {
		fill(&attr, 0, sizeof(attr));
		attr.map_fd = map->file;
		attr.key = is_first ? 0 : (word)key;
		attr.next_key = (word)next;
		if (bpf(BPF_MAP_GET_NEXT_KEY, &attr))
			break;
		is_first = 0;
		__builtin_memcpy(key, next, sizeof(key));
		attr.key = (word)key;
		attr.value = (word)value;
		if (bpf(BPF_MAP_LOOKUP_ELEM, &attr))
			continue;
		add(run);
		add(": key: ");
		add_bytes(key, map->key, " ");
		add("  value: ");
		add_bytes(value, map->value, " ");
		end_line();
	}
}

/* Objects: sections, symbols, and relocations against maps and functions. */

static const Elf64_Shdr *section(const char *object, unsigned int index)
{
	const Elf64_Ehdr *head = (void *)object;

	return (void *)(object + head->e_shoff + index * sizeof(Elf64_Shdr));
}

static const char *section_name(const char *object, unsigned int index)
{
	const Elf64_Ehdr *head = (void *)object;

	return object + section(object, head->e_shstrndx)->sh_offset + section(object, index)->sh_name;
}

static struct bpf_insn code[INSNS_MAX];

static void relocate(const char *object, const Elf64_Rel *rel, word first, word text, struct map *maps)
{
	const Elf64_Ehdr *head = (void *)object;
	const Elf64_Shdr *symbols = 0;
	const Elf64_Sym *symbol;
	const char *name, *place;
	word at = first + rel->r_offset / 8;
	unsigned int index;

	for (index = 0; index < head->e_shnum; index++)
		if (section(object, index)->sh_type == SHT_SYMTAB)
			symbols = section(object, index);
	symbol = (void *)(object + symbols->sh_offset);
	symbol += ELF64_R_SYM(rel->r_info);
	name = object + section(object, symbols->sh_link)->sh_offset + symbol->st_name;
	place = section_name(object, symbol->st_shndx);

	if (code[at].code == (BPF_JMP | BPF_CALL)) {
		code[at].imm = text + symbol->st_value / 8 + code[at].imm + 1 - (at + 1);
		return;
	}
	for (; maps->name; maps++) {
		/* A map, or a variable in one. */
		if (same(maps->name, name)) {
			code[at].src_reg = BPF_PSEUDO_MAP_FD;
			code[at].imm = maps->file;
		} else if (same(maps->name, place)) {
			code[at].src_reg = BPF_PSEUDO_MAP_VALUE;
			code[at + 1].imm = symbol->st_value + code[at].imm;
			code[at].imm = maps->file;
		}
	}
}

/* A program of an object, by its section, with the functions that it calls behind it. */
static long load(const char *object, const char *name, int type, struct map *maps)
{
	const Elf64_Ehdr *head = (void *)object;
	word length = 0, text = 0;
	unsigned int index, entry = 0, functions = 0;
	union bpf_attr attr;
	long program;

	for (index = 0; index < head->e_shnum; index++) {
		if (same(section_name(object, index), name))
			entry = index;
		if (same(section_name(object, index), ".text"))
			functions = index;
	}
	text = section(object, entry)->sh_size / 8;
	length = text + section(object, functions)->sh_size / 8;
	__builtin_memcpy(code, object + section(object, entry)->sh_offset, 8 * text);
	__builtin_memcpy(code + text, object + section(object, functions)->sh_offset, 8 * (length - text));

	for (index = 0; index < head->e_shnum; index++) {
		const Elf64_Shdr *found = section(object, index);
		const Elf64_Rel *rel = (void *)(object + found->sh_offset);
		word count = found->sh_size / sizeof(*rel);

		if (found->sh_type == SHT_REL && (found->sh_info == entry || found->sh_info == functions))
			for (; count--; rel++)
				relocate(object, rel, found->sh_info == entry ? 0 : text, text, maps);
	}

	fill(&attr, 0, sizeof(attr));
	attr.prog_type = type;
	attr.insns = (word)code;
	attr.insn_cnt = length;
	attr.license = (word) "GPL";
	program = bpf(BPF_PROG_LOAD, &attr);
	if (program < 0)
		failed("BPF_PROG_LOAD", program);
	return program;
}

/* Events. */

struct event {
	struct perf_event_attr attr;
	long file;
	char *ring;
};

static volatile word sink;

static void open_event(struct event *event, long pid, long leader)
{
	int at;

	event->file = call(__NR_perf_event_open, (word)&event->attr, pid, pid ? 0 : -1, leader, 0, 0);
	event->ring = (char *)call(__NR_mmap, 0, (PAGES + 1) * PAGE, 3, 1, event->file, 0);
	if (event->file < 0)
		failed("perf_event_open", event->file);
	/* A fault on it would allocate memory, where a program may be attached. */
	for (at = 0; at <= PAGES; at++)
		sink += event->ring[at * PAGE];
}

/*
 * Closes an event, with a copy of its ring. A program that is attached to a tracepoint runs for all tasks, whether
 * the event is on or not: before anything is printed it has to be gone.
 */
static void close_event(struct event *event, char *copy)
{
	__builtin_memcpy(copy, event->ring, (PAGES + 1) * PAGE);
	CALL(__NR_munmap, event->ring, (PAGES + 1) * PAGE, 0);
	CALL(__NR_close, event->file, 0, 0);
	event->ring = copy;
}

static char samples[(PAGES + 1) * PAGE], written[(PAGES + 1) * PAGE];

/* As many bytes in a line as perf.data's readers of this text get at once. */
static void dump_bytes(const char *run, const char *from, word length)
{
	while (length) {
		word part = length < 1024 ? length : 1024;

		add(run);
		add(".data: ");
		add_bytes(from, part, "");
		end_line();
		from += part;
		length -= part;
	}
}

/* A perf.data of an event: its attribute, the name of this process, and what is in the ring. */
static void dump_data(const char *run, struct event *event)
{
	static struct {
		char magic[8];
		word size, attr_size, attrs[2], data[2], types[2], features[4];
		struct perf_event_attr attr;
		word ids[2];
		struct perf_event_header head;
		unsigned int pid, tid;
		char comm[16];
	} file;
	struct perf_event_mmap_page *page = (void *)event->ring;
	word length = page->data_head;

	if (length > PAGES * PAGE)
		failed("the ring", length);
	fill(&file, 0, sizeof(file));
	__builtin_memcpy(file.magic, "PERFILE2", 8);
	file.size = (char *)&file.attr - file.magic;
	file.attr_size = sizeof(file.attr) + sizeof(file.ids);
	file.attrs[0] = file.size;
	file.attrs[1] = file.attr_size;
	file.data[0] = (char *)&file.head - file.magic;
	file.data[1] = sizeof(file) - file.data[0] + length;
	file.attr = event->attr;
	file.head.type = PERF_RECORD_COMM;
	file.head.size = sizeof(file) - file.data[0];
	file.pid = file.tid = CALL(__NR_getpid, 0, 0, 0);
	CALL(__NR_prctl, 16, file.comm, 0);
	dump_bytes(run, file.magic, sizeof(file));
	dump_bytes(run, event->ring + PAGE, length);
}

/* What a program wrote: the payload of each raw sample. */
static void dump_outputs(const char *run, const char *map, struct event *event)
{
	struct perf_event_mmap_page *page = (void *)event->ring;
	char *at = event->ring + PAGE, *end = at + page->data_head;

	add(run);
	add(": map ");
	add(map);
	end_line();
	for (; at < end; at += ((struct perf_event_header *)at)->size) {
		if (((struct perf_event_header *)at)->type != PERF_RECORD_SAMPLE)
			failed("a record of outputs", ((struct perf_event_header *)at)->type);
		add(run);
		add(": output: ");
		add_bytes(at + 12, *(unsigned int *)(at + 8), " ");
		end_line();
	}
}

/* What happens while events are on. */

FUNCTION void spins(int depth)
{
	int round;

	if (depth)
		spins(depth - 1);
	for (round = 0; round < 3000; round++)
		sink++;
}

FUNCTION void works(void)
{
	static char text[PAGE];
	word at, length = 32 * PAGE;
	char *pages = (char *)call(__NR_mmap, 0, length, 3, 0x22, -1, 0);
	int round;

	for (round = 0; round < 8; round++) {
		long file = CALL(__NR_open, "/proc/self/smaps", 0, 0);

		while (CALL(__NR_read, file, text, sizeof(text)) > 0)
			;
		/* Into a page that is not there yet. */
		CALL(__NR_lseek, file, 0, 0);
		CALL(__NR_read, file, pages + round * PAGE + 8, 64);
		CALL(__NR_close, file, 0, 0);
		spins(round);
	}
	for (at = 8 * PAGE; at < length; at += PAGE)
		pages[at] = 1;
	CALL(__NR_munmap, pages, length, 0);
}

static void clear(struct event *event, word config, word period)
{
	fill(event, 0, sizeof(*event));
	event->attr.size = sizeof(event->attr);
	event->attr.type = PERF_TYPE_SOFTWARE;
	event->attr.config = config;
	event->attr.sample_period = period;
	event->attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR |
				  PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN |
				  PERF_SAMPLE_REGS_INTR;
	/* All registers but segments that 64-bit code has not. */
	event->attr.sample_regs_intr = 0xff0fff;
	event->attr.disabled = 1;
}

/* A program and what it is loaded as. */
struct program {
	const char *object, *section;
	int type;
};

static void attach(struct event *event, struct program program, struct map *maps)
{
	long file = load(program.object, program.section, program.type, maps);
	long error = CALL(__NR_ioctl, event->file, PERF_EVENT_IOC_SET_BPF, file);

	if (error)
		failed("PERF_EVENT_IOC_SET_BPF", error);
}

/* A program that keeps its samples. If its maps have one of outputs, it is the first. */
static void keeps(const char *run, struct program program, struct map *maps, struct event event)
{
	struct event output;
	struct map *map;
	word enough = (event.attr.sample_stack_user ? 64 : 12) * PAGE;
	struct perf_event_mmap_page *page;
	int rounds = 0, has_output = maps->type == BPF_MAP_TYPE_PERF_EVENT_ARRAY;

	for (map = maps; map->name; map++)
		create(map);
	if (has_output) {
		unsigned int cpu = 0, file;
		union bpf_attr attr;

		clear(&output, PERF_COUNT_SW_BPF_OUTPUT, 1);
		output.attr.sample_type = PERF_SAMPLE_RAW;
		output.attr.disabled = 0;
		open_event(&output, -1, -1);
		file = output.file;
		fill(&attr, 0, sizeof(attr));
		attr.map_fd = maps->file;
		attr.key = (word)&cpu;
		attr.value = (word)&file;
		if (bpf(BPF_MAP_UPDATE_ELEM, &attr))
			print("BPF_MAP_UPDATE_ELEM failed\n");
	}
	open_event(&event, event.attr.type == PERF_TYPE_TRACEPOINT ? -1 : 0, -1);
	page = (void *)event.ring;
	attach(&event, program, maps);
	CALL(__NR_ioctl, event.file, PERF_EVENT_IOC_ENABLE, 0);
	/* A timer may be as rare as the kernel's tick. */
	do
		works();
	while (event.attr.type == PERF_TYPE_SOFTWARE && ++rounds < ROUNDS_MAX && page->data_head < enough);
	CALL(__NR_ioctl, event.file, PERF_EVENT_IOC_DISABLE, 0);
	close_event(&event, samples);
	if (has_output)
		close_event(&output, written);
	dump_data(run, &event);
	for (map = maps; map->name; map++) {
		if (map->type == BPF_MAP_TYPE_PERF_EVENT_ARRAY)
			dump_outputs(run, map->name, &output);
		else
			dump(run, map);
	}
}

/* A program that drops its samples, and an event of the same kind without one, which has the same samples. */
static void drops(const char *run, struct program program, struct map *maps, word config, word without)
{
	struct event event, beside;
	struct map *map;

	for (map = maps; map->name; map++)
		create(map);
	clear(&event, config, 1);
	event.attr.sample_type &= ~without;
	clear(&beside, config, 1);
	open_event(&event, 0, -1);
	open_event(&beside, 0, event.file);
	attach(&event, program, maps);
	CALL(__NR_ioctl, event.file, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
	works();
	CALL(__NR_ioctl, event.file, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
	close_event(&event, written);
	close_event(&beside, samples);
	dump_data(run, &beside);
	for (map = maps; map->name; map++)
		dump(run, map);
}

#define PROFILE_MAPS                                                                               \
	{                                                                                          \
		{ "counts", BPF_MAP_TYPE_HASH, 40, 8, 40960, 0 },                                  \
		{ "stacks", BPF_MAP_TYPE_STACK_TRACE, 4, 127 * 8, 16384, 0 },                      \
		{ ".bss", BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0 },                                        \
		{ 0, 0, 0, 0, 0, 0 },                                                              \
	}

#define OUTPUTS(name) { name, BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 4, 256, 0 }
#define END { 0, 0, 0, 0, 0, 0 }

#define STACKS_MAPS                                                                                \
	{                                                                                          \
		OUTPUTS("records"),                                                                \
		{ "stacks", BPF_MAP_TYPE_STACK_TRACE, 4, 20 * 8, 16, 0 },                          \
		{ "reused", BPF_MAP_TYPE_STACK_TRACE, 4, 20 * 8, 8, 0 },                           \
		{ "counts", BPF_MAP_TYPE_HASH, 8, 8, 4096, 0 },                                    \
		END,                                                                               \
	}

static struct program of_event(const char *object)
{
	struct program program = { object, "perf_event", BPF_PROG_TYPE_PERF_EVENT };

	return program;
}

/* Its programs walk stacks, or take the sample's own. */
static void stack_programs(void)
{
	struct map takes[] = STACKS_MAPS, points[] = STACKS_MAPS, probes[] = STACKS_MAPS;
	struct program tracepoint = { stacks, "tracepoint/kmem/mm_page_alloc", BPF_PROG_TYPE_TRACEPOINT };
	struct program kprobe = { stacks, "kprobe/vfs_open", BPF_PROG_TYPE_KPROBE };
	struct event event;

	clear(&event, PERF_COUNT_SW_CPU_CLOCK, CLOCK_PERIOD);
	keeps("stacks-chain", of_event(stacks), takes, event);

	clear(&event, 0, 1);
	event.attr.type = PERF_TYPE_TRACEPOINT;
	event.attr.config = number_in("/sys/kernel/tracing/events/kmem/mm_page_alloc/id");
	event.attr.sample_type |= PERF_SAMPLE_RAW;
	keeps("tracepoint", tracepoint, points, event);

	clear(&event, 0, 1);
	event.attr.type = number_in("/sys/bus/event_source/devices/kprobe/type");
	event.attr.config1 = (word) "vfs_open";
	keeps("kprobe", kprobe, probes, event);
}

int main(void)
{
	struct map walks[] = PROFILE_MAPS, takes[] = PROFILE_MAPS;
	struct map counts[] = { { "lines", BPF_MAP_TYPE_HASH, 8, 16, 65536, 0 }, END };
	struct map outputs[] = { OUTPUTS("outputs"), END }, chains[] = { OUTPUTS("chains"), END };
	struct event event;

	call(__NR_mount, (word) "proc", (word) "/proc", (word) "proc", 0, 0, 0);
	call(__NR_mount, (word) "sysfs", (word) "/sys", (word) "sysfs", 0, 0, 0);
	call(__NR_mount, (word) "tracefs", (word) "/sys/kernel/tracing", (word) "tracefs", 0, 0, 0);

	/* Their pages are there from now on. */
	fill(samples, 0, sizeof(samples));
	fill(written, 0, sizeof(written));

	/* Helpers that walk, and those that take the sample's own callchain. */
	drops("profile", of_event(profile), walks, PERF_COUNT_SW_PAGE_FAULTS, PERF_SAMPLE_CALLCHAIN);
	drops("profile-chain", of_event(profile), takes, PERF_COUNT_SW_PAGE_FAULTS, 0);

	clear(&event, PERF_COUNT_SW_CPU_CLOCK, CLOCK_PERIOD);
	keeps("lines", of_event(lines), counts, event);
	keeps("registers", of_event(registers), outputs, event);
	event.attr.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	event.attr.sample_regs_user = event.attr.sample_regs_intr;
	event.attr.sample_stack_user = 2048;
	keeps("walk", of_event(walk), chains, event);

	stack_programs();

	CALL(__NR_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_POWER_OFF);
	return 0;
}
