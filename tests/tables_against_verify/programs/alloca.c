/* Frames whose size is known only when they are made, and frames that are aligned. */
#include <alloca.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) static int fill(char *at, int n)
{
    memset(at, 'x', n);
    return at[n / 2];
}

__attribute__((noinline)) static int grow(int n)
{
    int sum = 0;
    for (int i = 1; i < n; i++) {
        char *at = alloca(i);
        sum += fill(at, i);
    }
    return n > 3 ? sum + grow(n - 3) : sum;
}

__attribute__((noinline)) static int array(int n)
{
    long words[n];
    double aligned[4] __attribute__((aligned(64)));
    for (int i = 0; i < n; i++)
        words[i] = i * grow(3);
    aligned[n & 3] = words[n / 2];
    fill((char *)words, n);
    return (int)aligned[n & 3];
}

int main(void)
{
    int sum = 0;
    for (int n = 1; n < 20; n++)
        sum += grow(n) + array(n);
    printf("%d\n", sum);
    return 0;
}
