/* Pseudo-terminals: settings, lines and characters, echo, output, packets, the end of one side. */
#include "terminals.h"

static void settings(void) {
    struct termios new;
    int word_ = 0;
    for (int i = 0; i < 3; i++) {
        static const word get[] = { TCGETS, TCGETA, TCGETS2 };
        T(ioctl, s, get[i], out.bytes);
        T(ioctl, m, get[i], out.bytes);
        EACH_BAD(p, T(ioctl, s, get[i], p));
    }
    new = before;
    new.in = 0x12345; new.out = 0x54321; new.local = 0xffff7fff; new.control = 0xdfffffff; new.line = 7;
    T(ioctl, s, TCSETS, &new); T(ioctl, s, TCGETS2, out.bytes);
    new.control = 0x10b2;
    T(ioctl, s, TCSETS, &new); T(ioctl, s, TCGETS2, out.bytes);
    new.control = 0xd | 0xb0000; new.speeds[0] = 77; new.speeds[1] = 88;
    T(ioctl, s, TCSETS2, &new); T(ioctl, s, TCGETS2, out.bytes);
    new.control = 0x1000;
    T(ioctl, s, TCSETS2, &new); T(ioctl, s, TCGETS2, out.bytes);
    T(ioctl, s, TCGETA, out.bytes);
    T(ioctl, s, TCGETA, &new); new.in ^= 0x10001;
    T(ioctl, s, TCSETA, &new); T(ioctl, s, TCGETS, out.bytes);
    T(ioctl, m, TCSETS, &before); T(ioctl, s, TCGETS2, out.bytes);
    EACH_BAD(p, T(ioctl, s, TCSETS, p));
    short size[4] = { 25, 81, 3, 4 };
    T(ioctl, s, TIOCGWINSZ, out.bytes); T(ioctl, m, TIOCGWINSZ, out.bytes);
    T(ioctl, m, TIOCSWINSZ, size); T(ioctl, s, TIOCGWINSZ, out.bytes);
    EACH_BAD(p, T(ioctl, s, TIOCGWINSZ, p); T(ioctl, s, TIOCSWINSZ, p));
    T(ioctl, s, TIOCGETD, out.bytes); T(ioctl, s, TIOCOUTQ, out.bytes);
    T(ioctl, s, TIOCGSOFTCAR, out.bytes); T(ioctl, m, TIOCGSOFTCAR, out.bytes);
    T(ioctl, m, TIOCGPTLCK, out.bytes); T(ioctl, s, TIOCGPTLCK, out.bytes);
    T(ioctl, s, TIOCGPTN, out.bytes); T(ioctl, s, TIOCSPTLCK, &word_); T(ioctl, s, TIOCPKT, &word_);
    T(ioctl, m, TIOCGPKT, out.bytes); T(ioctl, s, TIOCGPKT, out.bytes);
    T(ioctl, s, TIOCGPTPEER, 2);
    T(ioctl, s, TCSBRK, 0); T(ioctl, s, TCSBRK, 1); T(ioctl, s, TCSBRKP, 0); T(ioctl, m, TCSBRK, 1);
    T(ioctl, s, TCXONC, 9); T(ioctl, s, TCFLSH, 9); T(ioctl, m, TCFLSH, 9);
    T(ioctl, s, 0x5499, 0); T(ioctl, s, 0x5415, out.bytes); T(ioctl, s, 0x12345, 0);
    T(ioctl, s, TIOCSCTTY, 0); T(ioctl, s, TIOCNOTTY, 0); T(ioctl, m, TIOCNOTTY, 0);
    T(ioctl, s, TIOCGPGRP, out.bytes); T(ioctl, s, TIOCGSID, out.bytes);
    T(ioctl, m, TIOCGPGRP, out.bytes); T(ioctl, m, TIOCGSID, out.bytes);
    T(ioctl, s, TIOCSPGRP, &word_);
    EACH_BAD(p, T(ioctl, s, TIOCSPGRP, p));
    T(ioctl, s, TIOCEXCL, 0); T(ioctl, s, TIOCGEXCL, out.bytes); T(ioctl, s, TIOCNXCL, 0);
    T(ioctl, s, TIOCGEXCL, out.bytes);
    T(lseek, s, 0, 1); T(lseek, m, 3, 0); T(pread64, s, out.bytes, 1, 0); T(pwrite64, m, "x", 1, 0);
    T(ftruncate, s, 0); T(fsync, s); T(mmap, 0, 4096, 1, 1, s, 0);
    HIDE(DEVICE_STAT); T(fstat, s, out.bytes);
    HIDE(DEVICE_STAT); T(stat, path, out.bytes);
    SYS(fstat, s, out.bytes);
    int mode = out.ints[6];
    fill();
    V(mode & 0170000);
    T(fcntl, s, 3, 0); T(fcntl, m, 3, 0);
    char self[] = "/proc/self/fd/00";
    self[14] = '0' + s / 10; self[15] = '0' + s % 10;
    long got = SYS(readlink, self, out.bytes, OUT);
    int is_path = got == (long)length(path) && same(out.bytes, path, got);
    fill();
    V(is_path);
    int again = SYS(open, self, O_RDONLY | O_NOCTTY);
    V(again >= 0); T(fcntl, again, 3, 0); T(write, again, "x", 1);
    T(close, again);
    V(events(s, 0)); V(events(m, 0));
    T(read, s, out.bytes, 0); T(read, m, out.bytes, 0); T(write, s, "", 0); T(write, m, "", 0);
}

static void lines(void) {
    TYPE("hello\n"); V(events(s, 0)); T(ioctl, s, FIONREAD, out.bytes); LINE(100);
    TYPE("one\ntwo\n"); LINE(100); LINE(100);
    TYPE("part"); V(events(s, 30)); T(ioctl, s, FIONREAD, out.bytes); T(fcntl, s, 4, O_NONBLOCK | O_RDWR);
    T(read, s, out.bytes, 9); T(fcntl, s, 4, O_RDWR);
    TYPE("\4"); LINE(100);
    TYPE("\4"); V(events(s, 0)); T(ioctl, s, FIONREAD, out.bytes); LINE(100);
    TYPE("abcdef\n"); LINE(3); LINE(3); V(events(s, 0)); LINE(9);
    TYPE("abc\4def\n"); T(ioctl, s, FIONREAD, out.bytes); LINE(3); LINE(9);
    TYPE("return\r"); LINE(100);
    /* Erasing. */
    TYPE("ab\177c\177\177\177\177x\n"); LINE(100);
    TYPE("word another  \27two\27\27\27\27y\n"); LINE(100);
    TYPE("kill me\25z\n"); LINE(100);
    TYPE("tab\there\177\177\177\177\177\177\n"); LINE(100);
    TYPE("\t\tx\177\177\177\n"); LINE(100);
    TYPE("ctl\1\2\177\177\177\n"); LINE(100);
    TYPE("again\22more\n"); LINE(100);
    TYPE("lit\26\177\26\3\26\26\26\n\n"); LINE(100);
    TYPE("\26\4x\n"); LINE(100);
    TYPE("caf\303\251\177\n"); LINE(100);
    struct termios new = before;
    new.in |= 040000;
    SYS(ioctl, s, TCSETS, &new);
    TYPE("caf\303\251\177\177x\tz\177\177\n"); LINE(100);
    new = before;
    new.cc[11] = ';'; new.cc[16] = ':';
    SYS(ioctl, s, TCSETS, &new);
    TYPE("a;b:c\n"); LINE(100); LINE(100); LINE(100);
    reset();
    static const unsigned locals[] = { 0x8a3b & ~020u, 0x8a3b & ~040u, 0x8a3b & ~04000u, 0x8a3b & ~01000u,
        0x8a3b | 02000, 0x8a3b & ~010u, (0x8a3b & ~010u) | 0100, 0x8a3b & ~0100000u, 2, 012 };
    for (int i = 0; i < COUNT(locals); i++) {
        set(before.in, before.out, locals[i], 1, 0);
        TYPE("ab\1c\177d\177\177e f\27g\25h\ti\177\177\22\26j\n"); LINE(100);
        T(ioctl, s, FIONREAD, out.bytes);
        reset();
        drain("rest");
    }
    static const unsigned ins[] = { 0, 0100, 0200, 0400, 0300, 040, 01000, 010, 0500 };
    for (int i = 0; i < COUNT(ins); i++) {
        set(ins[i], before.out, before.local, 1, 0);
        TYPE("Ab\r\344\377c\n"); TYPE("\4"); LINE(100);
        T(ioctl, s, FIONREAD, out.bytes);
        reset();
        drain("rest");
    }
    static const unsigned outs[] = { 0, 1, 5, 011, 021, 041, 03, 014001, 055, 071 };
    for (int i = 0; i < COUNT(outs); i++) {
        set(before.in, outs[i], before.local, 1, 0);
        T(write, s, "\rab\tc\bd\n\r\n\te\1\177\303\251\r\rf\r\n", 22);
        drain("written");
        TYPE("q\tr\n"); LINE(100);
        reset();
    }
    /* From lines to characters and back. */
    type("kept"); arrive(m); drain("echo");
    set(before.in, before.out, before.local & ~2u, 1, 0);
    V(events(s, 0)); T(ioctl, s, FIONREAD, out.bytes); LINE(2);
    SYS(ioctl, s, TCSETS, &before);
    V(events(s, 0)); T(ioctl, s, FIONREAD, out.bytes); LINE(9);
    type("one\ntw"); drain("echo");
    set(before.in, before.out, before.local & ~2u, 1, 0); LINE(99);
    reset();
    /* Flushing. */
    type("gone\nand"); drain("echo"); T(ioctl, s, TCFLSH, 0); V(events(s, 0)); T(ioctl, s, FIONREAD, out.bytes);
    TYPE("x\n"); LINE(9);
    type("gone\n"); drain("echo"); T(ioctl, s, TCFLSH, 2); T(ioctl, s, TCFLSH, 1);
    type("gone\n"); drain("echo"); T(ioctl, s, TCSETSF, &before); T(ioctl, s, FIONREAD, out.bytes);
    T(write, s, "abc", 3); arrive(m); T(ioctl, m, FIONREAD, out.bytes); T(ioctl, m, TCFLSH, 0);
    T(ioctl, m, FIONREAD, out.bytes);
    /* A long line loses its end. */
    static char many[1000], large[5000];
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 1000; j++) many[j] = 'a' + (i * 1000 + j) % 26;
        SYS(write, m, many, 1000);
        for (long left = 1000; left > 0;) { arrive(m); left -= SYS(read, m, large, 1000); }
    }
    TYPE("\n");
    arrive(s);
    long count = SYS(read, s, large, 5000);
    V(count); V(large[4093]); V(large[4094]); V(large[count - 1]);
}

static void characters(void) {
    const unsigned raw = before.local & ~2u;
    set(0, 0, raw & ~010u, 1, 0);
    TYPE("abc"); V(events(s, 0)); T(ioctl, s, FIONREAD, out.bytes); LINE(2); LINE(9);
    set(0, 0, raw, 1, 0);
    TYPE("a\n\r\1\tb\177"); LINE(99);
    set(0400, 1, raw, 1, 0);
    TYPE("a\n\r\1\tb"); LINE(99);
    set(0, 0, 0, 4, 0);
    TYPE("ab"); V(events(s, 20)); TYPE("cd"); V(events(s, 20)); T(read, s, out.bytes, 99);
    TYPE("ab"); T(read, s, out.bytes, 2);
    TYPE("ab"); T(fcntl, s, 4, O_NONBLOCK | O_RDWR); T(read, s, out.bytes, 9); T(read, s, out.bytes, 9);
    T(fcntl, s, 4, O_RDWR);
    set(0, 0, 0, 0, 0);
    T(read, s, out.bytes, 9); TYPE("ab"); V(events(s, 0)); T(read, s, out.bytes, 9); T(read, s, out.bytes, 9);
    set(0, 0, 0, 0, 1);
    T(read, s, out.bytes, 9); TYPE("ab"); T(read, s, out.bytes, 9);
    set(0, 0, 0, 3, 1);
    TYPE("ab"); V(events(s, 0)); T(read, s, out.bytes, 9); TYPE("abcd"); T(read, s, out.bytes, 9);
    reset();
    /* The output is stopped and started. */
    TYPE("\23"); V(events(s, 0)); SYS(fcntl, s, 4, O_NONBLOCK | O_RDWR); T(write, s, "held", 4);
    TYPE("echo\n"); TYPE("\21"); T(write, s, "freed", 5); drain("written"); LINE(99);
    T(ioctl, s, TCXONC, 0); T(write, s, "held", 4); TYPE("\21x\n"); T(ioctl, s, TCXONC, 1); drain("written");
    SYS(fcntl, s, 4, O_RDWR); LINE(99);
    T(ioctl, s, TCXONC, 2); drain("stop"); T(ioctl, s, TCXONC, 3); drain("start");
    set(before.in | 04000, before.out, before.local, 1, 0);
    TYPE("\23"); TYPE("any\n"); LINE(99);
    TYPE("\23"); set(0, before.out, before.local, 1, 0); T(write, s, "on", 2); drain("written");
    reset();
}

static void packets(void) {
    int yes = 1, no = 0;
    T(ioctl, m, TIOCPKT, &yes); T(ioctl, m, TIOCGPKT, out.bytes);
    V(events(m, 0)); T(write, s, "data", 4); arrive(m); V(events(m, 0)); T(read, m, out.bytes, 99);
    T(write, s, "data", 4); arrive(m); T(read, m, out.bytes, 3); T(read, m, out.bytes, 1); T(read, m, out.bytes, 99);
    T(ioctl, s, TCFLSH, 0); V(events(m, 0)); T(read, m, out.bytes, 99);
    T(ioctl, s, TCFLSH, 1); V(events(m, 0)); T(read, m, out.bytes, 99);
    T(ioctl, s, TCFLSH, 2); V(events(m, 0)); T(read, m, out.bytes, 99);
    type("\23"); arrive(m); T(read, m, out.bytes, 99); type("\21"); arrive(m); T(read, m, out.bytes, 99);
    set(0, before.out, before.local, 1, 0); V(events(m, 0)); T(read, m, out.bytes, 99);
    set(before.in, before.out, before.local | 0200000, 1, 0); T(read, m, out.bytes, 99);
    type("a\177b\n"); arrive(s); T(read, s, out.bytes, 99); V(events(m, 20));
    reset(); T(read, m, out.bytes, 99); V(events(m, 20));
    while (events(m, 20) & 1) SYS(read, m, out.bytes, 99);
    fill();
    T(ioctl, m, TIOCPKT, &no);
    EACH_BAD(p, T(ioctl, m, TIOCPKT, p));
}

static void ends(void) {
    int no = 0;
    m = SYS(open, "/dev/ptmx", O_RDWR | O_NOCTTY);
    name_it();
    T(open, path, O_RDWR | O_NOCTTY); T(ioctl, m, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    type("early\n"); arrive(m); drain("echo");
    V(events(m, 0));
    T(ioctl, m, TIOCSPTLCK, &no);
    long peer = SYS(ioctl, m, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    V(peer >= 0); T(fcntl, peer, 3, 0);
    s = peer; LINE(99);
    T(write, s, "last", 4); T(close, s); SYS(poll, 0, 0, 50); drain("left"); V(events(m, 0)); T(read, m, out.bytes, 9);
    T(write, m, "typed\n", 6); SYS(poll, 0, 0, 50); drain("echo");
    s = SYS(open, path, O_RDWR | O_NOCTTY); V(s >= 0); V(events(m, 0)); LINE(99);
    int other = SYS(dup, s);
    T(close, m); V(events(s, 0)); T(read, s, out.bytes, 9); T(write, s, "x", 1); T(ioctl, s, TCGETS, out.bytes);
    T(ioctl, s, TIOCSPGRP, out.bytes); T(ioctl, s, FIONREAD, out.bytes); T(open, path, O_RDWR);
    T(access, path, 0); T(read, other, out.bytes, 9);
    static const struct field all[] = { { 0, 144, "a file without a name" }, NONE };
    HIDE(all); T(fstat, s, out.bytes);
    T(close, s); T(close, other);
    T(open, "/dev/pts/none", O_RDWR); T(open, "/dev/pts/99999", O_RDWR);
    T(open, "/dev/ptmx", O_RDWR | O_DIRECTORY); T(open, "/dev/ptmx", O_RDWR | O_CREAT | O_EXCL);
    T(access, "/dev/pts/ptmx", 0); T(access, "/dev/tty", 6);
}

/* What a full terminal holds, and epoll. */
static void filling(void) {
    static char many[4000];
    SYS(fcntl, m, 4, O_NONBLOCK | O_RDWR);
    SYS(fcntl, s, 4, O_NONBLOCK | O_RDWR);
    set(0, 0, 0, 1, 0);
    long total = 0, got;
    while ((got = SYS(write, s, many, 4000)) > 0) { total += got; SYS(poll, 0, 0, 10); }
    V(got); V(total > 8000); V(total < 32768); V(events(s, 0));
    while (events(m, 20) & 1 && (got = SYS(read, m, many, 4000)) > 0) total -= got;
    V(total); V(events(s, 0));
    while ((got = SYS(write, m, many, 4000)) > 0) { total += got; SYS(poll, 0, 0, 10); }
    V(got); V(total > 8000); V(total < 32768); V(events(m, 0) & 4);
    while (events(s, 20) & 1 && (got = SYS(read, s, many, 4000)) > 0) total -= got;
    V(total); V(events(m, 0));
    int epoll = SYS(epoll_create1, 0);
    struct { int events; int low, high; } watch = { 1 | 1 << 31, 7, 0 };
    T(epoll_ctl, epoll, 1, s, &watch); T(epoll_wait, epoll, out.bytes, 4, 0);
    type("ab"); T(epoll_wait, epoll, out.bytes, 4, 3000); T(epoll_wait, epoll, out.bytes, 4, 20);
    SYS(read, s, many, 99);
    T(epoll_wait, epoll, out.bytes, 4, 20);
    SYS(close, epoll);
    SYS(fcntl, m, 4, O_RDWR); SYS(fcntl, s, 4, O_RDWR);
    reset();
}

static void cases(void) {
    open_pair(); settings(); close_pair();
    open_pair(); lines(); close_pair();
    open_pair(); characters(); close_pair();
    open_pair(); packets(); close_pair();
    ends();
    open_pair(); filling(); close_pair();
}
