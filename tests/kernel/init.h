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

/* The number that a file begins with. */
__attribute__((unused)) static long number_in(const char *path)
{
	char text[32];
	long file = CALL(__NR_open, path, 0, 0), length, number = 0, at;

	if (file < 0)
		return file;
	length = CALL(__NR_read, file, text, sizeof(text));
	CALL(__NR_close, file, 0, 0);
	for (at = 0; at < length && text[at] >= '0' && text[at] <= '9'; at++)
		number = 10 * number + text[at] - '0';
	return at ? number : -1;
}

__attribute__((unused)) static void fill(void *to, int byte, word length)
{
	char *at = to;

	while (length--)
		*at++ = byte;
}

int main(void);

__attribute__((naked)) void _start(void)
{
	/* The outermost frame: without a caller, and without a frame pointer of one. */
	__asm__("xor %ebp, %ebp\n\tcall main\n\tmov %eax, %edi\n\tmov $60, %eax\n\tsyscall");
}
