/* Calls about other threads and processes: their priorities, scheduling, limits, groups and parents. */
#include "cases.h"
#include "thread.h"

enum { NONE_SUCH = 0x7fffffff };

static long own;
/* A child that waits until it is killed. */
static long waiting(void) {
    flush();
    long child = SYS(fork, 0);
    if (child == 0) for (;;) SYS(pause, 0);
    return child;
}
static void end(long child) {
    int status = 0;
    SYS(kill, child, 9);
    SYS(wait4, child, &status, 0, 0);
    V(status);
}


/* A thread that gets another nice value and ends the process. */
static long ending_thread(void) {
    long number;
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall; test %%rax, %%rax; jnz 1f; mov $141, %%eax; xor %%edi, %%edi; xor %%esi, %%esi;"
                     "mov $9, %%edx; syscall; mov $231, %%eax; xor %%edi, %%edi; syscall; 1:"
                     : "=a"(number) : "a"(56), "D"(0x50f00), "S"(stack + IDLE_THREAD), "d"(0), "r"(r10)
                     : "rcx", "r11", "memory");
    return number;
}

/* The value behind a name in a text of /proc. */
static char text[8192];
static const char *read_text(const char *path) {
    memset(text, 0, sizeof text);
    long fd = SYS(open, path, O_RDONLY), size = 0, more;
    while ((more = SYS(read, fd, text + size, sizeof text - 1 - size)) > 0) size += more;
    SYS(close, fd);
    return text;
}
static long value_of(const char *path, const char *name) {
    read_text(path);
    for (const char *at = text; *at; at++)
        if ((at == text || at[-1] == '\n') && same(at, name, length(name))) {
            long value = 0;
            at += length(name);
            while (*at == '\t' || *at == ' ') at++;
            while (*at >= '0' && *at <= '9') value = 10 * value + *at++ - '0';
            return value;
        }
    return -1;
}
/* The number of a field of /proc/PID/stat, as proc(5) counts. */
static long field_of(const char *path, int field) {
    read_text(path);
    const char *at = text + length(text);
    while (at > text && *at != ')') at--;
    for (int i = 2; i < field && *at; at++) i += *at == ' ';
    int minus = *at == '-';
    long value = 0;
    for (at += minus; *at >= '0' && *at <= '9'; at++) value = 10 * value + *at - '0';
    return minus ? -value : value;
}
static char path[64];
static const char *of(const char *before, long number, const char *after) {
    char *at = path, digits[20], *first = digits + 20;
    while (*before) *at++ = *before++;
    do *--first = '0' + number % 10; while (number /= 10);
    while (first < digits + 20) *at++ = *first++;
    while ((*at++ = *after++)) {}
    return path;
}

static void parents(void) {
    long parent = SYS(getppid, 0);
    V(value_of("/proc/self/status", "PPid:") == parent);
    V(field_of("/proc/self/stat", 4) == parent);
    V(value_of("/proc/self/status", "Tgid:") == own);
    /* Whoever it is; 0, outside of a container, is its own group. */
    long asked = SYS(kill, parent, 0);
    V(asked == 0 || asked == -1);
    asked = SYS(kill, 1, 0);
    V(asked == 0 || asked == -1);
    V(SYS(wait4, 1, 0, 1, 0)); V(SYS(waitid, 1, 1, 0, 5, 0));
    V(SYS(getpgid, 1) >= 0); V(SYS(getsid, 1) >= 0);
    V(SYS(sched_getscheduler, 1) >= 0); V(SYS(getpriority, 0, 1) > 0);
    /* /proc may hide the processes of others. */
    long seen = SYS(access, "/proc/1/stat", 4);
    V(seen == 0 || seen == -2); V(field_of("/proc/1/stat", 4)); V(value_of("/proc/1/status", "PPid:") <= 0);
    V(SYS(setpgid, 1, 0)); V(SYS(kill, 1, 65)); V(SYS(tgkill, 1, own, 0));
    /* Whose parent ends gets another one, of whom all say the same. */
    int ends[2], status;
    long told[5];
    SYS(pipe, ends);
    flush();
    long child = SYS(fork, 0);
    if (child == 0) {
        long parent = SYS(getpid, 0);
        if (SYS(fork, 0) == 0) {
            while (SYS(getppid, 0) == parent) SYS(sched_yield, 0);
            long new = SYS(getppid, 0), asked = SYS(kill, new, 0);
            told[0] = new > 0;
            told[1] = value_of("/proc/self/status", "PPid:") == new;
            told[2] = asked == 0 || asked == -1;
            asked = SYS(access, of("/proc/", new, "/stat"), 4);
            told[3] = asked == 0 || asked == -2;
            told[4] = SYS(getpriority, 0, new) > 0;
            SYS(write, ends[1], told, sizeof told);
            SYS(exit_group, 0);
        }
        SYS(exit_group, 0);
    }
    SYS(wait4, child, &status, 0, 0);
    SYS(read, ends[0], told, sizeof told);
    for (int i = 0; i < 5; i++) V(told[i]);
    SYS(close, ends[0]); SYS(close, ends[1]);
}

static void priorities(void) {
    long child = waiting(), idle = thread();
    V(SYS(getpriority, 0, child)); V(SYS(setpriority, 0, child, 5)); V(SYS(getpriority, 0, child)); V(SYS(getpriority, 0, 0)); V(SYS(getpriority, 0, idle));
    V(field_of(of("/proc/", child, "/stat"), 18)); V(field_of(of("/proc/", child, "/stat"), 19));
    V(SYS(setpriority, 0, child, 100)); V(SYS(getpriority, 0, child));
    /* One thread of a process, and the group of all. */
    V(SYS(setpriority, 0, idle, 7)); V(SYS(getpriority, 0, idle)); V(SYS(getpriority, 0, own)); V(SYS(getpriority, 0, 0));
    V(field_of(of("/proc/self/task/", idle, "/stat"), 19)); V(field_of("/proc/self/stat", 19));
    V(SYS(setpgid, child, child)); V(SYS(getpriority, 1, child)); V(SYS(getpriority, 1, NONE_SUCH));
    V(SYS(setpriority, 1, NONE_SUCH, 1)); V(SYS(setpriority, 1, 0, 8)); V(SYS(getpriority, 0, idle)); V(SYS(getpriority, 0, 0)); V(SYS(getpriority, 1, 0));
    V(SYS(getpriority, 0, child)); V(SYS(getpriority, 2, 0x7ffffff0)); V(SYS(setpriority, 2, 0x7ffffff0, 1));
    V(SYS(getpriority, 2, 0) > 0); V(SYS(getpriority, 3, child)); V(SYS(setpriority, 3, child, 1));
    /* A child inherits it of the thread that made it. */
    long second = waiting();
    V(SYS(getpriority, 0, second)); V(field_of(of("/proc/", second, "/stat"), 19));
    end(second);
    V(SYS(ioprio_set, 1, child, 2 << 13 | 3)); V(SYS(ioprio_get, 1, child)); V(SYS(ioprio_set, 1, 0, 2 << 13 | 6)); V(SYS(ioprio_get, 1, 0)); V(SYS(ioprio_get, 1, child));
    V(SYS(ioprio_set, 1, idle, 2 << 13 | 1)); V(SYS(ioprio_get, 1, idle)); V(SYS(ioprio_get, 1, own)); V(SYS(ioprio_set, 2, child, 3 << 13)); V(SYS(ioprio_get, 1, child)); V(SYS(ioprio_get, 2, child));
    V(SYS(ioprio_get, 1, NONE_SUCH)); V(SYS(ioprio_set, 1, NONE_SUCH, 0)); V(SYS(ioprio_get, 2, NONE_SUCH)); V(SYS(ioprio_set, 2, NONE_SUCH, 0)); V(SYS(ioprio_get, 3, 0x7ffffff0)); V(SYS(ioprio_set, 3, 0x7ffffff0, 0));
    V(SYS(ioprio_get, 0, child)); V(SYS(ioprio_get, 4, child)); V(SYS(ioprio_set, 0, child, 0)); V(SYS(ioprio_set, 1, child, -1)); V(SYS(ioprio_set, 1, child, 5)); V(SYS(ioprio_set, 1, child, 4 << 13));
    second = waiting();
    V(SYS(ioprio_get, 1, second));
    end(second);
    end(child);
    V(SYS(getpriority, 0, child)); V(SYS(setpriority, 0, child, 19));
}

struct attr { unsigned size, policy; word flags; int nice; unsigned priority; word rest[4]; };
static struct attr attr_of(long pid) {
    struct attr attr = { 0 };
    V(SYS(sched_getattr, pid, &attr, 48, 0));
    return attr;
}

static void scheduling(void) {
    long child = waiting(), idle = thread();
    int zero = 0, ten = 10, left;
    V(SYS(sched_getscheduler, child)); V(SYS(sched_setscheduler, child, 3, &zero)); V(SYS(sched_getscheduler, child)); V(SYS(sched_getscheduler, 0)); V(SYS(sched_getscheduler, idle));
    V(field_of(of("/proc/", child, "/stat"), 41));
    V(SYS(sched_setscheduler, idle, 3, &zero)); V(SYS(sched_getscheduler, idle)); V(SYS(sched_getscheduler, own)); V(field_of(of("/proc/self/task/", idle, "/stat"), 41)); V(field_of("/proc/self/stat", 41));
    left = 7; V(SYS(sched_getparam, child, &left)); V(left); V(SYS(sched_setparam, child, &zero)); V(SYS(sched_setparam, child, &ten)); V(SYS(sched_getparam, NONE_SUCH, &left)); V(SYS(sched_setparam, NONE_SUCH, &zero));
    EACH_BAD_BUT_NULL(p, T(sched_getparam, 0, p)); V(SYS(sched_getparam, child, 0)); V(SYS(sched_setparam, child, 0));
    word set[128] = { 0 };
    V(SYS(sched_getaffinity, child, sizeof set, set) > 0); V(SYS(sched_setaffinity, child, sizeof set, set)); V(SYS(sched_getaffinity, idle, sizeof set, set) > 0); V(SYS(sched_setaffinity, idle, sizeof set, set));
    word empty[128] = { 0 };
    V(SYS(sched_setaffinity, child, sizeof empty, empty)); V(SYS(sched_setaffinity, idle, sizeof empty, empty)); V(SYS(sched_setaffinity, NONE_SUCH, sizeof set, set)); V(SYS(sched_getaffinity, NONE_SUCH, sizeof set, set));
    struct attr attr = attr_of(child); V(attr.size); V(attr.policy); V(attr.flags); V(attr.nice); V(attr.priority);
    attr = (struct attr){ 48, 3, 0, 4, 0 }; V(SYS(sched_setattr, child, &attr, 0)); attr = attr_of(child); V(attr.policy); V(attr.nice); V(SYS(getpriority, 0, child));
    attr = (struct attr){ 48, 3, 0, 5, 0 }; V(SYS(sched_setattr, idle, &attr, 0)); V(SYS(getpriority, 0, idle)); V(SYS(getpriority, 0, 0));
    V(SYS(sched_setattr, NONE_SUCH, &attr, 0)); V(SYS(sched_getattr, NONE_SUCH, &attr, 48, 0));
    /* Policy or parameters stay; what no Linux knows. */
    attr = (struct attr){ 48, 0, 8, 6, 0 }; V(SYS(sched_setattr, child, &attr, 0)); attr = attr_of(child); V(attr.policy); V(attr.nice);
    attr = (struct attr){ 48, 3, 1ul << 40, 6, 0 }; V(SYS(sched_setattr, child, &attr, 0));
    struct { long seconds, rest; } share = { 7, 7 };
    V(SYS(sched_rr_get_interval, child, &share)); V(share.seconds); V(SYS(sched_rr_get_interval, NONE_SUCH, &share));
    /* A policy that ends at fork. */
    long second = waiting();
    V(SYS(sched_setscheduler, 0, 3 | 0x40000000, &zero)); V(SYS(sched_getscheduler, 0)); V(SYS(sched_getscheduler, idle)); attr = attr_of(0); V(attr.flags); V(attr.policy);
    V(SYS(sched_setparam, 0, &zero)); V(SYS(sched_getscheduler, 0));
    long third = waiting();
    V(SYS(sched_getscheduler, third)); V(SYS(sched_getscheduler, second));
    end(second); end(third);
    /* SCHED_IDLE keeps its nice value, and is a thread's alone. */
    V(SYS(sched_setscheduler, child, 5, &zero)); V(SYS(sched_getscheduler, child)); attr = attr_of(child); V(attr.nice); V(SYS(sched_setscheduler, child, 9, &zero)); V(SYS(sched_setscheduler, child, 0x40000009, &zero));
    end(child);
    V(SYS(sched_getscheduler, child)); V(SYS(sched_getattr, child, &attr, 48, 0));
}

static void limits(void) {
    long child = waiting();
    word two[2], old[2];
    V(SYS(prlimit64, child, 7, 0, two)); V(two[0]);
    two[0] = 50; V(SYS(prlimit64, child, 7, two, old)); V(old[0]); V(SYS(prlimit64, child, 7, 0, old)); V(old[0]); V(SYS(prlimit64, 0, 7, 0, old)); V(old[0]);
    V(SYS(prlimit64, own, 7, 0, old)); V(old[0]);
    two[0] = two[1] + 1; if (two[1] != -1ul) V(SYS(prlimit64, child, 7, two, 0));
    two[0] = 5, two[1] = 4; V(SYS(prlimit64, child, 7, two, 0)); V(SYS(prlimit64, 0, 7, two, 0));
    two[0] = 5, two[1] = -1; V(SYS(prlimit64, child, 7, two, 0)); V(SYS(prlimit64, 0, 7, two, 0));
    V(SYS(prlimit64, child, 16, 0, 0)); V(SYS(prlimit64, child, -1, 0, 0)); V(SYS(prlimit64, NONE_SUCH, 7, 0, two)); V(SYS(prlimit64, -1, 7, 0, two));
    EACH_BAD_BUT_NULL(p, T(prlimit64, 0, 7, p, 0)); V(SYS(prlimit64, child, 7, edge + 8, 0)); V(SYS(prlimit64, child, 7, 0, edge + 8)); V(SYS(prlimit64, NONE_SUCH, 7, edge + 8, 0));
    two[0] = two[1] = 0; V(SYS(prlimit64, child, 4, two, 0)); V(SYS(prlimit64, child, 4, 0, old)); V(old[0]); V(old[1]);
    end(child);
    V(SYS(prlimit64, child, 7, 0, two));
    /* What a limit does in the other process: no descriptors, no larger stack, no time. */
    int in[2], back[2]; char byte;
    SYS(pipe, in); SYS(pipe, back);
    flush();
    child = SYS(fork, 0);
    if (child == 0) {
        SYS(read, in[0], &byte, 1);
        long one = SYS(dup, 0), fresh[2] = { 0, 0 };
        SYS(prlimit64, 0, 3, 0, fresh);
        byte = one == -24 && fresh[0] == 1 << 20 ? 'y' : 'n';
        SYS(write, back[1], &byte, 1);
        for (;;) SYS(pause, 0);
    }
    two[0] = 3, two[1] = 90; V(SYS(prlimit64, child, 7, two, 0));
    SYS(prlimit64, child, 3, 0, two); two[0] = 1 << 20; V(SYS(prlimit64, child, 3, two, 0));
    SYS(write, in[1], "x", 1);
    SYS(read, back[0], &byte, 1); V(byte);
    two[0] = two[1] = 100; V(SYS(prlimit64, child, 0, two, 0)); V(SYS(prlimit64, child, 0, 0, old)); V(old[0]); V(old[1]);
    end(child);
    for (int i = 0; i < 2; i++) { SYS(close, in[i]); SYS(close, back[i]); }
}

/* A child that has ended is there until somebody waits for it. */
static void zombies(void) {
    int status, zero = 0;
    word two[2] = { 0, 0 }, sets[3];
    flush();
    long child = SYS(fork, 0);
    if (child == 0) { SYS(setpriority, 0, 0, 19); SYS(exit_group, 0); }
    int info[32];
    V(SYS(waitid, 1, child, info, 0x01000004, 0));
    V(SYS(getpriority, 0, child)); V(SYS(sched_getscheduler, child)); V(SYS(getpgid, child) == SYS(getpgrp, 0)); V(SYS(getsid, child) == SYS(getsid, 0));
    V(SYS(prlimit64, child, 7, 0, two)); V(two[0]); V(SYS(kill, child, 0)); V(SYS(sched_getparam, child, &zero)); V(zero);
    SYS(wait4, child, &status, 0, 0);
    V(SYS(getpriority, 0, child)); V(SYS(getpgid, child)); V(SYS(getsid, child));
    /* Its nice value is that of its first thread, whichever ended it. */
    child = SYS(fork, 0);
    if (child == 0) { ending_thread(); for (;;) SYS(pause, 0); }
    V(SYS(waitid, 1, child, info, 0x01000004, 0)); V(SYS(getpriority, 0, child));
    /* Its capabilities are there, its memory is not; its name stays. */
    struct { unsigned version; int pid; } header = { 0x20080522, child };
    struct { void *at; word size; } vector = { two, 8 };
    void *head; word size;
    HIDE(WORD); T(capget, &header, out.bytes); V(SYS(capget, &header, 0));
    V(SYS(process_vm_readv, child, &vector, 1, &vector, 1, 0)); V(SYS(get_robust_list, child, &head, &size)); V((long)head); V(size);
    long comm = SYS(open, of("/proc/", child, "/comm"), O_RDWR);
    V(comm > 0); V(SYS(write, comm, "name", 4)); SYS(close, comm);
    SYS(wait4, child, &status, 0, 0);
    /* The first process is there; its memory and its threads are its own. */
    header.pid = 1; V(SYS(capget, &header, 0)); V(SYS(capget, &header, sets) == 0);
    struct { word at, size; } theirs = { 0, 8 };
    V(SYS(process_vm_readv, 0, &vector, 1, &vector, 1, 0)); V(SYS(process_vm_readv, own, &vector, 1, &vector, 1, 0));
    V(SYS(process_vm_readv, 1, &vector, 1, &theirs, 1, 0) == -3); V(SYS(get_robust_list, 1, &head, &size) == -3);
    long idle = thread();
    V(SYS(getpgid, idle) == SYS(getpgrp, 0)); V(SYS(getsid, idle) == SYS(getsid, 0)); V(SYS(prlimit64, idle, 7, 0, two)); V(two[0]);
}

/* What another user's process lets one do. */
static void users(int may) {
    if (!may) return;
    long child = waiting();
    int zero = 0;
    word two[2] = { 0, 0 };
    int status = 0;
    flush();
    long user = SYS(fork, 0);
    if (user != 0) {
        SYS(wait4, user, &status, 0, 0); V(status);
        end(child);
        return;
    }
    V(SYS(setresuid, 1000, 1000, 1000));
    V(SYS(kill, child, 0)); V(SYS(tgkill, child, child, 0)); V(SYS(getpriority, 0, child)); V(SYS(setpriority, 0, child, 19)); V(SYS(sched_getscheduler, child)); V(SYS(sched_setscheduler, child, 0, &zero));
    V(SYS(prlimit64, child, 7, 0, two)); V(SYS(ioprio_set, 1, child, 2 << 13)); V(SYS(ioprio_get, 1, child) >= 0); V(SYS(sched_setaffinity, child, 8, (word[]){ 1 })); V(SYS(kill, 1, 0)); V(SYS(kill, 1, 9));
    void *head; word size;
    struct { void *at; word size; } vector = { two, 8 };
    V(SYS(get_robust_list, child, &head, &size)); V(SYS(get_robust_list, 1, &head, &size)); V(SYS(process_vm_readv, child, &vector, 1, &vector, 1, 0)); V(SYS(process_vm_readv, 1, &vector, 1, &vector, 1, 0));
    V(SYS(prlimit64, 1, 7, 0, two)); V(SYS(setpriority, 0, 1, 19)); V(SYS(getpriority, 0, 1) > 0);
    V(SYS(setpriority, 0, 0, 3)); V(SYS(setpriority, 0, 0, 19)); V(SYS(getpriority, 0, 0));
    flush();
    SYS(exit_group, 0);
}

static void cases(void) {
    own = SYS(getpid, 0);
    SYS(setpgid, 0, 0);
    parents();
    flush();
    int status = 0;
    void (*const parts[])(void) = { priorities, scheduling, limits, zombies };
    for (int i = 0; i < COUNT(parts); i++) {
        long child = SYS(fork, 0);
        if (child == 0) {
            own = SYS(getpid, 0);
            SYS(setpgid, 0, 0);
            parts[i]();
            flush();
            SYS(exit_group, 0);
        }
        SYS(wait4, child, &status, 0, 0); V(status); flush();
    }
    users(arguments > 1);
}
