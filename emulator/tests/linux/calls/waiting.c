/* poll, select, futex: what is ready, and how long they wait. */
#include "cases.h"

struct fd { int fd; short events, revents; };
struct time { long seconds, rest; };

static void polling(void) {
    struct fd one[3];
    struct time none = { 0, 0 }, tiny = { 0, 1000 }, odd = { 0, 1000000000 }, minus = { -1, 0 };
    for (int events = 0; events < 8; events++)
        EACH_FD(fd, one[0] = (struct fd){ fd, 1 << events, 0x77 }; T(poll, one, 1, 0); V(one[0].revents));
    SYS(write, FD(PW), "x", 1);
    one[0] = (struct fd){ FD(PR), 1, 0 };
    one[1] = (struct fd){ FD(PW), 5, 0 };
    one[2] = (struct fd){ 90, 1, 0 };
    T(poll, one, 3, 0); V(one[0].revents); V(one[1].revents); V(one[2].revents);
    T(poll, one, 2, -1);
    SYS(read, FD(PR), out.bytes, 1);
    fill();
    T(poll, one, 1, 1);
    T(poll, one, 0, 1);
    T(poll, one, 101, 0);
    T(poll, one, -1, 0);
    T(poll, one, 1ul << 40, 0);
    EACH_BAD(p, T(poll, p, 1, 0); T(ppoll, p, 1, &none, 0, 8));
    T(ppoll, one, 1, &none, 0, 8);
    T(ppoll, one, 1, &tiny, 0, 8); V(tiny.seconds); V(tiny.rest);
    T(ppoll, one, 1, &odd, 0, 8);
    T(ppoll, one, 1, &minus, 0, 8);
    EACH_BAD_BUT_NULL(p, T(ppoll, one, 1, p, 0, 8); T(ppoll, one, 1, &none, p, 8));
    word mask = 0;
    T(ppoll, one, 1, &none, &mask, 8);
    T(ppoll, one, 1, &none, &mask, 4);
    T(ppoll, one, 1, &none, &mask, 16);
    T(ppoll, one, 1, &none, 0, 4);
    /* The other end is closed. */
    int ends[2];
    SYS(pipe, ends);
    SYS(close, ends[1]);
    one[0] = (struct fd){ ends[0], 1, 0 };
    T(poll, one, 1, 0); V(one[0].revents);
    SYS(close, ends[0]);
    SYS(pipe, ends);
    SYS(close, ends[0]);
    one[0] = (struct fd){ ends[1], 4, 0 };
    T(poll, one, 1, 0); V(one[0].revents);
    SYS(close, ends[1]);
}

#define BIT(set, fd) ((set)[(fd) / 64] |= 1ul << (fd) % 64)
static void selecting(void) {
    struct { long seconds, micros; } none = { 0, 0 }, some = { 0, 30000 }, odd = { 0, 1000000 },
        minus = { -1, 0 }, later = { 5, 0 };
    struct time nano = { 0, 30000 };
    word in[2], for_out[2], except[2];
    /* Descriptors beyond the table of open files are ignored. Its size is inherited from the
     * parent: at least 64. */
    FD(KINDS) = 40;
    EACH_FD(fd, if (fd >= 0 && fd < 64 && fd != FD(PATH)) {
        memset(in, 0, 16); memset(for_out, 0, 16); memset(except, 0, 16);
        BIT(in, fd); BIT(for_out, fd); BIT(except, fd);
        T(select, 64, in, for_out, except, &none);
        V(in[0] != 0 || in[1]); V(for_out[0] != 0 || for_out[1]); V(except[0] != 0 || except[1]); });
    memset(in, 0, 16); BIT(in, FD(PR));
    T(select, 100, in, 0, 0, &some);
    V(some.seconds); V(some.micros); V(in[0]);
    memset(in, 0, 16); BIT(in, FD(NUL));
    T(select, 100, in, 0, 0, &later);
    V(later.seconds == 4 || later.seconds == 5);
    V(in[0] != 0);
    some.micros = 1000;
    T(select, 0, 0, 0, 0, &some);
    V(some.seconds); V(some.micros);
    T(select, 0, 0, 0, 0, &odd);
    V(odd.seconds); V(odd.micros);
    T(select, 0, 0, 0, 0, &minus);
    T(select, -1, 0, 0, 0, &none);
    T(select, 1 << 30, 0, 0, 0, &none);
    memset(in, 0, 16); BIT(in, FD(NUL));
    T(select, FD(NUL), in, 0, 0, &none);
    V(in[0] >> FD(NUL) & 1);
    EACH_BAD_BUT_NULL(p, T(select, 1, p, 0, 0, &none); T(select, 1, 0, p, 0, &none); T(select, 1, 0, 0, p, &none);
                      T(select, 0, p, p, p, &none));
    EACH_BAD_BUT_NULL(p, T(select, 0, 0, 0, 0, p); T(pselect6, 0, 0, 0, 0, p, 0));
    T(pselect6, 0, 0, 0, 0, &nano, 0);
    V(nano.seconds); V(nano.rest);
    nano.rest = -1;
    T(pselect6, 0, 0, 0, 0, &nano, 0);
    nano.rest = 0;
    word mask = 0, set[2] = { (word)&mask, 8 };
    T(pselect6, 0, 0, 0, 0, &nano, set);
    set[1] = 4;
    T(pselect6, 0, 0, 0, 0, &nano, set);
    set[0] = 0;
    T(pselect6, 0, 0, 0, 0, &nano, set);
    set[0] = 4096, set[1] = 8;
    T(pselect6, 0, 0, 0, 0, &nano, set);
    EACH_BAD_BUT_NULL(p, T(pselect6, 0, 0, 0, 0, &nano, p));
}

static void futexes(void) {
    static int f[4] __attribute__((aligned(16)));
    struct time none = { 0, 0 }, odd = { 0, 1000000000 }, minus = { -1, 0 };
    for (int op = 0; op < 2; op++) EACH_BAD(p, if (i_ != 2) T(futex, p, 128 * op, 0, &none));
    T(futex, f, 0, 1, 0);
    T(futex, f, 0, 0, &none);
    T(futex, f, 128, 0, &none);
    T(futex, f, 0, 0, &odd);
    T(futex, f, 0, 0, &minus);
    EACH_BAD_BUT_NULL(p, T(futex, f, 0, 0, p));
    T(futex, (char *)f + 1, 0, 0, &none);
    T(futex, (char *)f + 2, 1, 1, 0);
    T(futex, f, 1, 1, 0);
    T(futex, f, 129, -1, 0);
    EACH_BAD(p, if (i_ != 2 && i_ != 0 && i_ != 1) T(futex, p, 1, 1, 0));
    T(futex, f, 3, 1, 1, f + 1, 0);
    T(futex, f, 4, 1, 1, f + 1, 0);
    T(futex, f, 4, 1, 1, f + 1, 5);
    T(futex, f, 5, 1, 1, f + 1, 0);
    T(futex, f, 9, 0, &none, 0, -1);
    T(futex, f, 9, 0, &none, 0, 0);
    T(futex, f, 9, 1, &none, 0, -1);
    T(futex, f, 9 | 256, 0, &none, 0, -1);
    T(futex, f, 10, 1, 0, 0, -1);
    T(futex, f, 10, 1, 0, 0, 0);
    T(futex, f, 2, 0, 0, 0, 0);
    T(futex, f, 77, 0, 0, 0, 0);
    T(futex, f, -1, 0, 0, 0, 0);
    /* FUTEX_WAKE_OP changes the second word. */
    f[1] = 5;
    T(futex, f, 5, 1, 1, f + 1, 0 << 28 | 0 << 24 | 9 << 12 | 0);
    V(f[1]);
    T(futex, f, 5, 1, 1, f + 1, 1 << 28 | 0 << 24 | 3 << 12 | 0);
    V(f[1]);
    T(futex, f, 5, 1, 1, f + 1, 7 << 28);
    T(futex, f, 5, 1, 1, 4096, 0);
}

static void cases(void) {
    polling();
    selecting();
    futexes();
}
