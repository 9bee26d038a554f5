/* Moves an anonymous copy of its code over the code, as programs do for huge pages, then spins or
   aborts (with an argument): main < top < mid < leaf. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int is_crash;

__attribute__((noinline)) long leaf(long n)
{
    if (is_crash)
        abort();
    while (n--)
        __asm__ volatile("");
    return n;
}

__attribute__((noinline)) long mid(long n)
{
    volatile char room[40];
    room[n & 3] = 1;
    return leaf(n) + room[2];
}

__attribute__((noinline)) long top(long n)
{
    long sum = 0;
    for (int i = 0; i < 60; i++)
        sum += mid(n);
    return sum;
}

int main(int count, char **arguments)
{
    (void)arguments;
    is_crash = count > 1;
    uintptr_t own = (uintptr_t)&main, start = 0, end = 0;
    char line[400];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        sscanf(line, "%lx-%lx", &from, &to);
        if (from <= own && own < to) {
            start = from;
            end = to;
        }
    }
    fclose(maps);
    size_t size = end - start;
    char *copy = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, (void *)start, size);
    mprotect(copy, size, PROT_READ | PROT_EXEC);
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) != (void *)start)
        return 2;
    return top(8000000) & 1;
}
