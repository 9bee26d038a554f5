/* A function of which the compiler makes one clone for each processor, chosen by its model. */
#include <stdio.h>

#if defined(__clang__) || __GNUC__ < 13
#define CLONES "arch=skylake-avx512", "arch=skylake", "avx2", "default"
#else
#define CLONES "arch=skylake-avx512", "arch=skylake", "arch=znver4", "arch=znver3", "avx2", "default"
#endif

/* Where there are masks, GCC uses them for the condition. */
__attribute__((noinline, target_clones(CLONES)))
void choose(unsigned *a, const unsigned *b, const unsigned *c, int n) {
    for (int i = 0; i < n; i++)
        if (b[i] > 7 * c[i]) a[i] += b[i] * c[i] + 3;
}

int main(void) {
    static unsigned a[1024], b[1024], c[1024];
    for (unsigned i = 0; i < 1024; i++) a[i] = i, b[i] = i * 2654435761u, c[i] = i * 40503u;
    choose(a, b, c, 1024);
    unsigned sum = 0;
    for (int i = 0; i < 1024; i++) sum = sum * 31 + a[i];
    printf("sum %u\n", sum);
    __builtin_cpu_init();
    printf("avx512f %d avx2 %d\n", !!__builtin_cpu_supports("avx512f"), !!__builtin_cpu_supports("avx2"));
    printf("skylake-avx512 %d\n", !!__builtin_cpu_is("skylake-avx512"));
    printf("skylake %d nehalem %d\n", !!__builtin_cpu_is("skylake"), !!__builtin_cpu_is("nehalem"));
    return 0;
}
