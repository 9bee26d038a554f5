/* Frames of every kind that needs no library. */

static void leave(long status)
{
    __asm__ volatile("syscall" : : "a"(231L), "D"(status) : "rcx", "r11", "memory");
    __builtin_unreachable();
}

__attribute__((noinline)) static long variable(long n)
{
    volatile char *bytes = __builtin_alloca(n);
    long sum = 0;
    for (long i = 0; i < n; i++)
        bytes[i] = i;
    for (long i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

__attribute__((noinline)) static long twice(long n)
{
    return n < 2 ? n : twice(n - 1) + twice(n - 2) + variable(n);
}

__attribute__((noinline)) static long choose(long n)
{
    switch (n % 6) {
    case 0: return variable(n) + 1;
    case 1: return twice(n & 7) * 3;
    case 2: return variable(2 * n) - n;
    case 3: return twice(n & 3) ^ 5;
    case 4: return variable(n + 9) << 2;
    default: return twice(4) - 8;
    }
}

__attribute__((noinline, aligned(64))) static long aligned(long n)
{
    volatile long words[16] __attribute__((aligned(64)));
    for (int i = 0; i < 16; i++)
        words[i] = choose(n + i);
    return words[n & 15];
}

/* The kernel enters with rsp a multiple of 16, a call would not. */
__attribute__((force_align_arg_pointer)) void _start(void)
{
    long sum = 0;
    for (long n = 1; n < 8; n++)
        sum += aligned(n);
    leave(sum == 0);
}
