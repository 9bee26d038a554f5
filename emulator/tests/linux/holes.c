/* Two files with holes: one of a MiB, one of 8 TiB. */
#include "start.h"

int run(word *stack) {
    (void)stack;
    long small = SYS(open, "/small", 0102, 0644), large = SYS(open, "/large", 0102, 0644);
    return SYS(ftruncate, small, 1 << 20) < 0 || SYS(ftruncate, large, 1L << 43) < 0;
}
