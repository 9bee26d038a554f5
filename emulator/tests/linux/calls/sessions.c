/* Sessions and their controlling terminals: typed signals, the background, hang-up. */
#include "terminals.h"

static volatile int caught[65];
static void on(int number) { caught[number]++; }
static int status_of(long child) {
    int status = 0;
    SYS(wait4, child, &status, 0, 0);
    return status;
}
/* What was said before comes before what the child says. */
static long child(void) {
    flush();
    return SYS(fork, 0);
}
static int self(void) { return SYS(getpid, 0); }
static void lead(void) { SYS(setsid, 0); SYS(ioctl, s, TIOCSCTTY, 0); }
static void sleep_ms(int ms) {
    struct time time = { ms / 1000, ms % 1000 * 1000000l };
    SYS(nanosleep, &time, 0);
}
#define IN_CHILD(...) do { long child_ = child(); \
    if (child_ == 0) { __VA_ARGS__; flush(); SYS(exit_group, 0); } \
    long status_ = status_of(child_); V(status_); } while (0)

static void controlling(void) {
    int group = 0;
    IN_CHILD(T(open, "/dev/tty", O_RDWR); SYS(setsid, 0);
        T(ioctl, s, TIOCGPGRP, out.bytes); T(ioctl, s, TIOCSCTTY, 0); T(ioctl, s, TIOCSCTTY, 0);
        T(ioctl, s, TIOCGPGRP, &group); V(group == self()); T(ioctl, s, TIOCGSID, &group);
        V(group == self()); T(ioctl, m, TIOCGPGRP, &group); T(ioctl, m, TIOCGSID, &group);
        int tty = SYS(open, "/dev/tty", O_RDWR); V(tty >= 0); T(write, tty, "tty", 3); drain("written");
        HIDE(DEVICE_STAT); T(fstat, tty, out.bytes);
        HIDE(DEVICE_STAT); T(stat, "/dev/tty", out.bytes);
        group = 1 << 22; T(ioctl, s, TIOCSPGRP, &group); group = -5; T(ioctl, s, TIOCSPGRP, &group);
        group = SYS(getppid, 0); T(ioctl, s, TIOCSPGRP, &group);
        on_signal(1, on, 0, 0); on_signal(18, on, 0, 0);
        T(ioctl, s, TIOCNOTTY, 0); V(caught[1]); V(caught[18]); T(ioctl, s, TIOCNOTTY, 0);
        T(open, "/dev/tty", O_RDWR); T(ioctl, s, TIOCGPGRP, &group);
        T(ioctl, s, TIOCSCTTY, 0));
    /* Opening gives a leader its terminal, unless it does not want one or cannot read it. */
    IN_CHILD(SYS(setsid, 0);
        SYS(close, SYS(open, path, O_RDWR | O_NOCTTY)); T(open, "/dev/tty", O_RDWR);
        SYS(close, SYS(open, path, O_WRONLY)); T(open, "/dev/tty", O_RDWR);
        SYS(close, SYS(open, path, O_RDWR)); V(SYS(open, "/dev/tty", O_RDWR) >= 0);
        IN_CHILD(V(SYS(open, "/dev/tty", O_RDWR) >= 0); SYS(setsid, 0); T(open, "/dev/tty", O_RDWR);
            T(ioctl, s, TIOCSCTTY, 0); T(ioctl, s, TIOCGSID, out.bytes)));
}

static void keys(void) {
    static const char *const typed[] = { "ab\3", "ab\34", "ab\32", "\23\3" };
    for (int flags = 0; flags < 3; flags++)
        for (int i = 0; i < COUNT(typed); i++)
            IN_CHILD(lead();
                for (int n = 1; n < 32; n++) on_signal(n, on, 0, 0);
                set(before.in, before.out, (before.local | (flags == 1 ? 0200 : 0)) & ~(flags == 2 ? 010u : 0), 1, 0);
                type(typed[i]); drain("echo");
                for (int n = 1; n < 32; n++) if (caught[n]) { V(n); V(caught[n]); }
                T(ioctl, s, FIONREAD, out.bytes); TYPE("c\n"); LINE(9);
                reset());
    IN_CHILD(lead(); on_signal(28, on, 0, 0); on_signal(2, on, 0, 0);
        short size[4] = { 30, 90 };
        T(ioctl, s, TIOCSWINSZ, size); V(caught[28]); T(ioctl, m, TIOCSWINSZ, size); V(caught[28]);
        size[0]++; T(ioctl, m, TIOCSWINSZ, size); V(caught[28]);
        T(ioctl, m, TIOCSIG, 2); V(caught[2]); T(ioctl, m, TIOCSIG, 9); T(ioctl, s, TIOCSIG, 2));
    /* A read that a key interrupts, or that goes on. */
    for (int restarts = 0; restarts < 2; restarts++)
        IN_CHILD(lead();
            on_signal(2, on, restarts ? SA_RESTART : 0, 0);
            long helper = child();
            if (helper == 0) {
                on_signal(2, (void *)1, 0, 0);
                sleep_ms(50); type("\3"); sleep_ms(50); type("on\n");
                SYS(exit_group, 0);
            }
            T(read, s, out.bytes, 9); V(caught[2]); status_of(helper);
            if (!restarts) LINE(9);
            drain("echo"));
}

/* What a process of the background does with its terminal, and what comes of it. */
static void use(int what, struct termios *settings) {
    int own = self();
    switch (what) {
    case 0: T(read, s, out.bytes, 5); break;
    case 1: T(write, s, "x", 1); break;
    case 2: T(ioctl, s, TCSETS, settings); break;
    case 3: T(ioctl, s, TCFLSH, 0); break;
    case 4: T(ioctl, s, TIOCGWINSZ, out.bytes); break;
    case 5: T(ioctl, s, TIOCSPGRP, &own); break;
    case 6: T(ioctl, s, TCSBRK, 1); break;
    case 7: T(ioctl, m, TCSETS, settings); break;
    }
}
static void background(void) {
    for (int stops = 0; stops < 2; stops++)
        for (int how = 0; how < 4; how++)
            for (int what = 0; what < 8; what++)
                IN_CHILD(lead();
                    struct termios settings = before;
                    if (stops) { settings.local |= 0400; SYS(ioctl, s, TCSETS, &settings); }
                    type("line\n"); arrive(m); arrive(s);
                    long job = child();
                    if (job == 0) {
                        SYS(setpgid, 0, 0);
                        word mask = 1ul << 20 | 1ul << 21;
                        if (how == 1) { on_signal(21, (void *)1, 0, 0); on_signal(22, (void *)1, 0, 0); }
                        if (how == 2) SYS(rt_sigprocmask, 0, &mask, 0, 8);
                        if (how == 3) { on_signal(21, on, 0, 0); on_signal(22, on, 0, 0); }
                        use(what, &settings);
                        V(caught[21]); V(caught[22]);
                        flush();
                        SYS(exit_group, 0);
                    }
                    int status = 0;
                    SYS(wait4, job, &status, 2, 0);
                    V(status);
                    if ((status & 0xff) == 0x7f) {
                        int to = job;
                        T(ioctl, s, TIOCSPGRP, &to);
                        flush();
                        SYS(kill, -job, 18);
                        long end = status_of(job);
                        V(end);
                    });
    /* A group that nobody could continue is not stopped. */
    IN_CHILD(lead();
        long job = child();
        if (job == 0) {
            SYS(setpgid, 0, 0);
            if (child() == 0) {
                sleep_ms(60);
                T(read, s, out.bytes, 9); SYS(kill, self(), 20); SYS(kill, self(), 21);
                say("not stopped\n"); flush();
            }
            SYS(exit_group, 0);
        }
        long end = status_of(job);
        V(end);
        sleep_ms(200));
}

/* The end of a leader, and of a master. */
static void hangup(void) {
    static int channel[2];
    char c = 0;
    SYS(pipe, channel);
    /* The leader ends: the foreground gets SIGHUP, and nobody has the terminal. */
    IN_CHILD(lead();
        if (child() == 0) {
            on_signal(1, on, 0, 0); on_signal(18, on, 0, 0);
            SYS(write, channel[1], "r", 1);
            sleep_ms(3000);
            V(caught[1]); V(caught[18]); T(open, "/dev/tty", O_RDWR); T(ioctl, s, TIOCGPGRP, out.bytes);
            T(read, s, out.bytes, 0);
            flush(); SYS(write, channel[1], "d", 1); SYS(exit_group, 0);
        }
        SYS(read, channel[0], &c, 1));
    SYS(read, channel[0], &c, 1); V(c);
    /* The master is closed: the leader gets SIGHUP and SIGCONT, and when it ends, the foreground. */
    long leader = child();
    if (leader == 0) {
        SYS(close, m); lead();
        on_signal(1, on, SA_RESTART, 0); on_signal(18, on, SA_RESTART, 0);
        if (child() == 0) {
            SYS(setpgid, 0, 0);
            on_signal(1, on, 0, 0); on_signal(18, on, 0, 0); on_signal(22, (void *)1, 0, 0);
            int own = self();
            SYS(ioctl, s, TIOCSPGRP, &own);
            SYS(write, channel[1], "r", 1);
            long got = -1;
            /* Longer than the leader sleeps, should the signal have come before that. */
            struct time time = { 6, 0 };
            got = SYS(nanosleep, &time, 0);
            /* The two are sent one after the other, and the first may be caught in between. */
            for (int n = 0; n < 100 && !caught[18]; n++) sleep_ms(50);
            V(got); V(caught[1]); V(caught[18] > 0);
            flush(); SYS(write, channel[1], "d", 1); SYS(exit_group, 0);
        }
        sleep_ms(3000);
        V(caught[1]); V(caught[18]); V(events(s, 0)); T(read, s, out.bytes, 9);
        T(open, "/dev/tty", O_RDWR); T(ioctl, s, TCGETS, out.bytes); T(write, s, "x", 1);
        flush(); SYS(exit_group, 0);
    }
    SYS(read, channel[0], &c, 1); V(c);
    SYS(close, m);
    long end = status_of(leader);
    V(end);
    SYS(read, channel[0], &c, 1); V(c);
    /* A stopped job whose leader ends is continued and hung up. */
    IN_CHILD(SYS(setsid, 0);
        long job = child();
        if (job == 0) {
            SYS(setpgid, 0, 0);
            on_signal(1, on, 0, 0); on_signal(18, on, 0, 0);
            SYS(kill, self(), 19);
            V(caught[1]); V(caught[18]); flush(); SYS(write, channel[1], "d", 1); SYS(exit_group, 0);
        }
        int status; SYS(wait4, job, &status, 2, 0); V(status));
    SYS(read, channel[0], &c, 1); V(c);
    SYS(close, channel[0]); SYS(close, channel[1]);
}

/* Whoever started this may have a terminal, and the machine has none. */
static void leave_terminal(void) {
    int tty = SYS(open, "/dev/tty", O_RDWR);
    if (tty >= 0) { SYS(ioctl, tty, TIOCNOTTY, 0); SYS(close, tty); }
}

static void cases(void) {
    leave_terminal();
    open_pair(); controlling(); close_pair();
    open_pair(); keys(); close_pair();
    open_pair(); background(); close_pair();
    open_pair(); hangup(); close_pair();
}
