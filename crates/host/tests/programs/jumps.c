/* longjmp over frames, from functions with alloca and variable arrays. */
#include <alloca.h>
#include <setjmp.h>
#include <string.h>
#include "probe.h"

static jmp_buf back;

__attribute__((noinline)) static void down(int depth) {
    volatile char array[16 * (depth + 1)];
    array[0] = 1;
    if (depth) { down(depth - 1); probe(); return; }
    probe();
    longjmp(back, 1);
}

__attribute__((noinline)) static int catches(int size) {
    volatile char *before = alloca(size);
    before[0] = 0;
    if (!setjmp(back)) down(5);
    volatile char *after = alloca(size * 8);
    after[0] = 0;
    probe();
    return 0;
}

static void *saved[5];
__attribute__((noinline)) static void built_in_down(void) { __builtin_longjmp(saved, 1); }
__attribute__((noinline)) static void built_in(void) {
    if (!__builtin_setjmp(saved)) built_in_down();
    probe();
}

int main(void) {
    for (int i = 1; i < 5; i++) catches(i * 100);
    for (int i = 0; i < 3; i++) built_in();
    probe();
    return 0;
}
