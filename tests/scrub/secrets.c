/* Holds secrets where programs hold them: in its environment and arguments, on the heap, in buffers of
 * files, on the stack at odd addresses, and in registers that functions save. SECRETS names a file
 * with one secret in each line of 24 characters. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 25

static char *heap[4096];
static volatile unsigned long work;

__attribute__((noinline)) void tick(unsigned long n)
{
	work += n * n;
}

/* Saves every register that a function must preserve, so that they are on the stack. */
__attribute__((noinline)) void leaf(void)
{
	__asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory");
	for (unsigned long i = 0; i < 3; i++)
		tick(i);
}

/* with_registers(WORDS): calls leaf with the words in rbx, rbp, r12 to r15 and xmm0. Its own row
 * depends on rsp alone. */
void with_registers(const uint64_t *words);
__asm__(".text\n"
	".type with_registers, @function\n"
	"with_registers:\n"
	".cfi_startproc\n"
	"push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbp, 0\n"
	"push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbx, 0\n"
	"push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset r12, 0\n"
	"push %r13\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset r13, 0\n"
	"push %r14\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset r14, 0\n"
	"push %r15\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset r15, 0\n"
	"sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
	"movdqu (%rdi), %xmm0\n"
	"mov (%rdi), %rbp\n"
	"mov 8(%rdi), %rbx\n"
	"mov 16(%rdi), %r12\n"
	"mov (%rdi), %r13\n"
	"mov 8(%rdi), %r14\n"
	"mov 16(%rdi), %r15\n"
	"mov (%rdi), %rax\n"
	"mov 8(%rdi), %r11\n"
	"call leaf\n"
	"add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
	"pop %r15\n.cfi_adjust_cfa_offset -8\n.cfi_restore r15\n"
	"pop %r14\n.cfi_adjust_cfa_offset -8\n.cfi_restore r14\n"
	"pop %r13\n.cfi_adjust_cfa_offset -8\n.cfi_restore r13\n"
	"pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore r12\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbx\n"
	"pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbp\n"
	"ret\n"
	".cfi_endproc\n"
	".size with_registers, .-with_registers\n");

/* Leaves secrets on the stack, at an address that is no multiple of 8, and goes deeper. */
__attribute__((noinline)) void deeper(const char *from, int depth)
{
	char copy[3 * LINE + 3];

	memcpy(copy + 1 + depth % 7, from, 2 * LINE);
	if (depth)
		deeper(from + LINE, depth - 1);
	uint64_t words[3];
	memcpy(words, from, sizeof words);
	with_registers(words);
	__asm__ volatile("" :: "r"(copy) : "memory");
}

int main(int argc, char **argv)
{
	static char file[1 << 16];
	char buffer[8192];
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	int fd = open(getenv("SECRETS"), O_RDONLY);
	long size = read(fd, file, sizeof file);
	int lines = size / LINE;

	for (int i = 0; i < lines; i++)
		heap[i] = strndup(file + i * LINE, LINE - 1);
	lseek(fd, 0, SEEK_SET);
	if (read(fd, buffer, sizeof buffer) < 0)
		return 2;
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i + 16 <= lines; i += 12)
			deeper(heap[i] ? file + i * LINE : file, 3);
	__asm__ volatile("" :: "r"(buffer) : "memory");
	if (getenv("ABORT"))
		abort();
	return work == 42;
}
