/* calltree ROUNDS: 64 distinct functions in a random call tree, called through function pointers
 * and qsort's callback, with frames of many sizes: about 24 frames per sample, many return
 * addresses, and libc frames between them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FN __attribute__((noipa))
typedef uint64_t node_fn(int depth, uint64_t x);
static node_fn *const table[64];
static uint64_t total;

FN static uint64_t work(uint64_t x) {
    for (int i = 0; i < 40; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x | 1;
}

FN static int compare(const void *a, const void *b) {
    uint64_t x = work(*(const uint64_t *)a), y = work(*(const uint64_t *)b);
    return x < y ? -1 : x > y;
}

FN static uint64_t leaf(uint64_t x) {
    uint64_t v[6];
    for (int i = 0; i < 6; i++) v[i] = x = work(x);
    qsort(v, 6, sizeof v[0], compare);
    return v[0] ^ v[5];
}

#define T(n)                                                                     \
    FN static uint64_t t##n(int depth, uint64_t x) {                             \
        volatile uint64_t pad[2 + (0x##n * 5) % 17];                             \
        pad[x & 1] = x;                                                          \
        uint64_t a = work(x + 0x##n), b = a >> 5, c = b ^ x;                     \
        uint64_t r = depth > 0 ? table[(a >> 20) & 63](depth - 1, a) : leaf(a);  \
        if (0x##n % 4 == 0) r += b * c;                                          \
        return work(r) + a + pad[x & 1];                                         \
    }
#define T8(p) T(p##0) T(p##1) T(p##2) T(p##3) T(p##4) T(p##5) T(p##6) T(p##7)
#define N8(p) t##p##0, t##p##1, t##p##2, t##p##3, t##p##4, t##p##5, t##p##6, t##p##7
T8(0) T8(1) T8(2) T8(3) T8(4) T8(5) T8(6) T8(7)
static node_fn *const table[64] = {N8(0), N8(1), N8(2), N8(3), N8(4), N8(5), N8(6), N8(7)};

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    long rounds = atol(argv[1]);
    for (long i = 0; i < rounds; i++) total += table[i & 63](18 + (int)(i % 14), total + i);
    printf("%lu\n", (unsigned long)total);
    return 0;
}
