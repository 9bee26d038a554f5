/* Memory: how it is mapped, and every way in which an access to it, or an instruction, can fail. */
#include "workload.h"
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <asm/sigcontext.h>
#include <asm/ucontext.h>
#include <linux/userfaultfd.h>

#define TOUCH(address) (*(volatile char *)(address))
#define HUGE (2UL << 20)

void group_mappings(void)
{
	static u8 pages[64];
	char *at = map(64 * PAGE);
	need("mmap", (long)at);
	for (int i = 0; i < 64; i += 2)
		TOUCH(at + i * PAGE) = 1;
	/* The area is split, joined, moved and made larger. */
	need("mprotect", S(mprotect, at + 8 * PAGE, 8 * PAGE, PROT_READ));
	S(mprotect, at + 12 * PAGE, 2 * PAGE, PROT_NONE);
	S(mprotect, at, 64 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	S(mprotect, at, 64 * PAGE, PROT_READ | PROT_WRITE);
	need("mincore", S(mincore, at, 64 * PAGE, pages));
	char *moved = (char *)S(mremap, at, 64 * PAGE, 128 * PAGE, 1);
	need("mremap", (long)moved);
	char *fixed = map(200 * PAGE);
	moved = (char *)S(mremap, moved, 128 * PAGE, 128 * PAGE, 3, fixed);
	expect("content", TOUCH(moved) == 1);
	S(mremap, moved, 128 * PAGE, 64 * PAGE, 0);
	S(mremap, moved, 64 * PAGE, 64 * PAGE, 5 /* leave the old one */, NULL);
	for (int advice = 0; advice < 26; advice++) {
		char *part = map(16 * PAGE);
		memset(part, advice, 16 * PAGE);
		if (advice == 14)
			continue;
		S(madvise, part, 8 * PAGE, advice);
		TOUCH(part) = 2;
		S(munmap, part + 4 * PAGE, 4 * PAGE);
		S(munmap, part, 16 * PAGE);
	}
	need("mlock", S(mlock, fixed, 4 * PAGE));
	S(mlock2, fixed + 8 * PAGE, 4 * PAGE, 1);
	S(munlock, fixed, 2 * PAGE);
	S(mlockall, 1 | 4);
	S(munlockall);
	ulong end = S(brk, 0);
	S(brk, end + 20 * PAGE);
	TOUCH(end + PAGE) = 1;
	S(brk, end);
	int fixed_anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	S(mmap, fixed + 2 * PAGE, 2 * PAGE, 3, fixed_anonymous, -1, 0);
	S(mmap, fixed, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | 0x100000, -1, 0);
	S(mmap, NULL, 8 * PAGE, 3, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	S(mmap, NULL, 8 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_32BIT, -1, 0);

	/* Large pages: of the kernel's choice, and reserved ones. */
	char *large = map(4 * HUGE), *aligned = (char *)(((ulong)large + HUGE - 1) & -HUGE);
	write_file("/sys/kernel/mm/transparent_hugepage/enabled", "always");
	S(madvise, aligned, 2 * HUGE, 14 /* MADV_HUGEPAGE */);
	TOUCH(aligned) = 1;
	TOUCH(aligned + HUGE) = 1;
	long pid = S(fork);
	if (pid == 0) {
		TOUCH(aligned) = 2;
		leave(0);
	}
	wait_for(pid);
	S(mprotect, aligned + PAGE, PAGE, PROT_READ);
	S(madvise, aligned + HUGE + 5 * PAGE, 3 * PAGE, 4);
	S(madvise, aligned, HUGE, 25 /* MADV_COLLAPSE */);
	S(munmap, aligned + 7 * PAGE, PAGE);
	write_file("/proc/sys/vm/nr_hugepages", "2");
	char *reserved = (char *)S(mmap, NULL, HUGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if ((long)reserved > 0) {
		TOUCH(reserved) = 1;
		S(munmap, reserved, HUGE);
	}
	write_file("/proc/sys/vm/nr_hugepages", "0");

	/* Files in memory, with what may no longer be done to them. */
	long file = need("memfd", S(memfd_create, "memory", 1 | 2));
	S(ftruncate, file, 8 * PAGE);
	char *shared = (char *)S(mmap, NULL, 8 * PAGE, 3, MAP_SHARED, file, 0);
	char *private = (char *)S(mmap, NULL, 8 * PAGE, 3, MAP_PRIVATE, file, 0);
	TOUCH(shared) = 1;
	TOUCH(private) = TOUCH(private + PAGE);
	S(msync, shared, 8 * PAGE, 4);
	S(remap_file_pages, shared, PAGE, 0, 3, 0);
	S(fcntl, file, 1033 /* F_ADD_SEALS */, 2);
	S(fcntl, file, 1033, 8);
	S(ftruncate, file, PAGE);
	S(memfd_secret, 0);
	long key = S(pkey_alloc, 0, 0);
	S(pkey_mprotect, fixed, PAGE, 3, key);
	S(pkey_free, key);

	/* Nodes, though there is one, and memory of other processes. */
	ulong nodes = 1, address = (ulong)fixed, mode;
	int status;
	S(set_mempolicy, 2, &nodes, 2);
	S(mbind, fixed, 4 * PAGE, 3, &nodes, 2, 2);
	S(get_mempolicy, &mode, &nodes, 64, fixed, 2);
	S(move_pages, 0, 1, &address, &mode, &status, 2);
	S(migrate_pages, 0, 2, &nodes, &nodes);
	S(set_mempolicy, 0, NULL, 0);
	struct iovec here = {pages, 64}, there = {fixed, 64};
	need("process_vm_readv", S(process_vm_readv, S(getpid), &here, 1, &there, 1, 0));
	need("process_vm_writev", S(process_vm_writev, S(getpid), &here, 1, &there, 1, 0));
	long self = S(pidfd_open, S(getpid), 0);
	S(process_madvise, self, &there, 1, 20, 0);
	S(process_mrelease, self, 0);
	write_file("/proc/self/clear_refs", "1");
	write_file("/proc/sys/vm/compact_memory", "1");
	write_file("/proc/sys/vm/drop_caches", "3");
	write_file("/sys/kernel/mm/ksm/run", "1");
	sleep_ms(30);
	write_file("/sys/kernel/mm/ksm/run", "2");
}

static volatile int caught, code;

/* Goes on behind the instruction, whose function has that address in rbx. */
static void go_on(int signal, siginfo_t *info, void *context)
{
	struct ucontext *user = context;
	caught = signal;
	code = info->si_code;
	if (signal != SIGTRAP)
		user->uc_mcontext.rip = user->uc_mcontext.rbx;
}

static void access(ulong address, int is_write)
{
	if (is_write)
		asm volatile("lea 1f(%%rip), %%rbx; movb $1, (%0); 1:" : : "r"(address) : "rbx", "memory");
	else
		asm volatile("lea 1f(%%rip), %%rbx; movb (%0), %%al; 1:" : : "r"(address) : "rbx", "rax");
}

static void jump(ulong address)
{
	asm volatile("lea 1f(%%rip), %%rbx; jmp *%0; 1:" : : "r"(address) : "rbx", "memory");
}

static int grow(int depth)
{
	volatile char frame[8000];
	frame[0] = depth;
	return depth ? grow(depth - 1) + frame[0] : 0;
}

static void overflow(void)
{
	handle(SIGSEGV, (void *)SIG_DFL, 0);
	grow(100000);
}

void group_faults(void)
{
	handle(SIGSEGV, go_on, SA_NODEFER);
	handle(SIGBUS, go_on, SA_NODEFER);
	char *at = map(16 * PAGE);
	/* The page of zeros first, then one of its own. */
	expect("zero", TOUCH(at) == 0);
	TOUCH(at) = 1;
	grow(200);
	long pid = S(fork);
	if (pid == 0) {
		for (int i = 0; i < 4; i++)
			TOUCH(at + i * PAGE) = 2;
		leave(TOUCH(at) == 2 ? 0 : 1);
	}
	expect("copy", wait_for(pid) == 0);
	TOUCH(at) = 3;

	long file = open_file("/init", O_RDONLY);
	char *program = (char *)S(mmap, NULL, 16 * PAGE, 3, MAP_PRIVATE, file, 0);
	expect("file", TOUCH(program + 1) == 'E');
	TOUCH(program + PAGE) = 1;
	long own = open_file("/try/mapped", O_RDWR | O_CREAT);
	S(ftruncate, own, 2 * PAGE);
	char *shared = (char *)S(mmap, NULL, 4 * PAGE, 3, MAP_SHARED, own, 0);
	TOUCH(shared) = 1;
	S(ftruncate, own, PAGE);
	access((ulong)shared + PAGE, 1);
	expect("beyond the end", caught == SIGBUS);
	S(ftruncate, own, 0);
	access((ulong)shared, 0);

	S(mprotect, at + 4 * PAGE, PAGE, PROT_NONE);
	S(mprotect, at + 5 * PAGE, PAGE, PROT_READ);
	S(munmap, at + 6 * PAGE, PAGE);
	static const struct {
		ulong address;
		int is_relative;
	} bad[] = {{4 * PAGE, 1}, {5 * PAGE, 1}, {6 * PAGE, 1}, {0, 0}, {0x1000, 0},
		   {0x7ffffffff000, 0}, {0xffff888000000000, 0}, {0xffffffff81000000, 0},
		   {0xffffffffff600000, 0}, {0xfffffe0000000000, 0}, {0x800000000000, 0}};
	for (ulong i = 0; i < LEN(bad); i++) {
		ulong address = bad[i].address + (bad[i].is_relative ? (ulong)at : 0);
		caught = 0;
		access(address, 1);
		expect("signal", caught == SIGSEGV);
		access(address, 0);
		jump(address);
	}
	/* No code there. */
	jump((ulong)at);
	/* An area that grows down, up to another one and to the limit. */
	char *down = (char *)S(mmap, NULL, 4 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	access((ulong)down, 1);
	access((ulong)down - PAGE, 1);
	expect("overflow", in_child(overflow, 500) == SIGSEGV);
	/* One page that an access lies over with its second part only. */
	S(mprotect, at + 9 * PAGE, PAGE, PROT_NONE);
	asm volatile("lea 1f(%%rip), %%rbx; movq $1, (%0); 1:" : : "r"(at + 9 * PAGE - 4) : "rbx", "memory");
}

#define RAISED(X) \
	X(divide) X(breakpoint) X(overflow) X(undefined) X(protection) X(interrupts) X(control) X(port) \
	X(register) X(vector) X(debug) X(non_canonical) X(stack_segment) X(selector) X(simd) X(x87) \
	X(alignment) X(steps) X(descriptors)
#define DECLARED(name) void raise_##name(void);
RAISED(DECLARED)
long call_32(u32 number, u32 argument);

static const ulong fatal[] = {SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGBUS};

void group_exceptions(void)
{
#define NAMED(name) raise_##name,
	static void (*const all[])(void) = {RAISED(NAMED)};
	/* Each with a handler, and each as the end of a process. */
	for (ulong i = 0; i < LEN(fatal); i++)
		handle(fatal[i], go_on, SA_NODEFER);
	for (ulong i = 0; i < LEN(all); i++)
		all[i]();
	expect("signals", caught != 0);
	for (ulong i = 0; i < LEN(fatal); i++)
		handle(fatal[i], (void *)SIG_DFL, 0);
	for (ulong i = 0; i < LEN(all); i++)
		in_child(all[i], 100);

	/* 20 is getpid for 32-bit programs. */
	long answer = call_32(20, 0);
	if (answer != -ENOSYS)
		expect("int 0x80", answer == S(getpid));
	for (int number = 3; number < 450; number += 7)
		if (number != 45 && number != 199)
			call_32(number, -1);

	S(iopl, 3);
	raise_port();
	S(iopl, 0);
	S(ioperm, 0x80, 1, 1);
	raise_port();
	S(ioperm, 0x80, 1, 0);
	struct user_desc entry = {.entry_number = 1, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1};
	S(modify_ldt, 1, &entry, sizeof(entry));
	char table[64];
	S(modify_ldt, 0, table, sizeof(table));
	asm volatile("mov %0, %%fs; mov %1, %%fs" : : "r"(0xf), "r"(0));
	ulong base;
	S(arch_prctl, ARCH_SET_FS, table);
	S(arch_prctl, ARCH_GET_FS, &base);
	expect("fs", base == (ulong)table);
	S(arch_prctl, ARCH_SET_GS, table);
	S(arch_prctl, ARCH_GET_GS, &base);
	S(arch_prctl, ARCH_GET_CPUID);
	S(arch_prctl, ARCH_SET_CPUID, 0);
	S(set_thread_area, &entry);
	S(arch_prctl, 0x1021, &base);
}

static long faults_of;
static char *area;

static int user_handler(void *page)
{
	for (;;) {
		struct uffd_msg message;
		if (S(read, faults_of, &message, sizeof(message)) != sizeof(message))
			return 0;
		ulong address = message.arg.pagefault.address & -PAGE;
		if (message.event == UFFD_EVENT_FORK || message.event != UFFD_EVENT_PAGEFAULT)
			continue;
		if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
			struct uffdio_writeprotect allow = {{address, PAGE}, 0};
			S(ioctl, faults_of, UFFDIO_WRITEPROTECT, &allow);
		} else if (address == (ulong)area) {
			struct uffdio_zeropage zero = {{address, PAGE}};
			S(ioctl, faults_of, UFFDIO_ZEROPAGE, &zero);
		} else {
			struct uffdio_copy copy = {address, (ulong)page, PAGE, UFFDIO_COPY_MODE_WP};
			S(ioctl, faults_of, UFFDIO_COPY, &copy);
		}
	}
}

void group_userfaults(void)
{
	area = map(8 * PAGE);
	char *page = map(PAGE);
	TOUCH(page) = 7;
	faults_of = need("userfaultfd", S(userfaultfd, O_CLOEXEC));
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_UNMAP};
	need("UFFDIO_API", S(ioctl, faults_of, UFFDIO_API, &api));
	struct uffdio_register range = {{(ulong)area, 8 * PAGE},
		UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
	need("UFFDIO_REGISTER", S(ioctl, faults_of, UFFDIO_REGISTER, &range));
	struct thread thread;
	need("thread", thread_start(&thread, user_handler, page));
	expect("zero", TOUCH(area) == 0);
	expect("copied", TOUCH(area + PAGE) == 7);
	TOUCH(area + PAGE) = 8;
	/* The kernel faults, for a system call. */
	expect("read", S(pread64, open_file("/init", O_RDONLY), area + 3 * PAGE, 100, 0) == 100);
	S(munmap, area + 6 * PAGE, PAGE);
	S(ioctl, faults_of, UFFDIO_UNREGISTER, &range);
}
