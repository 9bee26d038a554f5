/* Signals: actions, masks, sending, waiting. */
#include "cases.h"

struct stack { char *at; int flags; int pad; word size; };
struct time { long seconds, rest; };
static volatile word ran, got_value;
static void count(int signal, char *info, void *context) {
    (void)context;
    ran = ran * 100 + signal;
    got_value = *(word *)(info + 24);
}
static long pid;

static void acting(void) {
    struct action action = { count, SA_SIGINFO | SA_RESTORER, restorer, 1 << 11 };
    struct action ignore = { (void *)1, 0, 0, 0 };
    for (int signal = -1; signal < 67; signal += signal < 34 ? 1 : 15) {
        fill();
        about = "signal ";
        T(rt_sigaction, signal, &ignore, 0, 8);
        T(rt_sigaction, signal, 0, out.bytes, 8);
        SYS(rt_sigaction, signal, &(struct action){ 0 }, 0, 8);
    }
    about = "";
    T(rt_sigaction, 10, &action, 0, 8);
    SYS(rt_sigaction, 10, 0, out.bytes, 8);
    V(out.words[1]); V(out.words[3]);
    fill();
    T(rt_sigaction, 10, &action, 0, 4);
    T(rt_sigaction, 10, &action, 0, 16);
    T(rt_sigaction, 10, 0, 0, 0);
    T(rt_sigaction, 9, 0, 0, 8);
    EACH_BAD_BUT_NULL(p, T(rt_sigaction, 10, p, 0, 8); T(rt_sigaction, 10, 0, p, 8); T(rt_sigaction, 12, &ignore, p, 8));
    SYS(rt_sigaction, 12, 0, out.bytes, 8);
    V(out.words[0]);
    fill();
    SYS(rt_sigaction, 12, &(struct action){ 0 }, 0, 8);
    /* Signals that cannot be blocked. */
    action.mask = -1;
    T(rt_sigaction, 10, &action, 0, 8);
    SYS(rt_sigaction, 10, 0, out.bytes, 8);
    V(out.words[3]);
    fill();
    action.mask = 0, action.flags = SA_SIGINFO | SA_RESTORER;
    SYS(rt_sigaction, 10, &action, 0, 8);
    SYS(rt_sigaction, 34, &action, 0, 8);
}

static void masking(void) {
    word set = 1 << 9 | 1 << 11 | 1 << 8 | 1 << 18, all = -1;
    T(rt_sigprocmask, 0, &set, 0, 8);
    T(rt_sigprocmask, 0, 0, out.bytes, 8);
    T(rt_sigprocmask, 77, 0, out.bytes, 8);
    T(rt_sigprocmask, 1, &(word){ 1 << 11 }, out.bytes, 8);
    T(rt_sigprocmask, 2, &all, out.bytes, 8);
    T(rt_sigprocmask, 2, &set, out.bytes, 8);
    T(rt_sigprocmask, 3, &set, 0, 8);
    T(rt_sigprocmask, -1, &set, 0, 8);
    T(rt_sigprocmask, 0, &set, 0, 4);
    T(rt_sigprocmask, 0, &set, 0, 128);
    EACH_BAD_BUT_NULL(p, T(rt_sigprocmask, 0, p, 0, 8); T(rt_sigprocmask, 0, 0, p, 8));
    T(rt_sigpending, out.bytes, 8);
    T(rt_sigpending, out.bytes, 0);
    T(rt_sigpending, out.bytes, 4);
    T(rt_sigpending, out.bytes, 9);
    EACH_BAD(p, T(rt_sigpending, p, 8));
    SYS(kill, pid, 10);
    T(rt_sigpending, out.bytes, 8);
    ran = 0;
    SYS(rt_sigprocmask, 2, &(word){ 0 }, 0, 8);
    V(ran);
}

static void sending(void) {
    for (int signal = -1; signal < 67; signal += signal < 0 ? 1 : 66) T(kill, pid, signal);
    T(kill, pid, 65);
    T(kill, 0x7fffffff, 0);
    T(kill, 0x7fffffff, 10);
    T(kill, 0x80000000, 0);
    T(kill, -0x7fffffff, 10);
    ran = 0; T(kill, pid, 10); V(ran);
    T(tkill, pid, 65);
    T(tkill, 0, 10);
    T(tkill, -1, 10);
    T(tkill, 0x7fffffff, 10);
    ran = 0; T(tkill, pid, 10); V(ran);
    T(tkill, pid, 0);
    T(tgkill, pid, pid, 65);
    T(tgkill, pid, pid, -1);
    T(tgkill, 0, pid, 10);
    T(tgkill, pid, 0, 10);
    T(tgkill, -1, pid, 10);
    T(tgkill, 0x7fffffff, pid, 10);
    T(tgkill, pid, 0x7fffffff, 0);
    T(tgkill, pid, pid, 0);
    ran = 0; T(tgkill, pid, pid, 10); V(ran);
    word info[16] = { 0, (word)(unsigned)-1, 0, 77 };
    ((int *)info)[2] = -1;
    ran = 0; T(rt_sigqueueinfo, pid, 10, info); V(ran); V(got_value);
    ran = 0; T(rt_tgsigqueueinfo, pid, pid, 34, info); V(ran); V(got_value);
    T(rt_sigqueueinfo, pid, 65, info);
    T(rt_sigqueueinfo, pid, -1, info);
    T(rt_sigqueueinfo, pid, 0, info);
    T(rt_sigqueueinfo, 0x7fffffff, 10, info);
    T(rt_tgsigqueueinfo, pid, 0x7fffffff, 10, info);
    T(rt_tgsigqueueinfo, pid, pid, 65, info);
    T(rt_tgsigqueueinfo, 0, pid, 10, info);
    T(rt_tgsigqueueinfo, pid, -1, 10, info);
    EACH_BAD(p, T(rt_sigqueueinfo, pid, 10, p); T(rt_tgsigqueueinfo, pid, pid, 10, p));
}

static void waiting(void) {
    struct time none = { 0, 0 }, odd = { 0, 1000000000 }, minus = { -1, 0 }, tiny = { 0, 1000 };
    word set = 1 << 9, all = -1;
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    T(rt_sigtimedwait, &set, out.bytes, &none, 8);
    T(rt_sigtimedwait, &set, out.bytes, &tiny, 8);
    T(rt_sigtimedwait, &set, out.bytes, &odd, 8);
    T(rt_sigtimedwait, &set, out.bytes, &minus, 8);
    T(rt_sigtimedwait, &set, out.bytes, &none, 4);
    EACH_BAD(p, T(rt_sigtimedwait, p, out.bytes, &none, 8));
    EACH_BAD_BUT_NULL(p, T(rt_sigtimedwait, &set, 0, p, 8));
    SYS(kill, pid, 10);
    HIDE(SIGINFO);
    T(rt_sigtimedwait, &set, out.bytes, &none, 8);
    T(rt_sigtimedwait, &set, out.bytes, &none, 8);
    SYS(kill, pid, 10);
    T(rt_sigtimedwait, &set, 0, 0, 8);
    EACH_BAD_BUT_NULL(p, SYS(kill, pid, 10); T(rt_sigtimedwait, &set, p, &none, 8));
    T(rt_sigtimedwait, &all, 0, &none, 8);
    T(rt_sigsuspend, &set, 4);
    EACH_BAD(p, T(rt_sigsuspend, p, 8));
    SYS(kill, pid, 10);
    ran = 0;
    T(rt_sigsuspend, &(word){ 0 }, 8);
    V(ran);
    T(rt_sigprocmask, 2, &(word){ 0 }, out.bytes, 8);
    on_signal(14, count, SA_SIGINFO, 0);
    long soon[4] = { 0, 0, 0, 20000 };
    ran = 0; SYS(setitimer, 0, soon, 0); T(pause, 0); V(ran);
    /* Calls that a signal interrupts, with and without SA_RESTART. */
    int ends[2];
    SYS(pipe, ends);
    ran = 0; SYS(setitimer, 0, soon, 0); T(read, ends[0], out.bytes, 1); V(ran);
    ran = 0; SYS(setitimer, 0, soon, 0); struct { int fd; short in, out; } p = { ends[0], 1, 0 };
    T(poll, &p, 1, -1); V(ran);
    ran = 0; SYS(setitimer, 0, soon, 0); T(select, 0, 0, 0, 0, 0); V(ran);
    static int word_of_futex;
    ran = 0; SYS(setitimer, 0, soon, 0); T(futex, &word_of_futex, 0, 0, 0); V(ran);
    struct time hour = { 3600, 0 }, rest = { 0, 0 };
    ran = 0; SYS(setitimer, 0, soon, 0); T(nanosleep, &hour, &rest); V(ran); V(rest.seconds);
    on_signal(14, count, SA_SIGINFO | SA_RESTART, 0);
    ran = 0; SYS(setitimer, 0, soon, 0); T(poll, &p, 1, -1); V(ran);
    ran = 0; SYS(setitimer, 0, soon, 0); T(nanosleep, &hour, 0); V(ran);
    SYS(close, ends[0]);
    on_signal(13, count, SA_SIGINFO, 0);
    ran = 0; T(write, ends[1], "x", 1); V(ran);
    SYS(close, ends[1]);
}

static char other[16384] __attribute__((aligned(16)));
static void stacks(void) {
    struct stack s = { other, 0, 0, sizeof other };
    T(sigaltstack, 0, out.bytes);
    T(sigaltstack, &s, 0);
    SYS(sigaltstack, 0, out.bytes);
    V(out.words[0] == (word)other); V(out.ints[2]); V(out.words[2]);
    fill();
    s.size = 100; T(sigaltstack, &s, 0);
    s.size = sizeof other;
    s.flags = 7; T(sigaltstack, &s, 0);
    s.flags = 4; T(sigaltstack, &s, 0);
    s.flags = 1; T(sigaltstack, &s, 0);
    s.flags = 2; T(sigaltstack, &s, 0);
    T(sigaltstack, 0, out.bytes);
    s.flags = (int)0x80000000; T(sigaltstack, &s, 0);
    SYS(sigaltstack, 0, out.bytes);
    V(out.ints[2]);
    fill();
    EACH_BAD_BUT_NULL(p, T(sigaltstack, p, 0); T(sigaltstack, 0, p));
    T(sigaltstack, 0, 0);
}

static void cases(void) {
    pid = SYS(getpid, 0);
    acting();
    masking();
    sending();
    waiting();
    stacks();
}
