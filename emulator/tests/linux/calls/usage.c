/* Processor time of processes and threads. Times are not compared, only their properties. */
#include "cases.h"

enum { CPU_PROCESS = 2, CPU_THREAD = 3, UNIT = 200000 };
struct usage { long user[2], system[2], rest[14]; };
static struct usage usage;

static long now(long clock) {
    long time[2] = { 0, 0 };
    long r = SYS(clock_gettime, clock, time);
    return r < 0 ? r : time[0] * 1000000000 + time[1];
}
static void burn(long time) { for (long end = now(CPU_THREAD) + time; now(CPU_THREAD) < end;); }
static long spent(void) {
    return (usage.user[0] + usage.system[0]) * 1000000000 + (usage.user[1] + usage.system[1]) * 1000;
}
static long usage_of(long who) { return SYS(getrusage, who, &usage) < 0 ? -1 : spent(); }
static long clock_of(long pid) { return (~pid << 3) | 2; }
static long thread_clock_of(long tid) { return (~tid << 3) | 6; }
static volatile word ran;
static void count(int signal) { (void)signal; ran++; }
/* Linux looks at such timers at each tick, and counts as time of the program only ticks that fall
   into it: most of this has to be outside of the kernel. */
static void burn_until_ran(void) {
    for (long end = now(CPU_THREAD) + 1000000000; !ran && now(CPU_THREAD) < end;)
        for (volatile int i = 0; i < 20000 && !ran; i++);
}

static void children(void) {
    long own = now(CPU_PROCESS), of_children = usage_of(-1);
    long pid = SYS(fork, 0);
    if (pid == 0) { burn(UNIT); SYS(exit_group, 0); }
    V(SYS(wait4, pid, 0, 0, &usage) == pid);
    long child = spent();
    V(child >= UNIT * 9 / 10); V(child < 5000 * UNIT);
    V(usage_of(-1) - of_children >= UNIT * 9 / 10);
    V(now(CPU_PROCESS) - own < 100 * UNIT);
    V(now(CPU_PROCESS) - own > 0);
    long times[4];
    V(SYS(times, times) > 0); V(times[2] >= 0); V(times[0] <= 10000);
    /* Its own children's time is with it, once it has waited for them. It also has its own time, of
       which a fork is most: only more time of the child than that tells, so this is tried with more. */
    for (int waits = 0; waits < 2; waits++) {
        int status, tried = 0;
        long burnt = UNIT, waited, whole, added;
        do {
            long before = usage_of(-1);
            burnt *= 2;
            pid = SYS(fork, 0);
            if (pid == 0) {
                long inner = SYS(fork, 0);
                if (inner == 0) { burn(burnt); SYS(exit_group, 0); }
                int info[32];
                if (waits) SYS(wait4, inner, 0, 0, 0);
                else SYS(waitid, 1, inner, info, 4 | 0x1000000, 0);
                SYS(exit_group, usage_of(-1) >= burnt * 9 / 10 ? 1 : 0);
            }
            waited = SYS(wait4, pid, &status, 0, &usage);
            whole = spent();
            added = usage_of(-1) - before;
        } while (!waits && whole >= burnt * 9 / 10 && ++tried < 12);
        V(waited == pid);
        V(status);
        V(whole >= burnt * 9 / 10); V(added >= burnt * 9 / 10);
    }
    /* waitid tells it, too; what is only looked at is not added. */
    pid = SYS(fork, 0);
    if (pid == 0) { burn(UNIT); SYS(exit_group, 3); }
    int info[32];
    long before = usage_of(-1);
    V(SYS(waitid, 1, pid, info, 4 | 0x1000000, &usage)); V(spent() >= UNIT * 9 / 10); V(usage_of(-1) == before);
    V(SYS(waitid, 1, pid, info, 4, &usage)); V(spent() >= UNIT * 9 / 10); V(usage_of(-1) > before);
    /* Nor is that of children whose end is ignored. */
    on_signal(17, (void *)1, 0, 0);
    before = usage_of(-1);
    pid = SYS(fork, 0);
    if (pid == 0) { burn(UNIT); SYS(exit_group, 3); }
    V(SYS(wait4, pid, 0, 0, &usage)); V(usage_of(-1) == before);
    on_signal(17, 0, 0, 0);
}

static void clocks(void) {
    long own = SYS(getpid, 0);
    V(now(clock_of(0)) > 0); V(now(clock_of(own)) > 0); V(now(thread_clock_of(0)) > 0); V(now(thread_clock_of(own)) > 0);
    V(now(clock_of(own)) >= now(CPU_PROCESS) - UNIT * 100);
    long odd[] = { clock_of(99999), thread_clock_of(99999), clock_of(-5), clock_of(0) | 1, -1 };
    for (int i = 0; i < 5; i++) {
        V(SYS(clock_gettime, odd[i], out.bytes)); V(SYS(clock_getres, odd[i], out.bytes));
        int number;
        V(SYS(timer_create, odd[i], 0, &number));
    }
    HIDE(TIME); V(SYS(clock_getres, clock_of(0), out.bytes));
    int ends[2], back[2];
    SYS(pipe, ends); SYS(pipe, back);
    long pid = SYS(fork, 0);
    if (pid == 0) {
        burn(UNIT);
        SYS(write, back[1], "x", 1);
        SYS(read, ends[0], out.bytes, 1);
        burn(UNIT);
        SYS(write, back[1], "x", 1);
        SYS(read, ends[0], out.bytes, 1);
        SYS(exit_group, 0);
    }
    SYS(read, back[0], out.bytes, 1);
    long first = now(clock_of(pid));
    V(first >= UNIT * 9 / 10); V(now(thread_clock_of(pid)));
    SYS(write, ends[1], "x", 1);
    SYS(read, back[0], out.bytes, 1);
    V(now(clock_of(pid)) - first >= UNIT * 9 / 10);
    SYS(kill, pid, 9);
    SYS(wait4, pid, 0, 0, &usage);
    V(spent() >= 2 * UNIT * 9 / 10);
    V(now(clock_of(pid)));
    fill();
    V(now(CPU_THREAD) <= now(CPU_PROCESS));
    long thread = usage_of(1);
    V(thread > 0); V(thread <= usage_of(0) + UNIT * 10);
}

static void timers(void) {
    /* A timer of a process stands still while another one runs. */
    on_signal(27, count, SA_RESTART, 0); on_signal(26, count, SA_RESTART, 0); on_signal(10, count, SA_RESTART, 0);
    for (int which = 1; which < 3; which++) {
        long timer[4] = { 0, 0, 0, 20000 }, left[4];
        ran = 0;
        V(SYS(setitimer, which, timer, 0));
        long pid = SYS(fork, 0);
        if (pid == 0) {
            V(SYS(getitimer, which, left)); V(left[2]); V(left[3]);
            burn(UNIT);
            SYS(exit_group, ran);
        }
        int status;
        SYS(wait4, pid, &status, 0, 0);
        V(status); V(SYS(getitimer, which, left)); V(left[3] > 10000); V(ran);
        timer[3] = 100;
        V(SYS(setitimer, which, timer, 0));
        burn_until_ran();
        V(ran > 0);
    }
    struct { word value; int signal, notify; word rest[6]; } event = { 0, 10, 0, { 0 } };
    long clocks[] = { CPU_PROCESS, CPU_THREAD, clock_of(0), thread_clock_of(0) };
    for (int i = 0; i < 4; i++) {
        int number;
        long spec[4] = { 0, 0, 0, 100000 };
        V(SYS(timer_create, clocks[i], &event, &number));
        ran = 0;
        V(SYS(timer_settime, number, 0, spec, 0));
        burn_until_ran();
        V(ran > 0);
        V(SYS(timer_delete, number));
    }
}

static void cases(void) {
    children();
    clocks();
    timers();
}
