/* System V IPC: shared memory, semaphores, message queues; within and between processes. */
#include "cases.h"

#define P 4096
static const struct field SHMID[] = {
    { 0, 8, "key, uid" }, { 8, 8, "gid, cuid" }, { 16, 4, "cgid" }, { 24, 8, "seq" }, { 56, 8, "atime" }, { 64, 8, "dtime" },
    { 72, 8, "ctime" }, { 80, 8, "cpid, lpid" }, NONE };
static const struct field SEMID[] = {
    { 0, 8, "key, uid" }, { 8, 8, "gid, cuid" }, { 16, 4, "cgid" }, { 24, 8, "seq" }, { 48, 8, "otime" }, { 64, 8, "ctime" }, NONE };
static const struct field MSGID[] = {
    { 0, 8, "key, uid" }, { 8, 8, "gid, cuid" }, { 16, 4, "cgid" }, { 24, 8, "seq" }, { 48, 8, "stime" }, { 56, 8, "rtime" },
    { 64, 8, "ctime" }, { 96, 8, "lspid, lrpid" }, NONE };
static const struct field INFO[] = { { 0, 128, "limits and counts of the system" }, NONE };
enum { CREAT = 01000, EXCL = 02000, NOWAIT = 04000, RMID = 0, SET = 1, STAT_ = 2, IPC_INFO_ = 3 };
/* A key of this run only: tests may run side by side. */
static int key;

#define CHILD(...) do { flush(); long pid_ = SYS(fork, 0); \
    if (pid_ == 0) { __VA_ARGS__; flush(); SYS(exit_group, 0); } \
    int status_ = 0; SYS(wait4, pid_, &status_, 0, 0); V(status_); } while (0)
static void wait_a_little(void) { word time[2] = { 0, 20000000 }; SYS(nanosleep, time, 0); }

static void shared_memory(void) {
    T(shmget, 0, 0, 0600); T(shmget, 0, -1, 0600);
    T(shmget, key, 100, 0600);
    long id = SYS(shmget, key, 100, CREAT | 0640), other = SYS(shmget, 0, 3 * P, 0600);
    V(id >= 0); V(other >= 0); V(id == other);
    V(SYS(shmget, key, 100, 0) == id); V(SYS(shmget, key, 50, CREAT) == id); V(SYS(shmget, key, 0, 0) == id);
    V(SYS(shmget, key, 101, 0)); V(SYS(shmget, key, 100, CREAT | EXCL | 0600));
    HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes));
    HIDE(SHMID); V(SYS(shmctl, -1, STAT_, out.bytes));
    V(SYS(shmctl, other + 12345, STAT_, out.bytes)); V(SYS(shmctl, other, 99, out.bytes)); V(SYS(shmctl, other, -1, 0));
    EACH_BAD(p, V(SYS(shmctl, other, STAT_, p)); V(SYS(shmctl, other, SET, p)); V(SYS(shmctl, 0, IPC_INFO_, p)));
    HIDE(INFO); V(SYS(shmctl, 0, IPC_INFO_, out.bytes) >= 0);
    HIDE(INFO); V(SYS(shmctl, 0, 14, out.bytes) >= 0);
    V(SYS(shmat, -1, 0, 0)); V(SYS(shmat, other + 12345, 0, 0)); V(SYS(shmat, other, 1, 0)); V(SYS(shmat, other, 0, 040000));
    char *a = (char *)SYS(shmat, id, 0, 0), *b = (char *)SYS(shmat, id, 0, 010000);
    V(a[0]); a[0] = 7; a[99] = 8; V(b[0]); V(b[99]); V(a == b);
    V(SYS(mprotect, b, P, 3)); V(SYS(mprotect, a, P, 1)); V(SYS(mprotect, a, P, 3));
    /* At an address of one's own. */
    char *free = (char *)SYS(mmap, 0, 8 * P, 0, 0x22, -1, 0);
    V(SYS(shmat, other, free, 0)); V(SYS(shmat, other, free + 1, 040000));
    V(SYS(shmat, other, free, 040000) - (long)free);
    free[2 * P] = 1;
    SYS(munmap, free + 4 * P, 4 * P);
    V(SYS(shmat, other, free + 4 * P + 5, 020000) - (long)free);
    V(free[6 * P]);
    HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes));
    CHILD(HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes)); V(free[2 * P]); free[2 * P] = 2; a[1] = 9;
          V(SYS(shmdt, free)); HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes)));
    V(free[6 * P]); V(b[1]);
    HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes));
    V(SYS(shmdt, free + P)); V(SYS(shmdt, free + 1)); V(SYS(shmdt, 0)); V(SYS(shmdt, free)); V(SYS(shmdt, free));
    V(SYS(mprotect, free, P, 1)); V(SYS(shmdt, ro));
    HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes));
    V(SYS(munmap, free + 5 * P, P));
    HIDE(SHMID); V(SYS(shmctl, other, STAT_, out.bytes));
    V(SYS(shmdt, free + 4 * P)); V(SYS(mprotect, free + 6 * P, P, 1));
    /* It goes when nobody has it any longer. */
    V(SYS(shmctl, id, 11, 0)); HIDE(SHMID); V(SYS(shmctl, id, STAT_, out.bytes)); V(SYS(shmctl, id, 12, 0));
    fill();
    SYS(shmctl, id, STAT_, out.bytes);
    out.ints[5] = 0604;
    { long r = SYS(shmctl, id, SET, out.bytes); fill(); V(r); }
    HIDE(SHMID); V(SYS(shmctl, id, STAT_, out.bytes));
    V(SYS(shmctl, id, RMID, 0));
    HIDE(SHMID); V(SYS(shmctl, id, STAT_, out.bytes));
    V(SYS(shmget, key, 0, 0));
    V(b[0]);
    CHILD(V((char *)SYS(shmat, id, 0, 0) > b); V(b[0]); V(SYS(shmdt, a)));
    V(SYS(shmdt, a)); V(SYS(shmdt, b));
    V(SYS(shmctl, id, STAT_, out.bytes)); V(SYS(shmctl, other, RMID, 0)); V(SYS(shmctl, other, RMID, 0));
}

struct op { unsigned short number; short add, flags; };
static long ops(long id, int n, int add, int flags) {
    struct op op = { n, add, flags };
    return SYS(semop, id, &op, 1);
}
static void values(long id) {
    fill();
    for (int i = 0; i < 4; i++) V(SYS(semctl, id, i, 12));
}
static void say_pid(long id, int n) { V(SYS(semctl, id, n, 11) == SYS(getpid, 0)); }

static void semaphores(void) {
    T(semget, 0, 0, 0600); T(semget, 0, -1, 0600); T(semget, 0, 40000, 0600); T(semget, key, 1, 0600);
    long id = SYS(semget, key, 4, CREAT | 0600);
    V(id >= 0); V(SYS(semget, key, 4, 0) == id); V(SYS(semget, key, 0, 0) == id); V(SYS(semget, key, 5, 0));
    V(SYS(semget, key, 4, CREAT | EXCL));
    values(id);
    V(SYS(semctl, id, 0, 11));
    V(SYS(semctl, id, 1, 16, 3)); V(SYS(semctl, id, 1, 16, -1)); V(SYS(semctl, id, 1, 16, 32768)); V(SYS(semctl, id, 1, 16, 32767));
    V(SYS(semctl, id, 4, 16, 1)); V(SYS(semctl, id, -1, 12)); V(SYS(semctl, id, 4, 12)); V(SYS(semctl, -1, 0, 12));
    V(SYS(semctl, id, 0, 99)); V(SYS(semctl, id + 5, 0, 12));
    say_pid(id, 1); say_pid(id, 0);
    V(SYS(semctl, id, 0, 13, out.bytes)); report("all", 0);
    unsigned short all[4] = { 1, 2, 3, 4 };
    V(SYS(semctl, id, 0, 17, all)); values(id);
    all[2] = 32768;
    V(SYS(semctl, id, 0, 17, all)); values(id);
    EACH_BAD(p, V(SYS(semctl, id, 0, 13, p)); V(SYS(semctl, id, 0, 17, p)); V(SYS(semctl, id, 0, STAT_, p));
             V(SYS(semop, id, p, 1)));
    HIDE(SEMID); V(SYS(semctl, id, 0, STAT_, out.bytes)); report("stat", 0);
    HIDE(INFO); V(SYS(semctl, 0, 0, IPC_INFO_, out.bytes) >= 0);
    HIDE(INFO); V(SYS(semctl, 0, 0, 19, out.bytes) >= 0);
    struct op none = { 0, 1, 0 };
    V(SYS(semop, id, &none, 0)); V(SYS(semop, id, &none, 501)); V(SYS(semop, -1, &none, 1)); V(SYS(semop, id + 5, &none, 1));
    V(ops(id, 4, 1, 0)); V(ops(id, 0, 32767, 0)); V(ops(id, 0, 5, 0)); V(ops(id, 0, -6, 0)); V(ops(id, 0, 0, 0));
    V(ops(id, 0, -1, NOWAIT)); V(ops(id, 1, 0, NOWAIT));
    values(id);
    /* All or none. */
    struct op two[2] = { { 1, -1, NOWAIT }, { 0, -1, NOWAIT } };
    V(SYS(semop, id, two, 2)); values(id);
    two[1].add = 1;
    V(SYS(semop, id, two, 2)); values(id);
    word time[2] = { 0, 1000000 }, bad_time[2] = { 0, 1000000000 };
    struct op take = { 0, -5, 0 };
    V(SYS(semtimedop, id, &take, 1, time)); V(SYS(semtimedop, id, &take, 1, bad_time)); V(SYS(semtimedop, id, two, 1, time));
    V(SYS(semtimedop, id, &take, 1, edge + 8));
    values(id);
    /* Two processes take turns. */
    V(SYS(semctl, id, 0, 16, 0)); V(SYS(semctl, id, 1, 16, 0));
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) {
        for (int i = 0; i < 5; i++) { ops(id, 0, -1, 0); ops(id, 1, 1, 0); }
        SYS(exit_group, 0);
    }
    for (int i = 0; i < 5; i++) { V(ops(id, 0, 1, 0)); V(ops(id, 1, -1, 0)); }
    SYS(wait4, pid, 0, 0, 0);
    values(id);
    /* What waits is counted. */
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) { ops(id, 2, 5, 0); SYS(exit_group, ops(id, 2, -100, 0) == 0); }
    while (SYS(semctl, id, 2, 14) != 1) wait_a_little();
    V(SYS(semctl, id, 2, 15)); V(SYS(semctl, id, 2, 12));
    V(ops(id, 2, 200, 0));
    int status;
    SYS(wait4, pid, &status, 0, 0);
    V(status); values(id);
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) SYS(exit_group, ops(id, 3, 0, 0) == 0);
    while (SYS(semctl, id, 3, 15) != 1) wait_a_little();
    V(SYS(semctl, id, 3, 14)); V(SYS(semctl, id, 3, 16, 0));
    SYS(wait4, pid, &status, 0, 0);
    V(status);
    /* Undone when the process ends. */
    V(SYS(semctl, id, 0, 16, 10));
    CHILD(V(ops(id, 0, -3, 0x1000)); V(ops(id, 1, 4, 0x1000)); V(ops(id, 0, -1, 0)); values(id));
    values(id);
    CHILD(V(ops(id, 0, -3, 0x1000)); V(SYS(semctl, id, 0, 16, 2)));
    values(id);
    V(ops(id, 0, 20000, 0x1000)); V(ops(id, 0, -20000, 0)); V(ops(id, 0, 20000, 0x1000));
    /* A signal ends a wait, and so does the end of the set. */
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) { on_signal(10, values, SA_RESTART, 0); SYS(exit_group, -ops(id, 3, -1, 0)); }
    while (SYS(semctl, id, 3, 14) != 1) wait_a_little();
    SYS(kill, pid, 15);
    SYS(wait4, pid, &status, 0, 0);
    V(status); V(SYS(semctl, id, 3, 14));
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) SYS(exit_group, -ops(id, 3, -1, 0));
    while (SYS(semctl, id, 3, 14) != 1) wait_a_little();
    V(SYS(semctl, id, 0, RMID));
    SYS(wait4, pid, &status, 0, 0);
    V(status);
    V(SYS(semctl, id, 0, RMID)); V(ops(id, 0, 1, 0)); V(SYS(semget, key, 0, 0));
}

struct message { long kind; char text[16]; };
static long send(long id, long kind, const char *text, int flags) {
    struct message message = { kind, { 0 } };
    memcpy(message.text, text, length(text));
    return SYS(msgsnd, id, &message, length(text), flags);
}
static void receive(long id, long size, long kind, int flags) {
    fill();
    report("msgrcv", SYS(msgrcv, id, out.bytes, size, kind, flags));
}

static void queues(void) {
    T(msgget, key, 0600);
    long id = SYS(msgget, key, CREAT | 0600);
    V(id >= 0); V(SYS(msgget, key, 0) == id); V(SYS(msgget, key, CREAT | EXCL)); V(SYS(msgget, key, 0400) == id);
    V(send(id, 0, "x", 0)); V(send(id, -1, "x", 0)); V(send(id + 5, 1, "x", 0)); V(send(-1, 1, "x", 0));
    V(SYS(msgsnd, id, out.bytes, 8193, 0)); V(SYS(msgsnd, id, out.bytes, -1, 0));
    EACH_BAD(p, V(SYS(msgsnd, id, p, 1, NOWAIT)); V(SYS(msgctl, id, STAT_, p)); V(SYS(msgctl, id, SET, p)));
    V(SYS(msgsnd, id, edge + 8, 10, NOWAIT));
    V(SYS(msgrcv, id, out.bytes, 8, 0, NOWAIT)); V(SYS(msgrcv, id, out.bytes, -1, 0, NOWAIT)); V(SYS(msgrcv, -1, out.bytes, 8, 0, NOWAIT));
    V(SYS(msgrcv, id + 5, out.bytes, 8, 0, NOWAIT));
    V(send(id, 3, "three", 0)); V(send(id, 1, "one", 0)); V(send(id, 2, "two", 0)); V(send(id, 3, "again", 0)); V(send(id, 5, "", 0));
    HIDE(MSGID); V(SYS(msgctl, id, STAT_, out.bytes)); fill();
    receive(id, 2, 1, 0);
    receive(id, 2, 1, 010000);
    receive(id, 16, 4, NOWAIT);
    receive(id, 16, -2, 0);
    receive(id, 16, 3, 020000);
    receive(id, 16, -1, NOWAIT);
    receive(id, 16, 3, 020000 | NOWAIT);
    receive(id, 16, 0, 0);
    receive(id, 16, 3, 0);
    receive(id, 16, 0, NOWAIT);
    receive(id, 16, 0, 040000); receive(id, 16, 0, 060000 | NOWAIT);
    fill();
    SYS(msgctl, id, STAT_, out.bytes);
    *(word *)(out.bytes + 88) = 10;
    { long r = SYS(msgctl, id, SET, out.bytes); fill(); V(r); }
    HIDE(MSGID); V(SYS(msgctl, id, STAT_, out.bytes)); fill();
    V(send(id, 1, "12345678", NOWAIT)); V(send(id, 1, "123", NOWAIT)); V(send(id, 1, "12", NOWAIT)); V(send(id, 1, "", NOWAIT));
    /* One waits for room, the other for messages. */
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) { for (int i = 1; i < 9; i++) send(id, i, "abcdef", 0); SYS(exit_group, 0); }
    receive(id, 16, 1, 0); receive(id, 16, 1, 0); receive(id, 16, 1, 0);
    for (int i = 1; i < 9; i++) receive(id, 16, 0, 0);
    SYS(wait4, pid, 0, 0, 0);
    HIDE(INFO); V(SYS(msgctl, 0, IPC_INFO_, out.bytes) >= 0); fill();
    HIDE(INFO); V(SYS(msgctl, 0, 12, out.bytes) >= 0); fill();
    V(SYS(msgctl, id, 99, 0)); V(SYS(msgctl, -1, STAT_, out.bytes)); V(SYS(msgctl, id, -1, 0));
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) { long r = SYS(msgrcv, id, out.bytes, 8, 0, 0); SYS(exit_group, -r); }
    wait_a_little(); wait_a_little();
    V(SYS(msgctl, id, RMID, 0));
    int status;
    SYS(wait4, pid, &status, 0, 0);
    V(status);
    V(SYS(msgctl, id, RMID, 0)); V(SYS(msgctl, id, STAT_, out.bytes));
}

/* An object whose number is not its index, since indices have started again. `by_index` is the
 * command that takes an index, such as MSG_STAT. */
static void numbers(int get, int control, long size, int by_index) {
    static union { word words[64]; unsigned char bytes[512]; } status;
#define CONTROL(id, command) (control == __NR_semctl \
        ? SYS(semctl, id, 0, command, status.bytes) : SYS_(control, id, command, status.bytes, 0, 0, 0, 0))
    long id = -1;
    for (int i = 0; i < 300; i++) {
        id = get == __NR_msgget ? SYS(msgget, 0, 0600) : SYS_(get, 0, size, 0600, 0, 0, 0, 0);
        if (id < 0 || id >= 32768) break;
        CONTROL(id, RMID);
    }
    V(id >= 32768);
    V(CONTROL(id, STAT_)); V(CONTROL(id % 32768, STAT_));
    V(CONTROL(id % 32768, by_index) == id); V(CONTROL(id, by_index) == id);
    V(CONTROL(id, RMID));
}

static void cases(void) {
    word time[2];
    SYS(clock_gettime, 1, time);
    key = 0x75000000 | (int)((SYS(getpid, 0) << 8 ^ time[1]) & 0xffffff);
    shared_memory();
    semaphores();
    queues();
    numbers(__NR_msgget, __NR_msgctl, 0, 11);
    numbers(__NR_semget, __NR_semctl, 1, 18);
    numbers(__NR_shmget, __NR_shmctl, P, 13);
}
