/* Properties that a process gets and sets, and calls that do not exist. */
#include "cases.h"

static void numbers(void) {
    long pid = SYS(getpid, 0);
    V(pid == SYS(gettid, 0));
    OK(getppid, 0);
    OK(set_tid_address, out.bytes);
    OK(set_tid_address, 8);
    OK(getpgrp, 0);
    V(SYS(getpgid, 0) == SYS(getpgrp, 0));
    V(SYS(getpgid, pid) == SYS(getpgrp, 0));
    OK(getsid, 0);
    T(getpgid, -1);
    T(getpgid, 0x7fffffff);
    T(getsid, -1);
    T(getsid, 0x7fffffff);
    T(setpgid, 0, -1);
    T(setpgid, -1, 0);
    T(setpgid, 0x7fffffff, 0);
    T(setpgid, 0, 0);
    V(SYS(getpgrp, 0) == pid);
    T(setpgid, 0, pid);
    T(setpgid, pid, 0);
    T(setpgid, 0, 0x7fffffff);
    /* It is a group leader. */
    T(setsid, 0);
    T(umask, 0777); T(umask, 07777022); T(umask, -1); T(umask, 022); T(umask, 022);
}

static void users(void) {
    unsigned uid = SYS(getuid, 0), gid = SYS(getgid, 0);
    V(SYS(geteuid, 0) == uid); V(SYS(getegid, 0) == gid);
    T(setuid, uid); T(setgid, gid);
    T(setuid, -1); T(setgid, -1);
    T(setreuid, -1, -1); T(setregid, -1, -1);
    T(setreuid, uid, uid); T(setregid, gid, gid);
    T(setresuid, -1, -1, -1); T(setresgid, -1, -1, -1);
    T(setresuid, uid, -1, uid); T(setresgid, -1, gid, -1);
    V(SYS(setfsuid, -1) == uid); V(SYS(setfsgid, -1) == gid);
    V(SYS(setfsuid, uid) == uid); V(SYS(setfsgid, gid) == gid);
    unsigned ids[3] = { 1, 2, 3 };
    T(getresuid, ids, ids + 1, ids + 2);
    V(ids[0] == uid && ids[1] == uid && ids[2] == uid);
    T(getresgid, ids, ids + 1, ids + 2);
    V(ids[0] == gid && ids[1] == gid && ids[2] == gid);
    EACH_BAD(p, T(getresuid, p, ids, ids); T(getresuid, ids, p, ids); T(getresgid, ids, ids, p));
    T(getgroups, -1, 0);
    OK(getgroups, 0, 0);
}

/* Changing users and groups, with and without capabilities. */
static void privileged(int may) {
    unsigned uid = SYS(getuid, 0), gid = SYS(getgid, 0), ids[3];
    if (!may) {
        if (!uid) return;
        T(setuid, 0); T(setreuid, 0, -1); T(setresuid, -1, 0, -1); T(setresuid, -1, -1, 0);
        T(setgid, gid + 1); T(setregid, -1, gid + 1); T(setresgid, -1, gid + 1, -1);
        T(setgroups, 0, 0);
        V(SYS(setfsuid, uid + 1) == uid); V(SYS(setfsuid, -1) == uid);
        return;
    }
    T(setgroups, -1, 0); T(setgroups, 1 << 20, 0); T(setgroups, 0, 0);
    T(setgroups, 2, ((unsigned[]){ 5, 6 }));
    T(getgroups, 0, 0); T(getgroups, 1, out.bytes); T(getgroups, 2, out.bytes); T(getgroups, 10, out.bytes);
    EACH_BAD(p, T(setgroups, 1, p); T(getgroups, 5, p));
    T(setgroups, 0, 0);
    T(setresgid, 1, 2, 3); T(getresgid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(getgid, 0); T(getegid, 0); T(setfsgid, -1); T(setfsgid, 9); T(setfsgid, -1);
    T(setregid, -1, 3); T(getresgid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(setregid, 7, -1); T(getresgid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(setresgid, 0, 0, 0);
    /* seteuid, and back. */
    T(setresuid, -1, 1000, -1); T(getuid, 0); T(geteuid, 0); T(setfsuid, -1);
    T(getresuid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(setgid, 5); T(setgroups, 0, 0); T(setresuid, -1, 1001, -1); T(setuid, 1001);
    HIDE(STAT_FILE); SYS(mkdir, "mine", 0755);
    T(open, "/nothing-may-be-made-here", O_RDWR | O_CREAT, 0600);
    T(chown, "file", 1, 1); T(chmod, "file", 0600);
    SYS(setresuid, -1, 0, -1);
    T(chown, "file", 12, 13);
    SYS(stat, "file", out.bytes);
    int owner = out.ints[7], group = out.ints[8];
    fill();
    V(owner); V(group);
    T(chmod, "file", 0600);
    T(setresuid, -1, 1000, -1);
    T(open, "file", O_RDONLY); T(access, "file", 4); T(faccessat2, AT_FDCWD, "file", 4, 0x200);
    T(setresuid, -1, 0, -1);
    T(chown, "file", 0, 0);
    T(setfsuid, 1000); T(open, "file", O_RDONLY); T(setfsuid, 0);
    T(setreuid, 1000, 0); T(getresuid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(setreuid, 0, 1000); T(getresuid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(setresuid, -1, -1, 0); T(setresuid, 0, 0, 0);
    T(setuid, 1000); T(getresuid, ids, ids + 1, ids + 2); V(ids[0]); V(ids[1]); V(ids[2]);
    T(setuid, 0); T(setresuid, -1, 0, -1); T(setgid, 5); T(setgroups, 0, 0);
}

static void limits(void) {
    struct { word soft, hard; } l = { 0, 0 };
    for (int which = 0; which < 16; which++) { about = "limit "; T(getrlimit, which, &l); T(prlimit64, 0, which, 0, &l); }
    about = "";
    T(getrlimit, 16, &l); T(getrlimit, -1, &l);
    T(prlimit64, 0, 16, 0, 0); T(prlimit64, 0x7fffffff, 7, 0, 0); T(prlimit64, -1, 7, 0, 0);
    T(prlimit64, 0, 7, 0, 0);
    EACH_BAD(p, T(getrlimit, 7, p); T(setrlimit, 7, p));
    EACH_BAD_BUT_NULL(p, T(prlimit64, 0, 7, p, 0); T(prlimit64, 0, 7, 0, p));
    T(getrlimit, 7, &l); V(l.soft);
    word hard = l.hard;
    l.soft = 60; T(setrlimit, 7, &l); T(getrlimit, 7, &l); V(l.soft); V(l.hard == hard);
    l.soft = 61, l.hard = 60; T(setrlimit, 7, &l); T(prlimit64, 0, 7, &l, 0);
    T(setrlimit, 99, &l);
    T(dup2, FD(RD), 60); T(dup2, FD(RD), 59); T(fcntl, FD(RD), F_DUPFD, 59);
    l.soft = 70, l.hard = hard; T(setrlimit, 7, &l);
    l.soft = l.hard = 0; T(setrlimit, 4, &l); T(getrlimit, 4, out.bytes);
}

static void machine(void) {
    HIDE(UTSNAME); T(uname, out.bytes);
    HIDE(SYSINFO); T(sysinfo, out.bytes);
    HIDE(RUSAGE); T(getrusage, 0, out.bytes);
    HIDE(RUSAGE); T(getrusage, -1, out.bytes);
    HIDE(RUSAGE); T(getrusage, 1, out.bytes);
    T(getrusage, 2, out.bytes); T(getrusage, -3, out.bytes);
    EACH_BAD(p, T(uname, p); T(sysinfo, p); T(getrusage, 0, p));
    HIDE(WORD); T(getcpu, out.ints, out.ints + 1, 0);
    T(getcpu, 0, 0, 0);
    EACH_BAD_BUT_NULL(p, T(getcpu, p, 0, 0); T(getcpu, 0, p, 0));
    word set[128] = { 0 };
    OK(sched_getaffinity, 0, sizeof set, set);
    V(SYS(sched_setaffinity, 0, sizeof set, set));
    OK(sched_getaffinity, 0, sizeof set, set);
    V(SYS(sched_setaffinity, 0, sizeof set, set));
    T(sched_getaffinity, 0, 0, set); T(sched_getaffinity, 0, 1021, set); T(sched_getaffinity, 0x7fffffff, 1024, set);
    T(sched_getaffinity, -1, 1024, set);
    T(sched_setaffinity, 0x7fffffff, 1024, set);
    EACH_BAD(p, T(sched_getaffinity, 0, 1024, p); T(sched_setaffinity, 0, 1024, p));
    T(sched_yield, 0);
    T(sched_getscheduler, 0x7fffffff); T(sched_getscheduler, -1);
    for (int policy = -1; policy < 9; policy++)
        if (policy != 4 && policy != 7) { T(sched_get_priority_min, policy); T(sched_get_priority_max, policy); }
    T(sched_getparam, 0x7fffffff, out.bytes); T(sched_getparam, -1, out.bytes); T(sched_getparam, 0, 0);
    EACH_BAD_BUT_NULL(p, T(sched_getparam, 0, p));
    T(getpriority, 3, 0); T(getpriority, -1, 0); T(getpriority, 0, 0x7fffffff);
    T(setpriority, 3, 0, 0); T(setpriority, 0, 0x7fffffff, 0);
    T(setpriority, 0, 0, 19); T(getpriority, 0, 0); T(setpriority, 0, 0, 100); T(getpriority, 0, 0);
    T(ioprio_get, 9, 0); T(ioprio_get, 1, 0x7fffffff);
    T(ioprio_set, 9, 0, 0); T(ioprio_set, 1, 0x7fffffff, 0); T(ioprio_set, 1, 0, 7 << 13);
    T(ioprio_set, 1, 0, 2 << 13 | 5); T(ioprio_get, 1, 0);
    HIDE(RANDOM); T(getrandom, out.bytes, 16, 0);
    T(getrandom, out.bytes, 0, 0);
    HIDE(RANDOM); T(getrandom, out.bytes, 16, 1);
    T(getrandom, out.bytes, 16, 8); T(getrandom, out.bytes, 16, 6); T(getrandom, out.bytes, 16, -1);
    EACH_BAD(p, T(getrandom, p, 16, 0));
    T(membarrier, -1, 0, 0); T(membarrier, 1 << 30, 0, 0); T(membarrier, 0, 1 << 30, 0);
}

static void controls(void) {
    word fs = 0;
    T(arch_prctl, 0x1003, &fs); T(arch_prctl, 0x1002, out.bytes); T(arch_prctl, 0x1003, &fs); V(fs == (word)out.bytes);
    T(arch_prctl, 0x1002, 0); T(arch_prctl, 0x1002, -1); T(arch_prctl, 0x1002, 1ul << 63); T(arch_prctl, 0x1001, -1);
    T(arch_prctl, 0x1001, 8); T(arch_prctl, 0x1004, &fs); V(fs); T(arch_prctl, 0x1001, 0);
    T(arch_prctl, 0, &fs); T(arch_prctl, -1, &fs);
    EACH_BAD(p, T(arch_prctl, 0x1003, p); T(arch_prctl, 0x1004, p));
    SYS(arch_prctl, 0x1002, 0);
    T(prctl, 15, "renamed-very-long-name"); T(prctl, 16, out.bytes);
    T(prctl, 15, "a"); T(prctl, 16, out.bytes);
    EACH_BAD(p, T(prctl, 15, p); T(prctl, 16, p));
    T(prctl, 1, 9); T(prctl, 2, out.bytes); T(prctl, 1, 65); T(prctl, 1, 0); T(prctl, 2, out.bytes); T(prctl, 2, 8);
    T(prctl, 4, 0); T(prctl, 3); T(prctl, 4, 1); T(prctl, 3); T(prctl, 4, 7); T(prctl, 4, -1);
    T(prctl, 29, 5000); T(prctl, 29, 0);
    T(prctl, 39); T(prctl, 38, 0); T(prctl, 38, 2); T(prctl, 39, 1); T(prctl, 38, 1, 0, 0, 0); T(prctl, 39);
    T(prctl, -1); T(prctl, 0x70000000);
    T(personality, 0xffffffff); T(personality, 0);
    char head[24];
    T(set_robust_list, head, 24); T(set_robust_list, head, 23); T(set_robust_list, 0, -1);
}

static void others(void) {
    int status, ends[2];
    T(wait4, -1, &status, 0, 0); T(wait4, -1, &status, 1, 0); T(wait4, 5, 0, 0, 0); T(wait4, -1, 0, 1 << 30 | 0x10, 0);
    T(wait4, 0x80000000, 0, 0, 0);
    T(waitid, 0, 0, out.bytes, 4, 0); T(waitid, 0, 0, 0, 0, 0); T(waitid, 9, 0, 0, 4, 0); T(waitid, 1, 0, 0, 4, 0);
    T(waitid, 0, 0, 0, 0x10000, 0); T(waitid, 1, 0x7fffffff, 0, 4, 0);
    /* Flags that exclude each other, so that nothing is started. */
    T(clone, 0x10000, 0, 0, 0, 0); T(clone, 0x800 | 0x10000, 0, 0, 0, 0);
    /* A filter of system calls may answer that clone3 does not exist. */
    long none = SYS(clone3, 0, 0), small = SYS(clone3, out.bytes, 8), low = SYS(clone3, 4096, 64);
    V(none == -22 || none == -38); V(small == -22 || small == -38); V(low == -14 || low == -38);
    
    T(socket, 999, 1, 0); T(socket, -1, 1, 0); T(socket, 1, 99, 0); T(socket, 1, 1 | 1 << 30, 0); T(socketpair, 999, 1, 0, ends);
    EACH_FD(fd, if (fd != FD(PATH)) {
        T(connect, fd, 0, 0); T(accept, fd, 0, 0); T(sendto, fd, "", 0, 0, 0, 0); T(recvfrom, fd, out.bytes, 0, 0, 0, 0);
        T(shutdown, fd, 0); T(bind, fd, out.bytes, 16); T(listen, fd, 0); T(getsockname, fd, out.bytes, &status);
        T(getpeername, fd, out.bytes, &status); T(setsockopt, fd, 1, 2, &status, 4); T(getsockopt, fd, 1, 3, &status, &status); });
    status = 0;
    static struct { void *name; long size; void *v; long n; void *c; long k; int flags; } message;
    EACH_FD(fd, if (fd != FD(PATH)) { T(sendmsg, fd, &message, 0); T(recvmsg, fd, &message, 0); });
}

static void executing(void) {
    char *args[] = { "x", 0 };
    EACH_WRONG(p, T(execve, p, args, 0));
    T(execve, "file", args, 0); T(execve, "dir", args, 0); T(execve, "/dev/null", args, 0); T(execve, "link", args, 0);
    SYS(chmod, "file", 0755);
    T(execve, "file", args, 0);
    SYS(close, make("script", "#!missing-interpreter\n"));
    SYS(chmod, "script", 0755);
    T(execve, "script", args, 0);
    EACH_BAD_BUT_NULL(p, T(execve, "script", p, 0); T(execve, "script", args, p));
    char *bad_args[] = { (char *)4096, 0 };
    T(execve, "script", bad_args, 0);
}

static void cases(void) {
    numbers();
    users();
    limits();
    machine();
    controls();
    others();
    executing();
    privileged(arguments > 1);
    flush();
    SYS(exit, 3);
}
