/* Copying, times, capabilities, priorities, seals: calls that few programs need. */
#include "cases.h"

#define P 4096
#define CHILD(...) do { flush(); long pid_ = SYS(fork, 0); \
    if (pid_ == 0) { __VA_ARGS__; flush(); SYS(exit_group, 0); } \
    int status_ = 0; SYS(wait4, pid_, &status_, 0, 0); V(status_); } while (0)
static const struct field CAPS[] = { { 0, 24, "what a container leaves" }, NONE };
static const struct field TIMEX[] = { { 0, 208, "how the clock is synchronized" }, NONE };
static const struct field ATTR[] = { { 24, 8, "sched_runtime: since Linux 6.12" }, NONE };
static char text[64];
static void say_file(long fd, long size) {
    memset(text, 0, sizeof text);
    report("pread", SYS(pread64, fd, text, size, 0));
    for (int i = 0; i < size; i++) if (!text[i]) text[i] = '.';
    text[size] = 0;
    about = text; report("", 0); about = "";
}

static void copying(void) {
    long a = make("a", "0123456789abcdef"), b = make("b", "");
    EACH_FD(fd, if (i_ != MEM) { T(copy_file_range, a, 0, fd, 0, 0, 0); T(copy_file_range, fd, 0, b, 0, 0, 0); });
    T(copy_file_range, a, 0, b, 0, 4, 1); T(copy_file_range, a, 0, b, 0, 4, -1);
    long from = 2, to = 1, far = 100, minus = -1, large = 0x7fffffffffffffff;
    V(SYS(copy_file_range, a, &from, b, &to, 4, 0)); V(from); V(to); say_file(b, 8);
    V(SYS(copy_file_range, a, &from, b, 0, 100, 0)); V(from); V(SYS(lseek, b, 0, 1)); say_file(b, 16);
    V(SYS(lseek, a, 0, 0)); V(SYS(copy_file_range, a, 0, b, &to, 3, 0)); V(SYS(lseek, a, 0, 1)); say_file(b, 16);
    V(SYS(copy_file_range, a, &far, b, &to, 3, 0)); V(far);
    V(SYS(copy_file_range, a, &large, b, &to, 3, 0)); V(SYS(copy_file_range, a, &from, b, &large, 3, 0));
    (void)minus;
    from = 0, to = 4;
    V(SYS(copy_file_range, a, &from, a, &to, 8, 0)); V(SYS(copy_file_range, a, &from, a, &to, 4, 0)); say_file(a, 16);
    EACH_BAD_BUT_NULL(p, T(copy_file_range, a, p, b, 0, 4, 0); T(copy_file_range, a, 0, b, p, 4, 0));
    /* What shows the file sees it. */
    char *map = (char *)SYS(mmap, 0, P, 3, 1, b, 0);
    from = 0, to = 0;
    V(SYS(copy_file_range, a, &from, b, &to, 4, 0)); V(map[0]); map[1] = '!';
    from = 0, to = 8;
    V(SYS(copy_file_range, b, &from, a, &to, 4, 0)); say_file(a, 16);
    SYS(munmap, map, P);
    /* With flags. */
    struct { char *at; long size; } vector[2] = { { text, 3 }, { text + 3, 4 } };
    memcpy(text, "vectors", 7);
    V(SYS(pwritev2, b, vector, 2, 0, 0, 0)); V(SYS(pwritev2, b, vector, 2, -1, -1, 0)); V(SYS(pwritev2, b, vector, 2, 1, 0, 7));
    V(SYS(pwritev2, b, vector, 1, 0, 0, 16)); V(SYS(pwritev2, b, vector, 1, 0, 0, 1 << 20)); V(SYS(pwritev2, 90, vector, 1, 0, 0, 0));
    say_file(b, 32);
    V(SYS(lseek, b, 0, 0)); V(SYS(preadv2, b, vector, 2, -1, -1, 0)); V(SYS(preadv2, b, vector, 2, 2, 0, 1)); V(SYS(lseek, b, 0, 1));
    V(SYS(preadv2, b, vector, 2, 2, 0, 1 << 20)); V(SYS(preadv2, b, vector, -1, 0, 0, 0)); V(SYS(preadv2, FD(PR), vector, 1, 0, 0, 0));
    EACH_FD(fd, T(sync_file_range, fd, 0, 0, 7); T(syncfs, fd));
    T(sync_file_range, FD(RW), 0, 0, 8); T(sync_file_range, FD(RW), -1, 0, 7); T(sync_file_range, FD(RW), 0, -1, 7);
    SYS(close, a); SYS(close, b);
}

static void between_processes(void) {
    static char bytes[2 * P];
    char *at = edge;
    struct { char *at; long size; } own[2] = { { bytes, 5 }, { bytes + 10, 100 } }, other[2] = { { at, 8 }, { at + 8, 100 } };
    memcpy(at, "0123456789abcdef", 16);
    int ends[2], back[2];
    SYS(pipe, ends); SYS(pipe, back);
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) {
        memcpy(at, "the child's text", 16);
        SYS(write, back[1], "x", 1);
        SYS(read, ends[0], bytes, 1);
        about = at[0] == '!' ? "written " : "as before ";
        V(at[1]);
        flush();
        SYS(exit_group, 0);
    }
    SYS(read, back[0], out.bytes, 1); fill();
    V(SYS(process_vm_readv, pid, own, 2, other, 1, 0)); memcpy(out.bytes, bytes, 20); report("bytes", 0);
    V(SYS(process_vm_readv, pid, own, 2, other, 2, 0)); memcpy(out.bytes, bytes, 20); report("bytes", 0);
    V(SYS(process_vm_readv, pid, own, 0, other, 1, 0)); V(SYS(process_vm_readv, pid, own, 1, other, 0, 0));
    V(SYS(process_vm_readv, pid, own, 1, other, 1, 1)); V(SYS(process_vm_readv, 99999, own, 1, other, 1, 0));
    V(SYS(process_vm_readv, pid, own, 1025, other, 1, 0)); V(SYS(process_vm_readv, pid, own, 1, other, 1025, 0));
    EACH_BAD(p, V(SYS(process_vm_readv, pid, p, 1, other, 1, 0)); V(SYS(process_vm_readv, pid, own, 1, p, 1, 0)));
    other[0].at = bad[2].at;
    V(SYS(process_vm_readv, pid, own, 1, other, 1, 0));
    own[0].at = (char *)"!?", own[0].size = 2, other[0].at = at;
    V(SYS(process_vm_writev, pid, own, 1, other, 1, 0));
    other[0].at = ro;
    V(SYS(process_vm_writev, pid, own, 1, other, 1, 0)); V(SYS(process_vm_writev, 99999, own, 1, other, 1, 0));
    V(SYS(process_vm_writev, pid, own, 1, other, 1, 1));
    SYS(write, ends[1], "x", 1);
    SYS(wait4, pid, 0, 0, 0);
    V(at[0]);
    SYS(close, ends[0]); SYS(close, ends[1]); SYS(close, back[0]); SYS(close, back[1]);
}

static void times(void) {
    SYS(close, make("timed", "x"));
    long two[4] = { 1000, 2000, 0, 0 }, four[4] = { 1000, 5, 2000, 999999 }, odd[4] = { 1000, 1000000, 0, 0 }, stat[18];
    V(SYS(utime, "timed", two)); SYS(stat, "timed", stat); V(stat[9]); V(stat[10]); V(stat[11]);
    V(SYS(utimes, "timed", four)); SYS(stat, "timed", stat); V(stat[9]); V(stat[10]); V(stat[11]); V(stat[12]);
    V(SYS(utimes, "timed", odd)); V(SYS(futimesat, -100, "timed", four)); V(SYS(futimesat, FD(DIR), "inside", four));
    V(SYS(futimesat, FD(RW), 0, four)); SYS(fstat, FD(RW), stat); V(stat[11]); V(SYS(futimesat, 90, 0, four));
    V(SYS(utime, "timed", 0)); V(SYS(utimes, "timed", 0));
    EACH_WRONG(p, T(utime, p, two); T(utimes, p, four); T(futimesat, -100, p, four));
    EACH_BAD_BUT_NULL(p, T(utime, "timed", p); T(utimes, "timed", p); T(futimesat, -100, "timed", p));
    /* Only what fails also for root: the clock of the host must stay as it is. */
    EACH_BAD(p, T(clock_settime, 0, p));
    T(clock_settime, 1, two); T(clock_settime, 2, two); T(clock_settime, 3, two); T(clock_settime, 99, two); T(clock_settime, -1, two);
    T(clock_settime, 4, two); T(clock_settime, 7, two);
    two[1] = 1000000000;
    T(clock_settime, 0, two);
    two[0] = -1, two[1] = 0;
    T(clock_settime, 0, two);
    EACH_BAD_BUT_NULL(p, T(settimeofday, p, 0); T(settimeofday, 0, p));
    T(settimeofday, two, 0);
    memset(out.bytes, 0, 208);
    { HIDE(TIMEX); long r = SYS(adjtimex, out.bytes); report("adjtimex", r < 0 ? r : 0); }
    fill();
    EACH_BAD(p, T(adjtimex, p));
}

static void names(void) {
    T(mknod, "fifo", 010644, 0); T(mknod, "plain", 0100600, 0); T(mknod, "nothing", 0600, 0); T(mknod, "socket", 0140600, 0);
    T(mknod, "odd", 0170600, 0); T(mknod, "folder", 040700, 0); T(mknod, "fifo", 010644, 0);
    T(mknodat, FD(DIR), "fifo", 010600, 0); T(mknodat, FD(RD), "fifo", 010600, 0); T(mknodat, 90, "fifo", 010600, 0);
    EACH_WRONG(p, T(mknod, p, 010600, 0); T(mknodat, -100, p, 0100600, 0); if (i_ == 0) SYS(unlink, "missing"));
    HIDE(STAT_FILE); T(lstat, "fifo", out.bytes); HIDE(STAT_FILE); T(lstat, "plain", out.bytes);
    HIDE(STAT_FILE); T(lstat, "socket", out.bytes); T(open, "socket", 0);
    long how[4] = { 0, 0, 0, 0 };
    V(SYS(openat2, -100, "file", how, 24) > 0); V(SYS(openat2, -100, "file", how, 32) > 0);
    how[3] = 1;
    V(SYS(openat2, -100, "file", how, 32)); V(SYS(openat2, -100, "file", how, 16)); V(SYS(openat2, -100, "file", how, 5000));
    how[1] = 0600;
    V(SYS(openat2, -100, "file", how, 24));
    how[0] = O_CREAT | O_WRONLY;
    V(SYS(openat2, -100, "new", how, 24) > 0);
    how[1] = 0100600;
    V(SYS(openat2, -100, "new", how, 24));
    how[0] = 1l << 40, how[1] = 0;
    V(SYS(openat2, -100, "file", how, 24));
    how[0] = 0, how[2] = 1 << 10;
    V(SYS(openat2, -100, "file", how, 24));
    how[2] = 0;
    EACH_WRONG(p, T(openat2, -100, p, how, 24));
    EACH_BAD(p, T(openat2, -100, "file", p, 24));
}

static void privileges(void) {
    struct { unsigned version; int pid; } header = { 0x20080522, 0 };
    HIDE(CAPS); V(SYS(capget, &header, out.bytes)); V(SYS(capget, &header, 0));
    header.pid = 99999; V(SYS(capget, &header, out.bytes)); header.pid = -1; V(SYS(capget, &header, out.bytes));
    header.pid = SYS(getpid, 0); HIDE(CAPS); V(SYS(capget, &header, out.bytes));
    header.version = 0x19980330; HIDE(CAPS); V(SYS(capget, &header, out.bytes));
    header.version = 5; V(SYS(capget, &header, 0)); V(header.version); header.version = 5; V(SYS(capget, &header, out.bytes));
    EACH_BAD(p, T(capget, p, out.bytes); T(capset, p, out.bytes));
    EACH_BAD_BUT_NULL(p, header.version = 0x20080522; header.pid = 0; V(SYS(capget, &header, p)); V(SYS(capset, &header, p)));
    unsigned sets[6];
    SYS(capget, &header, sets);
    V(SYS(capset, &header, sets));
    sets[4] |= 1u << 30;
    V(SYS(capset, &header, sets));
    V(header.pid = 1, SYS(capset, &header, sets));
    EACH_CLOSED(fd, T(syncfs, fd));
    CHILD(int parameter = 0; SYS(setpriority, 0, 0, 19); V(SYS(sched_getscheduler, 0)); V(SYS(sched_setscheduler, 0, 3, &parameter)); V(SYS(sched_getscheduler, 0));
          HIDE(ATTR); V(SYS(sched_getattr, 0, out.bytes, 48, 0));
          V(SYS(sched_getattr, 0, out.bytes, 47, 0)); V(SYS(sched_getattr, 0, out.bytes, 5000, 0)); V(SYS(sched_getattr, 0, out.bytes, 48, 1));
          V(SYS(sched_getattr, -1, out.bytes, 48, 0)); V(SYS(sched_getattr, 99999, out.bytes, 48, 0)); V(SYS(sched_getattr, 0, 0, 48, 0));
          struct { unsigned size, policy; word flags; int nice; unsigned priority; word rest[3]; } attr = { 48, 0, 0, 19, 0, { 0 } };
          V(SYS(sched_setattr, 0, &attr, 0)); V(SYS(getpriority, 0, 0)); V(SYS(sched_getscheduler, 0));
          V(SYS(sched_setattr, 0, &attr, 1)); V(SYS(sched_setattr, -1, &attr, 0)); V(SYS(sched_setattr, 99999, &attr, 0)); V(SYS(sched_setattr, 0, 0, 0));
          attr.policy = 99; V(SYS(sched_setattr, 0, &attr, 0)); attr.policy = 0, attr.priority = 1; V(SYS(sched_setattr, 0, &attr, 0));
          attr.size = 8; V(SYS(sched_setattr, 0, &attr, 0)); V(attr.size > 48);
          parameter = 100; V(SYS(sched_setscheduler, 0, 1, &parameter)); V(SYS(sched_setscheduler, 0, 2, &parameter)));
}

static volatile word ran;
static void count(int signal) { ran += signal; }

static void children(void) {
    on_signal(10, count, SA_RESTART, 0); on_signal(17, count, SA_RESTART, 0);
    // The last two are no signals.
    int signals[] = { 17, 10, 0, 65, 255 };
    for (int i = 0; i < 5; i++) {
        ran = 0;
        flush();
        long pid = SYS(clone, signals[i], 0, 0, 0, 0);
        if (pid == 0) SYS(exit_group, 5);
        int status = 0;
        if (i) V(SYS(wait4, pid, &status, 1, 0));
        V(SYS(wait4, pid, &status, i ? 0x80000000 : 0, 0) == pid); V(status); V(ran);
        V(SYS(wait4, pid, &status, 0x40000000, 0));
    }
    struct { word flags, pidfd, child, parent, signal, stack, size, tls, set, sets, group; } args = { 0 };
    args.signal = 65; V(SYS(clone3, &args, sizeof args)); args.signal = 17, args.flags = 0x8000; V(SYS(clone3, &args, sizeof args));
    args.flags = 0x100000900; V(SYS(clone3, &args, sizeof args));
    for (int clears = 0; clears < 2; clears++) {
        args.flags = clears ? 0x100000000 : 0;
        on_signal(10, clears ? (void *)1 : count, 0, 0);
        flush();
        long pid = SYS(clone3, &args, sizeof args);
        if (pid == 0) {
            struct action action;
            SYS(rt_sigaction, 10, 0, &action, 8);
            long own = action.handler == (void *)count ? 1 : action.handler ? 2 : 0;
            SYS(rt_sigaction, 17, 0, &action, 8);
            SYS(exit_group, own + (action.handler ? 4 : 0));
        }
        int status = 0;
        V(SYS(wait4, pid, &status, 0, 0) == pid); V(status);
    }
    /* A child of the parent. */
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) {
        long inner = SYS(clone, 0x8000 | 17, 0, 0, 0, 0);
        if (inner == 0) SYS(exit_group, 7);
        int status = 0;
        SYS(exit_group, -SYS(wait4, inner, &status, 0, 0));
    }
    int status = 0, sum = 0;
    while (SYS(wait4, -1, &status, 0, 0) > 0) sum += status;
    V(sum);
    on_signal(10, 0, 0, 0); on_signal(17, 0, 0, 0);
    T(unshare, 0); T(unshare, 0x200); T(unshare, 0x400); T(unshare, 0x40000); T(unshare, 0x10000); T(unshare, 0x900); T(unshare, 1);
    T(close_range, 200, 300, 2); T(close_range, 200, 300, 8);
}

static void memory(void) {
    char *a = (char *)SYS(mmap, 0, 4 * P, 3, 0x22, -1, 0);
    a[0] = 1; a[2 * P] = 1;
    SYS(munmap, a + 3 * P, P);
    V(SYS(mincore, a, 3 * P, out.bytes)); report("pages", 0);
    V(SYS(mincore, a, 4 * P, out.bytes)); fill(); V(SYS(mincore, a + 1, P, out.bytes)); V(SYS(mincore, a, 0, out.bytes));
    V(SYS(mincore, a, -1, out.bytes)); EACH_BAD(p, V(SYS(mincore, a, P, p)));
    T(mlockall, 0); T(mlockall, 4); T(mlockall, 8); T(mlockall, -1); T(munlockall, 0);
    /* Seals. */
    long fd = SYS(memfd_create, "sealed", 2), never = FD(MEM);
    V(SYS(fcntl, fd, 1034)); V(SYS(fcntl, never, 1034)); V(SYS(fcntl, never, 1033, 2)); V(SYS(fcntl, fd, 1033, 1 << 10));
    SYS(write, fd, "0123456789", 10);
    V(SYS(fcntl, fd, 1033, 2)); V(SYS(ftruncate, fd, 5)); V(SYS(ftruncate, fd, 20)); V(SYS(fcntl, fd, 1034));
    V(SYS(fcntl, fd, 1033, 4)); V(SYS(ftruncate, fd, 30)); V(SYS(pwrite64, fd, "x", 1, 25)); V(SYS(pwrite64, fd, "x", 1, 5));
    char *map = (char *)SYS(mmap, 0, P, 3, 1, fd, 0);
    V(SYS(fcntl, fd, 1033, 8)); SYS(munmap, map, P); V(SYS(fcntl, fd, 1033, 8));
    V(SYS(mmap, 0, P, 3, 1, fd, 0)); V(SYS(mmap, 0, P, 1, 2, fd, 0) > 0); V(SYS(pwrite64, fd, "x", 1, 0)); V(SYS(fcntl, fd, 1034));
    V(SYS(fcntl, fd, 1033, 1)); V(SYS(fcntl, fd, 1033, 16)); V(SYS(fcntl, fd, 1034)); V(SYS(fcntl, FD(RW), 1034)); V(SYS(fcntl, FD(PR), 1034));
}

static void cases(void) {
    copying();
    between_processes();
    times();
    names();
    privileges();
    children();
    memory();
}
