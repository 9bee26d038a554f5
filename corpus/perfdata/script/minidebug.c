/* A program whose symbols are in two places: .dynsym, and .gnu_debugdata.
   minidebug.sh builds it. */
static volatile long s;
static __attribute__((noinline)) void inner(long n) { for (long i = 0; i < n; i++) s += i; }
__attribute__((noinline)) void outer(long n) { inner(n); s++; }
__attribute__((noinline)) static void hidden(void) { outer(2000000); s++; }
void _start(void) {
    for (int i = 0; i < 2; i++) hidden();
    __asm__ volatile("syscall" : : "a"(60), "D"(0));
}
