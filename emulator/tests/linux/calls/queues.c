/* POSIX message queues. Their names belong to this process, since all processes share them. */
#include "cases.h"

enum { RD_ = 0, WR_ = 1, RW_ = 2, CREATE = 0100, EXCLUSIVE = 0200, NOWAIT = 04000 };
struct attr { long flags, count, size, now, rest[4]; };
struct time { long seconds, rest; };
struct event { word value; int signal, notify; word rest[6]; };
static char name[64] = "unwind-sim-test-", other[64] = "unwind-sim-other-";
static void add_number(char *to, long value) {
    while (*to) to++;
    do *to++ = '0' + value % 10; while (value /= 10);
    *to = 0;
}
static void say_attr(long queue) {
    struct attr a = { 0 };
    V(SYS(mq_getsetattr, queue, 0, &a)); V(a.flags); V(a.count); V(a.size); V(a.now);
}

static void opening(void) {
    struct attr good = { 0, 3, 16, 0 }, odd = good;
    V(SYS(mq_open, name, RW_, 0, 0)); V(SYS(mq_unlink, name));
    V(SYS(mq_open, "", RW_ | CREATE, 0600, &good)); V(SYS(mq_open, "a/b", RW_ | CREATE, 0600, &good)); V(SYS(mq_open, "/a", RW_ | CREATE, 0600, &good)); V(SYS(mq_open, ".", RW_ | CREATE, 0600, &good)); V(SYS(mq_open, "..", RW_ | CREATE, 0600, &good)); V(SYS(mq_open, long_name, RW_ | CREATE, 0600, &good));
    EACH_BAD(p, T(mq_open, p, RW_ | CREATE, 0600, &good); T(mq_unlink, p)); EACH_BAD_BUT_NULL(p, T(mq_open, name, RW_ | CREATE, 0600, p));
    odd.count = 0; V(SYS(mq_open, name, RW_ | CREATE, 0600, &odd)); odd.count = -1; V(SYS(mq_open, name, RW_ | CREATE, 0600, &odd)); odd.count = 1 << 20; V(SYS(mq_open, name, RW_ | CREATE, 0600, &odd));
    odd = good; odd.size = 0; V(SYS(mq_open, name, RW_ | CREATE, 0600, &odd)); odd.size = -1; V(SYS(mq_open, name, RW_ | CREATE, 0600, &odd)); odd.size = 1 << 28; V(SYS(mq_open, name, RW_ | CREATE, 0600, &odd));
    long queue = SYS(mq_open, name, RW_ | CREATE | EXCLUSIVE, 0600, &good);
    V(queue > 0); V(SYS(fcntl, queue, F_GETFD)); V(SYS(fcntl, queue, F_GETFL) & 3); V(SYS(mq_open, name, RW_ | CREATE | EXCLUSIVE, 0600, &good)); V(SYS(mq_open, name, 3, 0600, 0));
    say_attr(queue);
    long again = SYS(mq_open, name, RD_ | NOWAIT, 0, 0), writer = SYS(mq_open, name, WR_, 0, 0);
    V(again > 0); say_attr(again);
    odd = (struct attr){ NOWAIT, 9, 9, 9 }; V(SYS(mq_getsetattr, queue, &odd, 0)); say_attr(queue); odd.flags = 0; V(SYS(mq_getsetattr, queue, &odd, &good)); V(good.flags); say_attr(queue); odd.flags = 1; V(SYS(mq_getsetattr, queue, &odd, 0));
    EACH_BAD_BUT_NULL(p, T(mq_getsetattr, queue, p, 0); T(mq_getsetattr, queue, 0, p)); EACH_FD(fd, T(mq_getsetattr, fd, 0, &good));
    V(SYS(mq_timedsend, again, "x", 1, 0, 0)); V(SYS(mq_timedreceive, writer, out.bytes, 16, 0, 0));
    V(SYS(lseek, queue, 0, 0) <= 0); V(SYS(write, queue, "x", 1));
    SYS(close, again); SYS(close, writer); SYS(close, queue);
    /* Without a name it stays as long as somebody has it. */
    queue = SYS(mq_open, name, RW_, 0, 0); V(SYS(mq_timedsend, queue, "kept", 4, 1, 0)); V(SYS(mq_unlink, name)); V(SYS(mq_unlink, name)); V(SYS(mq_open, name, RW_, 0, 0)); say_attr(queue); V(SYS(mq_timedreceive, queue, out.bytes, 16, 0, 0)); fill();
    good = (struct attr){ 0, 1, 1, 0 }; long second = SYS(mq_open, name, RW_ | CREATE, 0600, &good); say_attr(second); say_attr(queue);
    SYS(close, queue); SYS(close, second); V(SYS(mq_unlink, name));
}

static void messages(void) {
    struct attr small = { 0, 3, 16, 0 };
    struct time none = { 0, 0 }, odd = { 0, 1000000000 }, minus = { -1, 0 };
    long queue = SYS(mq_open, name, RW_ | CREATE, 0600, &small), quick = SYS(mq_open, name, RW_ | NOWAIT, 0, 0);
    unsigned priority = 7;
    char text[20] = { 0 };
    /* By priority, and in order. */
    V(SYS(mq_timedsend, queue, "low", 3, 1, 0)); V(SYS(mq_timedsend, queue, "high", 4, 32767, 0)); V(SYS(mq_timedsend, queue, "second", 6, 1, 0)); say_attr(queue);
    V(SYS(mq_timedsend, quick, "more", 4, 0, 0)); V(SYS(mq_timedsend, queue, "more", 4, 0, &none));
    struct { int fd; short events, revents; } one = { queue, 5, 0 };
    V(SYS(poll, &one, 1, 0)); V(one.revents);
    for (int i = 0; i < 3; i++) { memset(text, 0, 20); V(SYS(mq_timedreceive, queue, text, 16, &priority, 0)); V(priority); say(text); V(0); one.revents = 0; V(SYS(poll, &one, 1, 0)); V(one.revents); }
    V(SYS(mq_timedreceive, quick, text, 16, &priority, 0)); V(SYS(mq_timedreceive, queue, text, 16, &priority, &none));
    V(SYS(mq_timedsend, queue, "", 0, 0, 0)); V(SYS(mq_timedreceive, queue, text, 20, 0, 0));
    V(SYS(mq_timedsend, queue, text, 16, 0, 0)); V(SYS(mq_timedsend, queue, text, 17, 0, 0)); V(SYS(mq_timedsend, queue, text, -1, 0, 0)); V(SYS(mq_timedsend, queue, text, 1, 32768, 0)); V(SYS(mq_timedsend, queue, text, 1, -1, 0)); V(SYS(mq_timedreceive, queue, text, 15, 0, 0));
    V(SYS(mq_timedsend, queue, text, 1, 0, &odd)); V(SYS(mq_timedsend, queue, text, 1, 0, &minus)); V(SYS(mq_timedreceive, queue, text, 16, 0, &odd)); V(SYS(mq_timedreceive, queue, text, 16, 0, &minus));
    EACH_BAD(p, T(mq_timedsend, queue, p, 4, 0, 0)); EACH_BAD_BUT_NULL(p, T(mq_timedsend, queue, "x", 1, 0, p); T(mq_timedreceive, queue, text, 16, 0, p));
    V(SYS(mq_timedreceive, queue, text, 16, 0, 0)); EACH_BAD(p, SYS(mq_timedsend, queue, "lost", 4, 0, 0); T(mq_timedreceive, queue, p, 16, 0, 0)); EACH_BAD_BUT_NULL(p, SYS(mq_timedsend, queue, "lost", 4, 0, 0); T(mq_timedreceive, queue, text, 16, p, 0)); say_attr(queue);
    EACH_FD(fd, T(mq_timedsend, fd, "x", 1, 0, 0); T(mq_timedreceive, fd, text, 16, 0, 0));
    /* Between processes: who receives waits, and who sends. */
    int status = 0;
    flush();
    long child = SYS(fork, 0);
    if (child == 0) {
        long sum = 0;
        for (int i = 0; i < 12; i++) { SYS(mq_timedreceive, queue, text, 16, &priority, 0); sum += text[0] * (i + 1); }
        SYS(exit_group, sum & 127);
    }
    for (int i = 0; i < 12; i++) { text[0] = i; SYS(mq_timedsend, queue, text, 1, 5, 0); }
    SYS(wait4, child, &status, 0, 0); V(status); say_attr(queue);
    /* A signal ends the wait; it comes again if it came too early. */
    child = SYS(fork, 0);
    if (child == 0) {
        struct { word interval[2], value[2]; } timer = { { 0, 1000 }, { 0, 1000 } };
        on_signal(14, (void *)say_attr, 0, 0); on_signal(14, (void *)fill, 0, 0);
        SYS(setitimer, 0, &timer, 0);
        SYS(exit_group, -SYS(mq_timedreceive, queue, text, 16, 0, 0));
    }
    SYS(wait4, child, &status, 0, 0); V(status);
    SYS(close, queue); SYS(close, quick); V(SYS(mq_unlink, name));
}

static struct { int signal, error, code, pad, pid, uid; word value; } got;
static int told;
static void on_message(int signal, void *info, void *context) { (void)signal, (void)context; memcpy(&got, info, sizeof got); told++; }
static void notifying(void) {
    struct attr small = { 0, 3, 16, 0 };
    struct event by_signal = { 77, 10, 0, { 0 } }, quietly = { 0, 0, 1, { 0 } }, odd = { 0, 65, 0, { 0 } };
    char text[20];
    long queue = SYS(mq_open, name, RW_ | CREATE, 0600, &small);
    int status = 0;
    on_signal(10, on_message, SA_SIGINFO | SA_RESTART, 0);
    EACH_BAD_BUT_NULL(p, T(mq_notify, queue, p)); EACH_FD(fd, T(mq_notify, fd, &by_signal); T(mq_notify, fd, 0)); V(SYS(mq_notify, queue, &odd)); odd.signal = 10, odd.notify = 9; V(SYS(mq_notify, queue, &odd));
    V(SYS(mq_notify, queue, 0)); V(SYS(mq_notify, queue, &by_signal)); V(SYS(mq_notify, queue, &by_signal)); V(SYS(mq_notify, queue, &quietly));
    V(SYS(mq_timedsend, queue, "a", 1, 0, 0)); V(told); V(got.signal); V(got.code); V(got.pid == SYS(getpid, 0)); V((int)got.uid == (int)SYS(getuid, 0)); V(got.value);
    /* Only once, and only if the queue was empty. */
    V(SYS(mq_timedsend, queue, "b", 1, 0, 0)); V(told); V(SYS(mq_notify, queue, &by_signal)); V(SYS(mq_timedsend, queue, "c", 1, 0, 0)); V(told);
    for (int i = 0; i < 3; i++) SYS(mq_timedreceive, queue, text, 16, 0, 0);
    flush();
    long child = SYS(fork, 0);
    if (child == 0) { V(SYS(mq_notify, queue, &by_signal)); V(SYS(mq_notify, queue, 0)); V(SYS(mq_notify, queue, &quietly)); V(SYS(mq_timedsend, queue, "d", 1, 0, 0)); flush(); SYS(exit_group, 0); }
    SYS(wait4, child, &status, 0, 0); V(status); V(told); V(got.pid == child);
    V(SYS(mq_timedreceive, queue, text, 16, 0, 0));
    V(SYS(mq_notify, queue, &quietly)); V(SYS(mq_timedsend, queue, "e", 1, 0, 0)); V(told); V(SYS(mq_notify, queue, &by_signal)); V(SYS(mq_notify, queue, 0)); V(SYS(mq_notify, queue, &by_signal));
    /* Who closes a descriptor of the queue, whichever it is, is not told any longer. */
    V(SYS(close, SYS(dup, queue))); V(SYS(mq_notify, queue, &quietly)); V(SYS(mq_notify, queue, &quietly));
    V(SYS(close, SYS(mq_open, name, RD_, 0, 0))); V(SYS(mq_notify, queue, &by_signal)); V(SYS(mq_notify, queue, &by_signal));
    V(SYS(dup2, queue, 50)); V(SYS(dup2, 0, 50)); V(SYS(mq_notify, queue, &by_signal)); V(SYS(dup2, queue, 50)); V(SYS(dup2, queue, 51)); V(SYS(mq_notify, queue, &quietly)); V(SYS(close, 50)); V(SYS(mq_notify, queue, &quietly)); V(SYS(close_range, 51, 51, 0)); V(SYS(mq_notify, queue, &by_signal));
    /* Others' descriptors do not matter, nor what else is closed. */
    flush();
    child = SYS(fork, 0);
    if (child == 0) { SYS(close, queue); SYS(exit_group, 0); }
    SYS(wait4, child, &status, 0, 0); V(status); SYS(close, SYS(dup, 0)); V(SYS(mq_notify, queue, &quietly));
    told = 0; V(SYS(close, SYS(dup, queue))); V(SYS(mq_timedsend, queue, "f", 1, 0, 0)); V(told);
    SYS(close, queue); V(SYS(mq_unlink, name));
}

static void cases(void) {
    add_number(name, SYS(getpid, 0)); add_number(other, SYS(getpid, 0));
    /* A kernel may be built without them, or a filter forbids them. */
    if (arguments > 2) SYS(exit_group, SYS(mq_unlink, other) != -2);
    opening();
    messages();
    notifying();
    flush();
    SYS(exit_group, 0);
}
