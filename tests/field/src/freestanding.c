/* No C library: _start < top < mid < leaf, which executes ud2, or spins with SPIN. */
__attribute__((noinline)) long leaf(long n)
{
#ifdef SPIN
    while (n--)
        __asm__ volatile("");
    return n;
#else
    __builtin_trap();
#endif
}

__attribute__((noinline)) long mid(long n)
{
    volatile char room[40];
    room[n & 7] = 1;
    return leaf(n) + room[1];
}

__attribute__((noinline)) long top(long n)
{
    return mid(n) + 1;
}

__attribute__((noreturn)) void begin(void)
{
    top(500000000);
    __asm__ volatile("mov $60,%eax\n xor %edi,%edi\n syscall");
    __builtin_unreachable();
}

__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n call begin\n hlt\n");
