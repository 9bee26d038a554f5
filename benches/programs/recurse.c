/* recurse ROUNDS: three functions that call each other to a depth that varies from round to
 * round, with work at every level: about 19 frames per sample. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FN __attribute__((noipa))
enum { DEPTH_MIN = 12, DEPTH_STEPS = 23, WORK = 60 };
static uint64_t total;

FN static uint64_t work(uint64_t x) {
    for (int i = 0; i < WORK; i++) x = x * 6364136223846793005u + (x >> 29) + 1;
    return x;
}

FN static uint64_t first(int depth, uint64_t x);

FN static uint64_t third(int depth, uint64_t x) {
    volatile uint64_t pad[24];
    pad[x & 7] = work(x);
    uint64_t r = depth > 0 ? first(depth - 1, pad[x & 7]) : x;
    return work(r + pad[x & 7]);
}

FN static uint64_t second(int depth, uint64_t x) {
    uint64_t a = work(x), b = a ^ x;
    uint64_t r = depth > 0 ? third(depth - 1, a) : b;
    return work(r + a) ^ b;
}

FN static uint64_t first(int depth, uint64_t x) {
    volatile uint64_t pad[6];
    pad[x & 3] = x;
    uint64_t a = work(x), b = a * 3, c = a ^ 77, d = b + c;
    uint64_t r = depth > 0 ? second(depth - 1, a + d) : d;
    return work(r) + a + b * c + pad[x & 3];
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    long rounds = atol(argv[1]);
    for (long i = 0; i < rounds; i++) total += first(DEPTH_MIN + (int)(i % DEPTH_STEPS) * 2 % 24, total + i);
    printf("%lu\n", (unsigned long)total);
    return 0;
}
