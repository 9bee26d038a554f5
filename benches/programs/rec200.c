/* rec200 OUTFILE: 8 functions, each 25 deep in itself before it calls the next; the bottom writes
 * a snapshot. ~200 frames but 16 return addresses: the best case for a rule cache. */
#include "snapshot.h"

#define FN __attribute__((noipa))
enum { DEPTH = 25 };
static const char *outfile;

FN static long g8(long depth, long x) {
    SNAPSHOT(outfile);
    return depth + x;
}

#define G(n, next, words)                                          \
    FN static long g##n(long depth, long x) {                      \
        volatile long pad[words];                                  \
        pad[x & 1] = x;                                            \
        long kept = x * 3 + n;                                     \
        long r = depth > 1 ? g##n(depth - 1, x + 1) : g##next(DEPTH, x); \
        return r + kept + pad[x & 1];                              \
    }

G(7, 8, 2) G(6, 7, 10) G(5, 6, 4) G(4, 5, 21)
G(3, 4, 3) G(2, 3, 14) G(1, 2, 6) G(0, 1, 33)

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    outfile = argv[1];
    return (int)(g0(DEPTH, argc) & 1) & 0;
}
