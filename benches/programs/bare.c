/* Three programs without system calls, for emulators, selected by rdi at the start: 0 recursive
 * fib, 1 quicksort, 2 rounds similar to those of sha256. Ends with hlt and the result in
 * rax. Built with: cc -O2 -static -nostdlib -fno-stack-protector -fno-tree-vectorize -fcf-protection=none
 * With -DPROCESS it is a Linux program, selected by the number of arguments (3 or more: none),
 * that writes the 8 bytes of the result to standard output. */
typedef unsigned long u64;
typedef unsigned int u32;

static int numbers[200000];

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static void sort(int *a, int low, int high)
{
    while (low < high) {
        int pivot = a[low + (high - low) / 2], i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot)
                i++;
            while (a[j] > pivot)
                j--;
            if (i <= j) {
                int t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        sort(a, low, j);
        low = i;
    }
}

static u32 rotate(u32 x, int n) { return x >> n | x << (32 - n); }

static u64 rounds(u64 count)
{
    u32 h[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (u64 r = 0; r < count; r++)
        for (u32 i = 0; i < 64; i++) {
            u32 s1 = rotate(h[4], 6) ^ rotate(h[4], 11) ^ rotate(h[4], 25);
            u32 t1 = h[7] + s1 + ((h[4] & h[5]) ^ (~h[4] & h[6])) + i * 0x9e3779b9u;
            u32 s0 = rotate(h[0], 2) ^ rotate(h[0], 13) ^ rotate(h[0], 22);
            u32 t2 = s0 + ((h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]));
            for (int k = 7; k > 0; k--)
                h[k] = h[k - 1];
            h[4] += t1;
            h[0] = t1 + t2;
        }
    return (u64)h[0] << 32 | h[7];
}

__attribute__((used)) u64 work(u64 which)
{
    if (which == 0)
        return (u64)fib(32);
    if (which == 1) {
        u32 seed = 12345;
        for (int i = 0; i < 200000; i++) {
            seed = seed * 1103515245u + 12345u;
            numbers[i] = (int)(seed >> 8);
        }
        sort(numbers, 0, 199999);
        return (u64)numbers[0] << 32 | (u32)numbers[199999];
    }
    return rounds(20000);
}

#ifdef PROCESS
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n xor %eax, %eax\n mov (%rsp), %rdi\n dec %rdi\n"
        " cmp $3, %rdi\n jae 1f\n call work\n1: push %rax\n push %rax\n mov %rsp, %rsi\n"
        " mov $8, %edx\n mov $1, %edi\n mov $1, %eax\n syscall\n"
        " xor %edi, %edi\n mov $60, %eax\n syscall\n");
#else
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n call work\n hlt\n");
#endif
