/* 40 functions that call each other in a ring, 100,000 calls deep; the innermost aborts. */
#include <stdlib.h>

volatile long sink;
#define STEP(here, next) \
    long next(long); \
    __attribute__((noinline)) long here(long n) \
    { \
        volatile char room[8]; \
        room[n & 7] = 1; \
        if (!n) \
            abort(); \
        return next(n - 1) + room[1]; \
    }
#define TEN(t, u) \
    STEP(f##t##0, f##t##1) STEP(f##t##1, f##t##2) STEP(f##t##2, f##t##3) STEP(f##t##3, f##t##4) \
    STEP(f##t##4, f##t##5) STEP(f##t##5, f##t##6) STEP(f##t##6, f##t##7) STEP(f##t##7, f##t##8) \
    STEP(f##t##8, f##t##9) STEP(f##t##9, f##u##0)
TEN(0, 1) TEN(1, 2) TEN(2, 3) TEN(3, 0)

int main(void)
{
    sink = f00(100000);
    return 0;
}
