/* epoll, timerfd, signalfd, eventfd, and descriptors of processes. */
#include "cases.h"

struct event { unsigned events; word data; } __attribute__((packed));
struct fd { int fd; short events, revents; };
enum { IN = 1, PRI = 2, OUT_ = 4, ERR = 8, HUP = 16, RDHUP = 0x2000, EXCLUSIVE = 1 << 28, WAKEUP = 1 << 29,
       ONESHOT = 1 << 30 };
#define EDGE 0x80000000u
#define ADD 1
#define DEL 2
#define MOD 3

static struct event found[8];
static int ep;
static long ctl(int op, int fd, unsigned events, word data) {
    struct event event = { events, data };
    return SYS(epoll_ctl, ep, op, fd, &event);
}
/* What is ready: the number of events, and a digest of them in order. */
static long ready(int max) {
    memset(found, 0, sizeof found);
    long count = SYS(epoll_wait, ep, found, max, 0);
    V(count);
    long sum = 0;
    for (int i = 0; i < count && i < 8; i++) sum = sum * 100000 + found[i].data * 10000 + found[i].events;
    return sum;
}

static void making(void) {
    struct event event = { IN, 1 };
    T(epoll_create, 0); T(epoll_create, -1); T(epoll_create1, 1);
    T(epoll_create1, -1);
    long own = SYS(epoll_create, 1);
    V(own > 0); V(SYS(fcntl, own, 1, 0)); V(SYS(fcntl, own, 3, 0));
    SYS(close, own);
    ep = SYS(epoll_create1, O_CLOEXEC);
    V(SYS(fcntl, ep, 1, 0));
    for (int op = 0; op < 5; op++) EACH_CLOSED(fd, T(epoll_ctl, fd, op, FD(PR), &event); T(epoll_ctl, ep, op, fd, &event));
    EACH_FD(fd, if (fd != FD(PATH)) { T(epoll_ctl, fd, DEL, FD(EV), &event); T(epoll_ctl, ep, ADD, fd, &event); T(epoll_ctl, ep, ADD, fd, &event);
                T(epoll_ctl, ep, MOD, fd, &event); T(epoll_ctl, ep, DEL, fd, 0); T(epoll_ctl, ep, DEL, fd, 0); T(epoll_ctl, ep, MOD, fd, &event); });
    T(epoll_ctl, ep, ADD, ep, &event);
    T(epoll_ctl, ep, 4, FD(PR), &event);
    EACH_BAD(p, T(epoll_ctl, ep, ADD, FD(PR), p); T(epoll_ctl, ep, DEL, FD(PR), p));
    event.events = IN | EXCLUSIVE | ONESHOT; T(epoll_ctl, ep, ADD, FD(PR), &event);
    event.events = IN | EXCLUSIVE | PRI; T(epoll_ctl, ep, ADD, FD(PR), &event);
    event.events = IN | EXCLUSIVE | EDGE; T(epoll_ctl, ep, ADD, FD(PR), &event);
    event.events = IN; T(epoll_ctl, ep, MOD, FD(PR), &event);
    event.events = IN | EXCLUSIVE; T(epoll_ctl, ep, MOD, FD(PR), &event);
    T(epoll_ctl, ep, DEL, FD(PR), &event);
    EACH_FD(fd, T(epoll_wait, fd, found, 8, 0));
    T(epoll_wait, ep, found, 0, 0); T(epoll_wait, ep, found, -1, 0); T(epoll_wait, ep, found, 1 << 30, 0);
    EACH_BAD(p, T(epoll_wait, ep, p, 1, 0));
    word mask = 0; struct { long seconds, rest; } none = { 0, 0 }, odd = { 0, 1000000000 }, tiny = { 0, 1000 };
    T(epoll_pwait, ep, found, 1, 0, &mask, 8); T(epoll_pwait, ep, found, 1, 0, &mask, 4); T(epoll_pwait, ep, found, 1, 1, 0, 0);
    T(epoll_pwait2, ep, found, 1, &none, &mask, 8); T(epoll_pwait2, ep, found, 1, &odd, 0, 0); T(epoll_pwait2, ep, found, 1, &tiny, 0, 0);
    EACH_BAD_BUT_NULL(p, T(epoll_pwait2, ep, found, 1, p, 0, 0); T(epoll_pwait, ep, found, 1, 0, p, 8));
    T(epoll_wait, ep, found, 1, 1);
    EACH_BAD(p, T(read, ep, out.bytes, 8); T(write, ep, out.bytes, 8));
}

static void reporting(void) {
    int a[2], b[2];
    SYS(pipe2, a, O_NONBLOCK); SYS(pipe2, b, O_NONBLOCK);
    /* Level: as long as it is ready, the others first. */
    V(ctl(ADD, a[0], IN, 1)); V(ctl(ADD, b[0], IN, 2)); V(ready(8));
    SYS(write, b[1], "x", 1); SYS(write, a[1], "x", 1);
    V(ready(8)); V(ready(1)); V(ready(1)); V(ready(1)); V(ready(8));
    SYS(read, b[0], out.bytes, 1); fill(); V(ready(8));
    /* A fault while reporting loses nothing. */
    T(epoll_wait, ep, 4096, 2, 0); V(ready(8));
    /* Edge: when something comes. */
    V(ctl(MOD, a[0], IN | EDGE, 3)); V(ready(8)); V(ready(8));
    SYS(write, a[1], "x", 1); V(ready(8)); V(ready(8));
    SYS(read, a[0], out.bytes, 1); fill(); V(ready(8));
    V(ctl(MOD, a[0], IN | EDGE, 4)); V(ready(8)); V(ready(8));
    /* Once. */
    V(ctl(MOD, a[0], IN | ONESHOT, 5)); V(ready(8)); V(ready(8));
    SYS(write, a[1], "x", 1); V(ready(8)); V(ctl(MOD, a[0], IN | ONESHOT, 6)); V(ready(8)); V(ready(8));
    /* Writers. */
    V(ctl(ADD, a[1], OUT_, 7)); V(ready(8)); V(ctl(MOD, a[1], OUT_ | EDGE, 7)); V(ready(8)); V(ready(8));
    while (SYS(write, a[1], out.bytes, 512) == 512);
    V(ready(8));
    while (SYS(read, a[0], out.bytes, 512) == 512);
    fill();
    V(ready(8)); V(ready(8));
    /* The same file under two numbers, and a closed number whose file is open. */
    int twin = SYS(dup, b[0]);
    SYS(write, b[1], "x", 1);
    V(ctl(ADD, twin, IN, 8)); V(ctl(DEL, a[1], 0, 0)); V(ready(8));
    SYS(close, b[0]); V(ready(8)); SYS(close, twin); V(ready(8));
    /* The other end is closed. */
    V(ctl(MOD, a[0], 0, 9)); V(ready(8)); SYS(close, a[1]); V(ready(8)); SYS(close, a[0]); V(ready(8));
    SYS(pipe2, a, O_NONBLOCK);
    V(ctl(ADD, a[1], 0, 1)); V(ready(8)); SYS(close, a[0]); V(ready(8)); SYS(close, a[1]);
    SYS(close, b[1]);
    /* Nested. */
    int outer = ep, inner = SYS(epoll_create1, 0), event = SYS(eventfd2, 0, O_NONBLOCK);
    V(ctl(ADD, inner, IN, 1));
    ep = inner; V(ctl(ADD, event, IN | EDGE, 2)); V(ctl(ADD, outer, IN, 3));
    ep = outer; V(ready(8));
    SYS(write, event, (word[]){ 3 }, 8); V(ready(8)); V(ready(8));
    struct fd one = { outer, 1, 0 };
    T(poll, &one, 1, 0); V(one.revents);
    ep = inner; V(ready(8)); V(ready(8));
    SYS(write, event, (word[]){ 3 }, 8); V(ready(8)); V(ready(8));
    V(ctl(MOD, event, OUT_ | EDGE, 4)); V(ready(8)); V(ready(8)); SYS(read, event, out.bytes, 8); fill(); V(ready(8));
    ep = outer; V(ready(8)); SYS(close, inner); V(ready(8));
    /* A chain that is too long. */
    int chain[8];
    for (int i = 0; i < 8; i++) {
        chain[i] = SYS(epoll_create1, 0);
        ep = chain[i];
        if (i) V(ctl(ADD, chain[i - 1], IN, 1));
    }
    for (int i = 0; i < 8; i++) SYS(close, chain[i]);
    ep = outer;
    SYS(close, event);
}

static void counters(void) {
    word value = 5;
    int fd = SYS(eventfd2, 3, O_NONBLOCK | 1);
    T(read, fd, out.bytes, 8); T(read, fd, out.bytes, 8); T(read, fd, out.bytes, 7); T(read, fd, out.bytes, 8); T(read, fd, out.bytes, 8);
    T(write, fd, &value, 8); T(write, fd, &value, 7); value = -1; T(write, fd, &value, 8); value = -6; T(write, fd, &value, 8); value = 1; T(write, fd, &value, 8);

    struct fd one = { fd, 5, 0 };
    T(poll, &one, 1, 0); V(one.revents);
    EACH_BAD(p, T(write, fd, p, 8); T(read, fd, p, 8));
    SYS(close, fd);
}

struct spec { struct { long seconds, rest; } interval, first; };
static void timers(void) {
    struct spec spec = { { 0, 0 }, { 0, 1000 } }, old;
    for (int clock = -1; clock < 13; clock++) if (clock != 8 && clock != 9) {
        long own = SYS(timerfd_create, clock, 0); V(clock); V(own < 0 ? own : 0); if (own >= 0) SYS(close, own); }
    T(timerfd_create, 1, 1); T(timerfd_create, 1, -1);
    int own = SYS(timerfd_create, 1, O_NONBLOCK | O_CLOEXEC);
    V(SYS(fcntl, own, 1, 0)); V(SYS(fcntl, own, 3, 0));
    T(read, own, out.bytes, 8); T(read, own, out.bytes, 7); T(timerfd_gettime, own, out.bytes);
    EACH_FD(fd, T(timerfd_settime, fd, 0, &spec, 0); T(timerfd_gettime, fd, out.bytes));
    EACH_BAD(p, T(timerfd_settime, own, 0, p, 0); T(timerfd_gettime, own, p));
    T(timerfd_settime, own, 4, &spec, 0); T(timerfd_settime, own, -1, &spec, 0);
    struct fd one = { own, 1, 0 };
    T(timerfd_settime, own, 0, &spec, 0);
    T(poll, &one, 1, -1); V(one.revents);
    T(read, own, out.bytes, 8); T(read, own, out.bytes, 8); T(timerfd_gettime, own, out.bytes);
    /* An interval: as often as it expired, however late a busy computer wakes up. */
    spec.interval.rest = spec.first.rest = 20000000;
    struct { long seconds, rest; } nap = { 0, 70000000 }, clock[4];
    SYS(clock_gettime, 1, &clock[0]); T(timerfd_settime, own, 0, &spec, 0); SYS(clock_gettime, 1, &clock[1]);
    T(nanosleep, &nap, 0);
    unsigned long times = 0;
    SYS(clock_gettime, 1, &clock[2]); V(SYS(read, own, &times, 8)); SYS(clock_gettime, 1, &clock[3]);
    long least = (clock[2].seconds - clock[1].seconds) * 1000000000 + clock[2].rest - clock[1].rest;
    long most = (clock[3].seconds - clock[0].seconds) * 1000000000 + clock[3].rest - clock[0].rest;
    V(times >= least / 20000000 && times <= most / 20000000 && times >= 3);
    T(timerfd_gettime, own, &old); V(old.interval.rest); V(old.first.rest > 0 && old.first.rest <= 20000000);
    /* Disarmed; then fd a time that has passed. */
    spec.first.rest = 0; spec.interval.rest = 0;
    T(timerfd_settime, own, 0, &spec, &old); V(old.interval.rest);
    T(read, own, out.bytes, 8);
    spec.first.rest = 1; T(timerfd_settime, own, 1, &spec, 0); T(poll, &one, 1, -1); V(one.revents); T(read, own, out.bytes, 8);
    spec.first.rest = 1000000000; T(timerfd_settime, own, 0, &spec, 0);
    spec.first.rest = 1; spec.first.seconds = -1; T(timerfd_settime, own, 0, &spec, 0);
    spec.first.seconds = 0; spec.interval.rest = -1; T(timerfd_settime, own, 0, &spec, 0);
    /* One that does not wait is waited for by epoll. */
    spec.interval.rest = 0; spec.first.rest = 30000000;
    V(ctl(ADD, own, IN, 1)); V(ready(8)); T(timerfd_settime, own, 0, &spec, 0); V(ready(8));
    V(SYS(epoll_wait, ep, found, 8, -1)); V(found[0].events); V(ready(8)); T(read, own, out.bytes, 8); V(ready(8));
    SYS(fcntl, own, 4, 0);
    T(timerfd_settime, own, 0, &spec, 0); T(read, own, out.bytes, 8);
    SYS(close, own);
    V(ready(8));
}

static void signals(void) {
    word set = 1 << 9 | 1 << 11, both = -1;
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    T(signalfd4, -1, &set, 4, 0); T(signalfd4, -1, &set, 16, 0); T(signalfd4, -1, &set, 8, 1); T(signalfd4, -2, &set, 8, 0); T(signalfd, 90, &set, 8);
    EACH_BAD(p, T(signalfd4, -1, p, 8, 0));
    EACH_FD(fd, if (fd >= 0) T(signalfd4, fd, &set, 8, 0));
    int own = SYS(signalfd4, -1, &set, 8, O_NONBLOCK | O_CLOEXEC);
    V(SYS(fcntl, own, 3, 0));
    T(read, own, out.bytes, 128); T(read, own, out.bytes, 127); T(write, own, out.bytes, 128);
    V(ctl(ADD, own, IN | EDGE, 1)); V(ready(8));
    SYS(kill, SYS(getpid, 0), 12); SYS(kill, SYS(getpid, 0), 10);
    V(ready(8)); V(ready(8));
    static const struct field SENDER[] = { { 12, 8, "ssi_pid, ssi_uid" }, NONE };
    HIDE(SENDER); T(read, own, out.bytes, 128); HIDE(SENDER); T(read, own, out.bytes, 512); T(read, own, out.bytes, 512);
    struct fd one = { own, 1, 0 };
    T(poll, &one, 1, 0); V(one.revents);
    SYS(tgkill, SYS(getpid, 0), SYS(gettid, 0), 12);
    T(poll, &one, 1, 0); V(one.revents);
    set = 1 << 9; V(SYS(signalfd4, own, &set, 8, 0) == own); T(poll, &one, 1, 0); V(one.revents); T(read, own, out.bytes, 128);
    V(SYS(signalfd4, own, &both, 8, 0) == own); HIDE(SENDER); T(read, own, out.bytes, 128);
    unsigned info[32] = { 10, 0, -1 }; info[6] = 77;
    T(rt_sigqueueinfo, SYS(getpid, 0), 10, info); T(read, own, out.bytes, 128);
    /* A timer ends the waiting though its signal is blocked. */
    long timer[4] = { 0, 0, 0, 20000 };
    set = 1 << 13; SYS(rt_sigprocmask, 0, &set, 0, 8);
    SYS(fcntl, own, 4, 0);
    T(setitimer, 0, timer, 0); T(read, own, out.bytes, 128);
    SYS(close, own);
}

static void processes(void) {
    int ends[2];
    char byte;
    T(pidfd_open, 0, 0); T(pidfd_open, -1, 0); T(pidfd_open, 0x7fffffff, 0); T(pidfd_open, SYS(getpid, 0), 1);
    EACH_FD(fd, T(pidfd_send_signal, fd, 0, 0, 0); T(waitid, 3, fd, out.bytes, 4, 0));
    long own = SYS(pidfd_open, SYS(getpid, 0), 0);
    V(SYS(fcntl, own, 1, 0));
    T(pidfd_send_signal, own, 0, 0, 0); T(pidfd_send_signal, own, 65, 0, 0); T(pidfd_send_signal, own, 0, 0, 64);
    T(pidfd_getfd, own, 90, 0); T(pidfd_getfd, own, 0, 1); OK(pidfd_getfd, own, FD(RD), 0);
    T(read, own, out.bytes, 8); T(write, own, out.bytes, 8);
    T(waitid, 3, own, out.bytes, 4, 0);
    struct fd one = { own, 1, 0 };
    T(poll, &one, 1, 0); V(one.revents);
    SYS(pipe, ends);
    int pidfd = -1;
    long child = SYS(clone, 0x1000 | 17, 0, &pidfd, 0, 0);
    if (child == 0) { SYS(read, ends[0], &byte, 1); SYS(exit_group, 7); }
    V(pidfd > 0); V(SYS(fcntl, pidfd, 1, 0));
    one.fd = pidfd;
    T(poll, &one, 1, 0); V(one.revents);
    T(waitid, 3, pidfd, out.bytes, 4 | 1, 0);
    SYS(fcntl, pidfd, 4, O_NONBLOCK);
    T(waitid, 3, pidfd, out.bytes, 4, 0);
    V(ctl(ADD, pidfd, IN | EDGE, 1)); V(ready(8));
    SYS(write, ends[1], "x", 1);
    V(SYS(epoll_wait, ep, found, 8, -1)); V(found[0].events); V(ready(8));
    T(poll, &one, 1, -1); V(one.revents);
    T(pidfd_send_signal, pidfd, 0, 0, 0);
    HIDE(SIGINFO); T(waitid, 3, pidfd, out.bytes, 4, 0);
    T(pidfd_send_signal, pidfd, 0, 0, 0); T(waitid, 3, pidfd, out.bytes, 4, 0);
    T(poll, &one, 1, 0); V(one.revents & 1);
    struct { word flags, pidfd, child, parent, exit, stack, size, tls; } args = { 0x1000, (word)&pidfd, 0, 0, 17, 0, 0, 0 };
    child = SYS(clone3, &args, 64);
    if (child == 0) { SYS(read, ends[0], &byte, 1); SYS(exit_group, 7); }
    T(pidfd_send_signal, pidfd, 9, 0, 0); HIDE(SIGINFO); T(waitid, 3, pidfd, out.bytes, 4, 0);
    T(clone, 0x1000 | 0x100000 | 17, 0, &pidfd, 0, 0); T(clone, 0x1000 | 0x400000 | 17, 0, &pidfd, 0, 0);
}

static void splicing(void) {
    int a[2], b[2], s[2];
    long at = 2;
    SYS(pipe2, a, O_NONBLOCK); SYS(pipe2, b, O_NONBLOCK); SYS(socketpair, 1, 1 | O_NONBLOCK, 0, s);
    EACH_FD(fd, if (fd != FD(ZERO) && fd != FD(NUL) && fd != FD(EV)) { T(splice, fd, 0, fd, 0, 1, 0); T(splice, a[0], 0, fd, 0, 1, 0); });
    T(splice, a[0], 0, b[1], 0, 0, 99); T(splice, a[0], 0, b[1], 0, 0, 0); T(splice, a[0], 0, a[1], 0, 1, 0); T(splice, a[0], &at, b[1], 0, 1, 0); T(splice, a[0], 0, b[1], 0, 1, 0);
    SYS(write, a[1], "through two", 11);
    T(splice, a[0], 0, b[1], 0, 7, 0); T(splice, a[0], 0, b[1], 0, 70, 0); T(read, b[0], out.bytes, 20); T(splice, a[0], 0, b[1], 0, 70, 2);
    /* Files, with and without a position. */
    T(lseek, FD(RD), 3, 0); T(splice, FD(RD), 0, a[1], 0, 4, 0); T(lseek, FD(RD), 0, 1); T(splice, FD(RD), &at, a[1], 0, 5, 0); V(at); T(read, a[0], out.bytes, 20);
    T(lseek, FD(RD), 0, 2); T(splice, FD(RD), 0, a[1], 0, 4, 0); at = -1; T(splice, FD(RD), &at, a[1], 0, 4, 0);
    SYS(write, a[1], "to a file", 9); at = 3; T(splice, a[0], 0, FD(RW), &at, 4, 0); V(at); T(lseek, FD(RW), 0, 0); T(splice, a[0], 0, FD(RW), 0, 9, 0); T(pread64, FD(RW), out.bytes, 16, 0);
    /* Sockets. */
    T(splice, s[0], 0, a[1], 0, 9, 0); SYS(write, s[1], "socket", 6); T(splice, s[0], 0, a[1], 0, 4, 0); T(splice, s[0], 0, a[1], 0, 9, 0); T(splice, a[0], 0, s[0], 0, 9, 0); T(read, s[1], out.bytes, 20);
    T(splice, s[0], &at, a[1], 0, 4, 0);
    SYS(close, s[1]); T(splice, s[0], 0, a[1], 0, 9, 0);
    SYS(close, b[0]); SYS(write, a[1], "x", 1); on_signal(13, (void *)1, 0, 0); T(splice, a[0], 0, b[1], 0, 1, 0); SYS(close, a[1]); T(splice, a[0], 0, FD(RW), 0, 9, 0); T(splice, a[0], 0, FD(RW), 0, 9, 0);
    SYS(close, a[0]); SYS(close, b[1]); SYS(close, s[0]);
}

static void cases(void) {
    splicing();
    making();
    reporting();
    counters();
    timers();
    signals();
    processes();
}
