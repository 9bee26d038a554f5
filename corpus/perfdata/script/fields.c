/* Spins, touches pages and makes system calls, three calls deep; fields.sh builds and records it. */
#define NOINLINE __attribute__((noinline, noipa))

static long call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = 0;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

volatile long watched = 1;

NOINLINE void inner(volatile char *pages, int round)
{
	for (int i = 0; i < 40000; i++)
		__asm__ volatile("");
	watched = round;
	pages[round * 4096] = 1;
	call(39, 0, 0, 0, 0, 0); /* getpid */
	/* The kernel faults: getcwd into a fresh page. */
	call(79, (long)pages + (8 + round) * 4096, 64, 0, 0, 0);
}

NOINLINE void middle(volatile char *pages, int round)
{
	inner(pages, round);
	watched++;
}

NOINLINE int outer(void)
{
	char *pages = (char *)call(9, 0, 16 * 4096, 3, 0x22, -1); /* mmap */
	for (int round = 0; round < 4; round++)
		middle(pages, round);
	return 0;
}

__attribute__((noreturn)) void _start(void)
{
	__asm__ volatile("and $-16, %rsp");
	call(60, outer(), 0, 0, 0, 0);
	__builtin_unreachable();
}
