/* FIFOs: opening with and without the other end, reading, writing, events, names. */
#include "cases.h"

struct fd { int fd; short events, revents; };
static volatile int caught[65];
static void on(int number) { caught[number]++; }
static int events(int fd, int wait) {
    struct fd one = { fd, 0x1f, 0 };
    SYS(poll, &one, 1, wait);
    return one.revents;
}
static void sleep_ms(int ms) {
    long time[2] = { ms / 1000, ms % 1000 * 1000000l };
    SYS(nanosleep, time, 0);
}
static long child(void) {
    flush();
    return SYS(fork, 0);
}
static int status_of(long child) {
    int status = 0;
    SYS(wait4, child, &status, 0, 0);
    return status;
}
#define RD_ONLY (O_RDONLY | O_NONBLOCK)
#define WR_ONLY (O_WRONLY | O_NONBLOCK)

static void alone(void) {
    T(mknod, "fifo", 0010640, 0); T(mknod, "fifo", 0010640, 0);
    HIDE(STAT_PIPE); T(stat, "fifo", out.bytes);
    T(open, "fifo", WR_ONLY); T(open, "fifo", O_WRONLY | O_NONBLOCK | O_TRUNC);
    T(open, "fifo", O_RDONLY | O_DIRECTORY); T(open, "fifo", O_RDWR | O_CREAT | O_EXCL);
    T(open, "fifo/", O_RDONLY); T(truncate, "fifo", 0); T(execve, "fifo", 0, 0);
    long r = SYS(open, "fifo", RD_ONLY);
    V(r >= 0); T(fcntl, r, 3, 0); V(events(r, 0)); T(read, r, out.bytes, 9); T(write, r, "x", 1);
    T(lseek, r, 0, 0); T(pread64, r, out.bytes, 1, 0); T(ftruncate, r, 0); T(fsync, r); T(mmap, 0, 4096, 1, 2, r, 0);
    T(fcntl, r, 1032, 0); T(ioctl, r, 0x541b, out.bytes); T(ioctl, r, 0x5401, out.bytes);
    HIDE(STAT_PIPE); T(fstat, r, out.bytes);
    long w = SYS(open, "fifo", WR_ONLY);
    V(w >= 0); T(fcntl, w, 3, 0); V(events(r, 0)); V(events(w, 0)); T(read, r, out.bytes, 9); T(read, w, out.bytes, 9);
    T(write, w, "hello", 5); V(events(r, 0)); T(ioctl, r, 0x541b, out.bytes); T(ioctl, w, 0x541b, out.bytes);
    T(read, r, out.bytes, 3); T(close, w); V(events(r, 0)); T(read, r, out.bytes, 9); T(read, r, out.bytes, 9);
    V(events(r, 0));
    w = SYS(open, "fifo", WR_ONLY); V(events(r, 0)); T(write, w, "kept", 4); T(close, w);
    /* A second reader, by another name. */
    T(link, "fifo", "other"); T(rename, "fifo", "moved");
    long again = SYS(open, "other", RD_ONLY);
    V(events(again, 0)); T(read, again, out.bytes, 2); T(read, r, out.bytes, 9); T(close, again); T(close, r);
    r = SYS(open, "moved", RD_ONLY); V(events(r, 0));
    w = SYS(open, "other", WR_ONLY); T(write, w, "lost", 4); T(close, r); V(events(w, 0));
    on_signal(13, on, 0, 0);
    T(write, w, "x", 1); V(caught[13]); T(write, w, "", 0); T(close, w);
    r = SYS(open, "moved", RD_ONLY); T(read, r, out.bytes, 9); T(close, r);
    /* Both ends at once. */
    long both = SYS(open, "moved", O_RDWR);
    V(both >= 0); T(fcntl, both, 3, 0); V(events(both, 0)); T(write, both, "abc", 3); V(events(both, 0));
    T(read, both, out.bytes, 2); w = SYS(open, "moved", WR_ONLY); V(w >= 0); T(write, w, "de", 2); T(close, w);
    r = SYS(open, "moved", O_RDONLY); V(r >= 0); T(read, r, out.bytes, 9); V(events(r, 0)); T(close, both);
    V(events(r, 0)); T(read, r, out.bytes, 9);
    /* A path, and the descriptor's own. */
    T(fcntl, SYS(open, "moved", 010000000), 3, 0);
    char self[] = "/proc/self/fd/00";
    self[14] = '0' + r / 10; self[15] = '0' + r % 10;
    w = SYS(open, self, WR_ONLY);
    V(w >= 0); T(write, w, "self", 4); T(read, r, out.bytes, 9);
    T(unlink, "moved"); T(unlink, "other"); T(write, w, "gone", 4); T(read, r, out.bytes, 9);
    HIDE(STAT_PIPE); T(fstat, r, out.bytes);
    T(fchmod, r, 0600); T(chmod, "moved", 0600);
    /* Room. */
    static char many[5000];
    long total = 0, got;
    while ((got = SYS(write, w, many, 4096)) > 0) total += got;
    V(got); V(total); V(events(w, 0)); V(SYS(read, r, many, 4096)); V(events(w, 0)); V(SYS(write, w, many, 5000));
    T(splice, r, 0, FD(RW), 0, 10, 0);
    int epoll = SYS(epoll_create1, 0);
    struct { int events; int low, high; } watch = { 1 | 1 << 31, 7, 0 };
    while (SYS(read, r, many, 5000) == 5000) ;
    SYS(fcntl, r, 4, O_NONBLOCK); while (SYS(read, r, many, 5000) > 0) ;
    T(epoll_ctl, epoll, 1, r, &watch); T(epoll_wait, epoll, out.bytes, 4, 0);
    T(write, w, "x", 1); T(epoll_wait, epoll, out.bytes, 4, 0); T(epoll_wait, epoll, out.bytes, 4, 0);
    T(close, w); T(epoll_wait, epoll, out.bytes, 4, 0); T(close, r); T(close, epoll);
    for (int i = 0; i < 2; i++) {
        HIDE(STAT_PIPE); T(mknod, "odd", 0010000 | 0777, 0);
        HIDE(STAT_PIPE); T(stat, "odd", out.bytes); T(unlink, "odd");
    }
}

static void waiting(void) {
    SYS(mknod, "wait", 0010600, 0);
    /* The reader comes first, then the writer. */
    for (int i = 0; i < 2; i++) {
        long job = child();
        if (job == 0) {
            sleep_ms(40);
            long w = SYS(open, "wait", i ? O_WRONLY | O_NONBLOCK : O_WRONLY);
            V(w >= 0); T(write, w, "late", 4);
            if (i) { sleep_ms(40); T(write, w, "r", 1); }
            flush(); SYS(exit_group, 0);
        }
        long r = SYS(open, "wait", O_RDONLY);
        char text[8];
        long got = SYS(read, r, text, 8), more = SYS(read, r, text, 8), end = SYS(read, r, text, 8);
        status_of(job);
        V(got); V(more); V(end); T(fcntl, r, 3, 0); T(close, r);
    }
    long job = child();
    if (job == 0) {
        sleep_ms(40);
        long r = SYS(open, "wait", O_RDONLY);
        T(read, r, out.bytes, 9); T(read, r, out.bytes, 9);
        flush(); SYS(exit_group, 0);
    }
    long w = SYS(open, "wait", O_WRONLY);
    SYS(write, w, "early", 5); SYS(close, w);
    V(w >= 0); status_of(job);
    /* The other end comes and goes. */
    job = child();
    if (job == 0) {
        sleep_ms(40);
        SYS(close, SYS(open, "wait", O_WRONLY));
        sleep_ms(20);
        SYS(exit_group, 0);
    }
    long r = SYS(open, "wait", O_RDONLY);
    V(r >= 0); T(read, r, out.bytes, 9); status_of(job); V(events(r, 0)); T(close, r);
    job = child();
    if (job == 0) {
        sleep_ms(40);
        SYS(close, SYS(open, "wait", O_RDONLY | O_NONBLOCK));
        SYS(exit_group, 0);
    }
    w = SYS(open, "wait", O_WRONLY);
    V(w >= 0); status_of(job); T(write, w, "x", 1); T(close, w);
    /* The name is gone while it waits. */
    job = child();
    if (job == 0) {
        SYS(mknod, "gone", 0010600, 0);
        SYS(link, "gone", "still");
        if (child() == 0) {
            long in = SYS(open, "gone", O_RDONLY);
            T(read, in, out.bytes, 9);
            flush(); SYS(exit_group, 0);
        }
        sleep_ms(40);
        T(unlink, "gone");
        long out_ = SYS(open, "still", O_WRONLY);
        V(out_ >= 0); flush(); SYS(write, out_, "found", 5); SYS(close, out_);
        int status; SYS(wait4, -1, &status, 0, 0);
        flush(); SYS(exit_group, 0);
    }
    status_of(job);
    /* A signal ends the waiting, or it goes on. */
    for (int restarts = 0; restarts < 2; restarts++)
        for (int writes = 0; writes < 2; writes++) {
            caught[10] = 0;
            on_signal(10, on, restarts ? SA_RESTART : 0, 0);
            job = child();
            if (job == 0) {
                sleep_ms(40);
                SYS(kill, SYS(getppid, 0), 10);
                sleep_ms(40);
                if (restarts) { SYS(close, SYS(open, "wait", writes ? O_RDONLY : O_WRONLY)); }
                SYS(exit_group, 0);
            }
            long open = SYS(open, "wait", writes ? O_WRONLY : O_RDONLY);
            V(caught[10]); V(restarts ? open >= 0 : open); SYS(close, open); status_of(job);
            T(open, "wait", O_WRONLY | O_NONBLOCK);
        }
    /* Who is killed no longer waits. */
    job = child();
    if (job == 0) { SYS(open, "wait", O_RDONLY); SYS(exit_group, 0); }
    sleep_ms(40);
    long probe = SYS(open, "wait", O_WRONLY | O_NONBLOCK);
    V(probe >= 0); SYS(close, probe);
    job = child();
    if (job == 0) { SYS(open, "wait", O_RDONLY); SYS(exit_group, 0); }
    sleep_ms(40);
    SYS(kill, job, 9); status_of(job);
    T(open, "wait", O_WRONLY | O_NONBLOCK);
}

static void cases(void) {
    alone();
    waiting();
}
