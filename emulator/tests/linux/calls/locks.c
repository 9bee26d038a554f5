/* Locks of files, within and between processes. */
#include "cases.h"

struct lock { short type, whence; long start, length; int pid; int pad; };
enum { R, W, U };
enum { GETLK = 5, SETLK, SETLKW, OFD_GETLK = 36, OFD_SETLK, OFD_SETLKW };
static int parent;

#define CHILD(...) do { flush(); long pid_ = SYS(fork, 0); \
    if (pid_ == 0) { __VA_ARGS__; flush(); SYS(exit_group, 0); } \
    int status_ = 0; SYS(wait4, pid_, &status_, 0, 0); V(status_); } while (0)
static void wait_a_little(void) { word time[2] = { 0, 20000000 }; SYS(nanosleep, time, 0); }

static long set(long fd, int command, int type, long start, long length) {
    struct lock lock = { type, 0, start, length, 0, 0 };
    return SYS(fcntl, fd, command, &lock);
}
static void ask(long fd, int command, int type, long start, long length) {
    struct lock lock = { type, 0, start, length, 0, 77 };
    report("ask", SYS(fcntl, fd, command, &lock));
    report("type", lock.type); report("start", lock.start); report("length", lock.length);
    report("pid", lock.pid <= 0 ? lock.pid : lock.pid == parent ? 1 : 2);
}

static void arguments_of_locks(void) {
    int commands[] = { GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW };
    for (int c = 0; c < 6; c++) {
        int command = commands[c];
        EACH_FD(fd, if (i_ != NUL && i_ != ZERO) for (int type = -1; type < 4; type++)
                if (command != GETLK && command != OFD_GETLK) report("lock", set(fd, command, type, 0, 10)));
        EACH_BAD(p, V(SYS(fcntl, FD(RW), command, p)));
        for (int whence = -1; whence < 4; whence++) {
            struct lock lock = { R, whence, 0, 10, 0, 0 };
            report("whence", SYS(fcntl, FD(RW), command, &lock));
        }
        long starts[] = { 0, 5, -1, 0x7fffffffffffffff, -0x7fffffffffffffff };
        for (int s = 0; s < 5; s++) for (int l = 0; l < 5; l++) {
            struct lock lock = { R, 0, starts[s], starts[l], 0, 0 };
            report("range", SYS(fcntl, FD(RW), command, &lock));
        }
        struct lock lock = { R, 0, 0, 0, 5, 0 };
        report("pid", SYS(fcntl, FD(RW), command, &lock));
        for (int i = 0; i < KINDS; i++) { set(FD(i), SETLK, U, 0, 0); set(FD(i), OFD_SETLK, U, 0, 0); }
    }
    EACH_FD(fd, for (int i = -1; i < 10; i++) if (i != 0) T(flock, fd, i | 4));
    EACH_FD(fd, T(flock, fd, 8));
    T(flock, FD(RD), 33);
}

static void of_processes(void) {
    long fd = SYS(open, "lock", O_RDWR | O_CREAT, 0600), again = SYS(open, "lock", O_RDWR), copy = SYS(dup, fd);
    V(set(fd, SETLK, W, 10, 10)); V(set(fd, SETLK, R, 15, 2)); V(set(again, SETLK, W, 30, 0));
    ask(fd, GETLK, W, 0, 0);
    CHILD(ask(fd, GETLK, W, 0, 0); ask(fd, GETLK, R, 0, 0); ask(fd, GETLK, W, 15, 1); ask(fd, GETLK, R, 15, 2);
          ask(fd, GETLK, W, 20, 10); ask(fd, GETLK, W, 20, 0); ask(fd, GETLK, W, 100, -50); ask(fd, OFD_GETLK, W, 12, 1);
          V(set(fd, SETLK, R, 15, 2)); V(set(fd, SETLK, W, 15, 2)); V(set(fd, SETLK, R, 14, 2)); V(set(fd, SETLK, U, 0, 0));
          V(set(fd, SETLK, W, 0, 10)); V(set(fd, SETLK, W, 0, 11)));
    /* What the child had is gone; closing any descriptor of the file drops this one's. */
    V(set(fd, SETLK, W, 0, 10));
    SYS(close, copy);
    CHILD(ask(fd, GETLK, W, 0, 0));
    V(set(fd, SETLK, W, 0, 5));
    SYS(dup2, FD(RD), again);
    CHILD(ask(fd, GETLK, W, 0, 0));
    V(set(fd, SETLK, W, 0, 5));
    long third = SYS(open, "lock", O_RDWR);
    SYS(close_range, third, third, 0);
    CHILD(ask(fd, GETLK, W, 0, 0));
    /* Waiting. */
    V(set(fd, SETLK, W, 0, 5));
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) {
        long result = set(fd, SETLKW, W, 3, 10);
        SYS(pwrite64, fd, "child", 5, 0);
        SYS(exit_group, result == 0 ? 5 : 6);
    }
    wait_a_little();
    V(SYS(pread64, fd, out.bytes, 5, 0)); fill();
    V(set(fd, SETLK, U, 0, 3));
    wait_a_little();
    V(SYS(pread64, fd, out.bytes, 5, 0)); fill();
    V(set(fd, SETLK, U, 3, 0));
    int status;
    SYS(wait4, pid, &status, 0, 0);
    V(status); V(SYS(pread64, fd, out.bytes, 5, 0)); fill();
    /* A signal ends the wait. */
    V(set(fd, SETLK, W, 0, 0));
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) { on_signal(10, wait_a_little, 0, 0); SYS(exit_group, -set(fd, SETLKW, R, 0, 0)); }
    wait_a_little(); SYS(kill, pid, 10);
    SYS(wait4, pid, &status, 0, 0);
    V(status);
    V(set(fd, SETLK, U, 0, 0));
    /* Two that wait for each other. */
    V(set(fd, SETLK, W, 0, 1));
    int ends[2];
    SYS(pipe, ends);
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) {
        long first = set(fd, SETLK, W, 1, 1);
        SYS(write, ends[1], "x", 1);
        long second = set(fd, SETLKW, W, 0, 1);
        SYS(exit_group, first == 0 && second == 0 ? 5 : 6);
    }
    SYS(read, ends[0], out.bytes, 1); fill();
    wait_a_little();
    V(set(fd, SETLKW, W, 1, 1));
    V(set(fd, SETLK, U, 0, 1));
    SYS(wait4, pid, &status, 0, 0);
    V(status); V(set(fd, SETLKW, W, 1, 1));
    /* Kept by execve, unless the descriptor is closed then. */
    SYS(close, ends[0]); SYS(close, ends[1]); SYS(close, again);
    /* Ranges from the position and the end. */
    SYS(ftruncate, fd, 100); SYS(lseek, fd, 50, 0);
    struct lock lock = { W, 1, -10, 20, 0, 0 };
    V(set(fd, SETLK, U, 0, 0)); V(SYS(fcntl, fd, SETLK, &lock));
    lock.whence = 2, lock.start = 0, lock.length = -10;
    V(SYS(fcntl, fd, SETLK, &lock));
    CHILD(ask(fd, GETLK, W, 0, 0); ask(fd, GETLK, W, 60, 0));
    SYS(close, fd);
}

static void of_open_files(void) {
    long a = SYS(open, "lock", O_RDWR | O_CREAT, 0600), b = SYS(open, "lock", O_RDWR), copy = SYS(dup, a);
    V(set(a, OFD_SETLK, W, 0, 10)); V(set(b, OFD_SETLK, W, 5, 1)); V(set(copy, OFD_SETLK, W, 5, 1));
    V(set(b, SETLK, R, 0, 1)); V(set(a, SETLK, R, 0, 1));
    ask(b, OFD_GETLK, W, 0, 0); ask(a, OFD_GETLK, W, 0, 0); ask(a, GETLK, W, 0, 0);
    CHILD(V(set(a, OFD_SETLK, R, 0, 10)); V(set(b, OFD_SETLK, R, 0, 10)); V(set(b, OFD_SETLK, U, 0, 0)));
    V(set(b, OFD_SETLK, W, 5, 1)); V(set(a, OFD_SETLK, W, 5, 1)); V(set(b, OFD_SETLK, U, 0, 0));
    SYS(close, a);
    V(set(b, OFD_SETLK, W, 8, 1)); V(set(b, OFD_SETLK, R, 0, 1));
    SYS(close, copy);
    V(set(b, OFD_SETLK, W, 0, 0));
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) {
        long c = SYS(open, "lock", O_RDWR), result = set(c, OFD_SETLKW, W, 0, 0);
        SYS(exit_group, result == 0 ? 5 : 6);
    }
    wait_a_little();
    SYS(close, b);
    int status;
    /* The child has the open file, too. */
    V(SYS(wait4, pid, &status, 1, 0));
    SYS(kill, pid, 9); SYS(wait4, pid, &status, 0, 0);
    V(status);
    /* flock. */
    a = SYS(open, "lock", O_RDONLY), b = SYS(open, "lock", O_RDWR), copy = SYS(dup, a);
    long c = SYS(open, "lock", O_WRONLY);
    V(SYS(flock, a, 1)); V(SYS(flock, b, 5)); V(SYS(flock, c, 6)); V(SYS(flock, b, 6)); V(SYS(flock, copy, 6));
    V(SYS(flock, c, 5)); V(SYS(flock, b, 5)); V(SYS(flock, a, 8)); V(SYS(flock, c, 5)); V(SYS(flock, c, 8));
    V(SYS(flock, c, 6)); V(SYS(flock, a, 5));
    CHILD(V(SYS(flock, c, 5)); V(SYS(flock, a, 5)); V(SYS(flock, c, 8)));
    V(SYS(flock, a, 6)); V(SYS(flock, b, 5));
    V(set(b, SETLK, W, 0, 0));
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) {
        SYS(close, a); SYS(close, copy);
        SYS(exit_group, SYS(flock, b, 2) == 0 ? 5 : 6);
    }
    wait_a_little();
    V(SYS(wait4, pid, &status, 1, 0));
    SYS(close, a); SYS(close, copy);
    SYS(wait4, pid, &status, 0, 0);
    V(status); V(SYS(flock, c, 5)); V(SYS(flock, b, 8)); V(SYS(flock, c, 5));
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) { on_signal(10, wait_a_little, 0, 0); SYS(exit_group, -SYS(flock, b, 2)); }
    wait_a_little(); SYS(kill, pid, 10);
    SYS(wait4, pid, &status, 0, 0);
    V(status);
}

static void cases(void) {
    parent = SYS(getpid, 0);
    arguments_of_locks();
    of_processes();
    of_open_files();
}
