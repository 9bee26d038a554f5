/* What the first processes of these tests need: system calls, and texts on the console. */
#include <asm/unistd.h>

typedef unsigned long word;

#define FUNCTION __attribute__((noinline, noclone))

static long call(long number, word a, word b, word c, word d, word e, word f)
{
	register word r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

#define CALL(number, a, b, c) call(number, (word)(a), (word)(b), (word)(c), 0, 0, 0)

static void print(const char *text)
{
	word length = 0;

	while (text[length])
		length++;
	CALL(__NR_write, 1, text, length);
}

static void print_number(long number)
{
	char text[24];
	int at = sizeof(text) - 1;
	int negative = number < 0;
	word rest = negative ? -number : number;

	text[at] = 0;
	do
		text[--at] = '0' + rest % 10;
	while (rest /= 10);
	if (negative)
		text[--at] = '-';
	print(text + at);
}

int main(void);

__attribute__((naked)) void _start(void)
{
	/* The outermost frame: without a caller, and without a frame pointer of one. */
	__asm__("xor %ebp, %ebp\n\tcall main\n\tmov %eax, %edi\n\tmov $60, %eax\n\tsyscall");
}
