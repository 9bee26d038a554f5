/* Clocks, sleeping, timers. Times are not compared directly, only their properties. */
#include "cases.h"

struct time { long seconds, rest; };
struct timer { struct time interval, first; };
static volatile word ran;
static void count(int signal) { (void)signal; ran++; }

static void telling(void) {
    for (long clock = -1; clock < 12; clock++) {
        if (clock >= 8 && clock < 12) continue; /* Alarm clocks need a device; 10 is gone. */
        HIDE(TIME); T(clock_gettime, clock, out.bytes);
        HIDE(TIME); T(clock_getres, clock, out.bytes);
    }
    T(clock_gettime, 1 << 20, out.bytes);
    T(clock_getres, 1, 0);
    T(clock_getres, 99, 0);
    EACH_BAD(p, T(clock_gettime, 0, p));
    EACH_BAD_BUT_NULL(p, T(clock_getres, 1, p));
    HIDE(TIME); T(gettimeofday, out.bytes, 0);
    T(gettimeofday, 0, 0);
    EACH_BAD_BUT_NULL(p, T(gettimeofday, p, 0); T(gettimeofday, 0, p));
    OK(time, 0);
    HIDE(WORD); OK(time, out.words);
    EACH_BAD_BUT_NULL(p, T(time, p));
    HIDE(TMS); OK(times, out.bytes);
    OK(times, 0);
    EACH_BAD_BUT_NULL(p, T(times, p));
    word a[2], b[2];
    SYS(clock_gettime, 0, a);
    SYS(clock_gettime, 0, b);
    V(b[0] > a[0] || (b[0] == a[0] && b[1] >= a[1]));
    V(SYS(time, 0) - (long)b[0] < 2);
    SYS(gettimeofday, b, 0);
    V(b[1] < 1000000);
    V(b[0] - a[0] < 2);
    /* CLOCK_MONOTONIC is not the time of day. */
    SYS(clock_gettime, 1, b);
    V(b[0] < a[0]);
}

static void sleeping(void) {
    struct time none = { 0, 0 }, tiny = { 0, 1000 }, odd = { 0, 1000000000 }, minus = { -1, 0 },
        negative = { 0, -1 }, now;
    T(nanosleep, &none, 0);
    T(nanosleep, &tiny, out.bytes);
    T(nanosleep, &odd, 0);
    T(nanosleep, &minus, 0);
    T(nanosleep, &negative, 0);
    EACH_BAD(p, T(nanosleep, p, 0));
    EACH_BAD_BUT_NULL(p, T(nanosleep, &tiny, p));
    for (long clock = -1; clock < 12; clock++) {
        if (clock >= 8 && clock < 12) continue;
        if (clock == 2 || clock == -1) continue; /* Would wait for processor time that never passes. */
        T(clock_nanosleep, clock, 0, &tiny, 0);
        T(clock_nanosleep, clock, 1, &tiny, 0);
    }
    T(clock_nanosleep, 1, 0, &odd, 0);
    T(clock_nanosleep, 1, 1, &minus, 0);
    T(clock_nanosleep, 1, 2, &tiny, 0);
    EACH_BAD(p, T(clock_nanosleep, 1, 0, p, 0));
    struct time later;
    SYS(clock_gettime, 1, &now);
    tiny.rest = 30000000;
    T(nanosleep, &tiny, 0);
    SYS(clock_gettime, 1, &later);
    V((later.seconds - now.seconds) * 1000000000 + later.rest - now.rest >= 30000000);
}

static void intervals(void) {
    long some[4] = { 100, 5, 50, 7 }, odd[4] = { 0, 1000000, 0, 0 }, minus[4] = { 0, 0, -1, 0 }, none[4] = { 0 };
    for (int which = -1; which < 4; which++) {
        T(getitimer, which, out.bytes);
        T(setitimer, which, some, out.bytes);
        HIDE(ITIMER);
        T(getitimer, which, out.bytes);
        T(setitimer, which, odd, 0);
        T(setitimer, which, minus, 0);
        T(setitimer, which, none, 0);
        T(getitimer, which, out.bytes);
    }
    EACH_BAD(p, T(getitimer, 0, p));
    EACH_BAD_BUT_NULL(p, T(setitimer, 0, p, 0); T(setitimer, 0, none, p));
    T(setitimer, 0, 0, out.bytes);
    T(alarm, 100);
    T(alarm, 0);
    T(alarm, 0);
    T(alarm, 1ul << 32 | 5);
    T(alarm, 0);
    long soon[4] = { 0, 0, 0, 1 };
    on_signal(26, count, 0, 0);
    T(setitimer, 1, soon, 0);
    while (!ran) {}
    V(ran);
}

static void timers(void) {
    int id = -7;
    struct timer t = { { 0, 0 }, { 100, 0 } };
    struct { word value; int signal, notify, thread, pad[11]; } event = { 7, 12, 0, 0, { 0 } };
    T(timer_create, 0, 0, &id);
    V(id >= 0);
    for (long clock = -1; clock < 12; clock++) {
        if ((clock >= 8 && clock < 12) || clock == -1) continue;
        int one;
        T(timer_create, clock, &event, &one);
        SYS(timer_delete, one);
    }
    EACH_BAD(p, T(timer_create, 0, &event, p));
    EACH_BAD_BUT_NULL(p, int one; T(timer_create, 0, p, &one));
    int one;
    event.signal = 65; T(timer_create, 0, &event, &one);
    event.signal = -1; T(timer_create, 0, &event, &one);
    event.signal = 0; T(timer_create, 0, &event, &one);
    event.signal = 12, event.notify = 9; T(timer_create, 0, &event, &one);
    event.notify = 4; event.thread = 0x7fffffff; T(timer_create, 0, &event, &one);
    event.thread = SYS(gettid, 0); T(timer_create, 0, &event, &one);
    T(timer_delete, one);
    event.notify = 1; T(timer_create, 0, &event, &one);
    T(timer_delete, one);
    T(timer_delete, one);
    T(timer_settime, id, 0, &t, out.bytes);
    HIDE(ITIMER);
    T(timer_gettime, id, out.bytes);
    T(timer_getoverrun, id);
    T(timer_getoverrun, 12345);
    T(timer_getoverrun, -1);
    T(timer_gettime, 12345, out.bytes);
    T(timer_settime, 12345, 0, &t, 0);
    T(timer_delete, 12345);
    T(timer_settime, id, 0, 0, 0);
    t.first.rest = 1000000000; T(timer_settime, id, 0, &t, 0);
    t.first.rest = 0, t.interval.seconds = -1; T(timer_settime, id, 0, &t, 0);
    EACH_BAD(p, T(timer_settime, id, 0, p, 0); T(timer_gettime, id, p));
    t.interval.seconds = 0, t.first.seconds = 0;
    EACH_BAD_BUT_NULL(p, T(timer_settime, id, 0, &t, p));
    T(timer_settime, id, 0, &t, 0);
    T(timer_gettime, id, out.bytes);
    T(timer_delete, id);
}

static void cases(void) {
    telling();
    sleeping();
    intervals();
    timers();
}
