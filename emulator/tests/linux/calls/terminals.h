/* A pseudo-terminal for the cases: the master `m` and the terminal `s`. */
#include "cases.h"

#define TCGETS 0x5401
#define TCSETS 0x5402
#define TCSETSF 0x5404
#define TCGETA 0x5405
#define TCSETA 0x5406
#define TCSBRK 0x5409
#define TCXONC 0x540a
#define TCFLSH 0x540b
#define TIOCEXCL 0x540c
#define TIOCNXCL 0x540d
#define TIOCSCTTY 0x540e
#define TIOCGPGRP 0x540f
#define TIOCSPGRP 0x5410
#define TIOCOUTQ 0x5411
#define TIOCGWINSZ 0x5413
#define TIOCSWINSZ 0x5414
#define TIOCGSOFTCAR 0x5419
#define FIONREAD 0x541b
#define TIOCPKT 0x5420
#define TIOCNOTTY 0x5422
#define TIOCGETD 0x5424
#define TCSBRKP 0x5425
#define TIOCGSID 0x5429
#define TCGETS2 0x802c542a
#define TCSETS2 0x402c542b
#define TIOCGPTN 0x80045430
#define TIOCSPTLCK 0x40045431
#define TIOCSIG 0x40045436
#define TIOCGPKT 0x80045438
#define TIOCGPTLCK 0x80045439
#define TIOCGEXCL 0x80045440
#define TIOCGPTPEER 0x5441

struct termios { unsigned in, out, control, local; unsigned char line, cc[19]; unsigned speeds[2]; };
struct fd { int fd; short events, revents; };
struct time { long seconds, rest; };
static const struct field DEVICE_STAT[] = { { 0, 8, "st_dev" }, { 8, 8, "st_ino" },
    { 24, 12, "st_mode, st_uid, st_gid: options of the mount" }, { 40, 8, "st_rdev: the number" },
    { 56, 16, "st_blksize, st_blocks" }, { 72, 48, "times" }, NONE };
static int m, s;
static char path[24];
static struct termios before;

static void name_it(void) {
    int n = 0, digits = 0;
    char buffer[12];
    SYS(ioctl, m, TIOCGPTN, &n);
    do buffer[digits++] = '0' + n % 10; while (n /= 10);
    memcpy(path, "/dev/pts/", 9);
    for (int i = 0; i < digits; i++) path[9 + i] = buffer[digits - 1 - i];
    path[9 + digits] = 0;
}
static void open_pair(void) {
    int no = 0;
    m = SYS(open, "/dev/ptmx", O_RDWR | O_NOCTTY);
    SYS(ioctl, m, TIOCSPTLCK, &no);
    name_it();
    s = SYS(open, path, O_RDWR | O_NOCTTY);
    SYS(ioctl, s, TCGETS, &before);
}
static void close_pair(void) { SYS(close, s); SYS(close, m); }
static void set(unsigned in, unsigned out_flags, unsigned local, int least, int time) {
    struct termios new = before;
    new.in = in; new.out = out_flags; new.local = local;
    new.cc[6] = least; new.cc[5] = time;
    SYS(ioctl, s, TCSETS, &new);
}
static void reset(void) { SYS(ioctl, s, TCSETSF, &before); }
__attribute__((unused)) static int events(int fd, int wait) {
    struct fd one = { fd, 0x1f, 0 };
    SYS(poll, &one, 1, wait);
    return one.revents;
}
/* Waits until there is something to read: what is typed takes a moment to arrive on Linux. */
static void arrive(int fd) {
    struct fd one = { fd, 1, 0 };
    SYS(poll, &one, 1, 3000);
}
/* All that the master can read, until nothing comes for a while. A poll of a terminal without input waits
   until what was typed has been taken in and echoed (`n_tty_poll`), however busy the computer is. */
static void drain(const char *what) {
    int taken = 0;
    events(s, 0);
    for (;;) {
        struct fd one = { m, 1, 0 };
        if (SYS(poll, &one, 1, 40) <= 0 || !(one.revents & 1) || taken >= OUT) break;
        long got = SYS(read, m, out.bytes + taken, OUT - taken);
        if (got <= 0) { say("error "); say_number(got); break; }
        taken += got;
    }
    report(what, taken);
}
static void type(const char *text) { SYS(write, m, text, length(text)); }
#define TYPE(text) do { type(text); drain("echo of " #text); } while (0)
#define LINE(size) do { arrive(s); T(read, s, out.bytes, size); } while (0)
