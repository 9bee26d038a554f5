/* deep200 OUTFILE: 200 distinct functions, each calling the next, frames of many sizes; the
 * bottom writes a snapshot. Every return address is different: the worst case for a small rule
 * cache. */
#include "snapshot.h"

#define FN __attribute__((noipa))
static const char *outfile;

FN static long f_200(long x) {
    SNAPSHOT(outfile);
    return x;
}

/* Frame and body sizes follow from the function's number, so no two neighbours are alike. */
#define SIZE(n) (16 + 8 * ((1##n * 7) % 13))
#define F(n, next)                                             \
    FN static long f_##n(long x) {                             \
        volatile char pad[SIZE(n)];                            \
        pad[x & 7] = (char)x;                                  \
        long kept = x * (1##n | 1), more = x ^ (kept >> 3);    \
        long r = f_##next(x + 1##n % 5);                       \
        if (1##n % 3 == 0) r += more;                          \
        if (1##n % 7 == 0) r ^= kept * 3 + pad[(x + 1) & 7];   \
        return r + kept + pad[x & 7];                          \
    }

/* p and q are neighbouring tens: D10(00, 01) makes f_000 to f_009, and f_009 calls f_010. The
 * callee comes first in the file, so the list runs downwards. */
#define D10(p, q)                                                      \
    F(p##9, q##0) F(p##8, p##9) F(p##7, p##8) F(p##6, p##7) F(p##5, p##6) \
    F(p##4, p##5) F(p##3, p##4) F(p##2, p##3) F(p##1, p##2) F(p##0, p##1)

D10(19, 20) D10(18, 19) D10(17, 18) D10(16, 17) D10(15, 16)
D10(14, 15) D10(13, 14) D10(12, 13) D10(11, 12) D10(10, 11)
D10(09, 10) D10(08, 09) D10(07, 08) D10(06, 07) D10(05, 06)
D10(04, 05) D10(03, 04) D10(02, 03) D10(01, 02) D10(00, 01)

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    outfile = argv[1];
    return (int)(f_000(argc) & 1) & 0;
}
