/* Programs by descriptor, another root, and capabilities that outlive user 0. */
#include "cases.h"
#include "program.h"

#define CHILD(...) do { flush(); long pid_ = SYS(fork, 0); \
    if (pid_ == 0) { __VA_ARGS__; flush(); SYS(exit_group, 99); } \
    int status_ = 0; SYS(wait4, pid_, &status_, 0, 0); V(status_); } while (0)
enum { NOFOLLOW = 0x100, EMPTY = 0x1000, CLOEXEC = 02000000 };

static long put(const char *name, const void *bytes, long size, int mode) {
    long fd = SYS(open, name, O_RDWR | O_CREAT | O_TRUNC, mode);
    SYS(write, fd, bytes, size);
    SYS(close, fd);
    return SYS(open, name, O_RDONLY);
}

static void executing(void) {
    long fd = put("program", program, sizeof program, 0755), dir = FD(DIR);
    SYS(link, "program", "dir/program"); SYS(symlink, "program", "dir/link");
    CHILD(SYS(execveat, AT_FDCWD, "program", two, none, 0));
    CHILD(SYS(execveat, fd, "", two, none, EMPTY));
    CHILD(SYS(execveat, dir, "program", two, none, 0)); CHILD(SYS(execveat, dir, "link", two, none, 0)); CHILD(V(SYS(execveat, dir, "link", two, none, NOFOLLOW))); CHILD(SYS(execveat, dir, "program", two, none, NOFOLLOW | EMPTY));
    CHILD(SYS(execveat, 90, "/proc/self/exe", none, none, 1 << 20));
    long path = SYS(open, "program", 010000000), of_link = SYS(open, "dir/link", 010000000 | 0400000);
    CHILD(SYS(execveat, path, "", two, none, EMPTY)); V(SYS(execveat, of_link, "", two, none, EMPTY)); V(SYS(execveat, of_link, "", two, none, EMPTY | NOFOLLOW));
    long hidden = SYS(open, "program", O_RDONLY | CLOEXEC);
    CHILD(SYS(execveat, hidden, "", two, none, EMPTY));
    long memory = SYS(memfd_create, "program", 1);
    SYS(write, memory, program, sizeof program);
    CHILD(SYS(execveat, memory, "", two, none, EMPTY));
    V(SYS(execveat, fd, "", two, none, 0)); V(SYS(execveat, AT_FDCWD, "", two, none, 0)); V(SYS(execveat, AT_FDCWD, "", two, none, EMPTY)); V(SYS(execveat, dir, "", two, none, EMPTY)); V(SYS(execveat, fd, "x", two, none, 0)); V(SYS(execveat, FD(PR), "", two, none, EMPTY)); V(SYS(execveat, 90, "", two, none, EMPTY)); V(SYS(execveat, 90, "x", two, none, 0));
    V(SYS(execveat, dir, "missing", two, none, 0)); V(SYS(execveat, dir, "program/x", two, none, 0)); V(SYS(execveat, AT_FDCWD, "loop", two, none, 0)); V(SYS(execveat, AT_FDCWD, "loop", two, none, NOFOLLOW)); V(SYS(execveat, dir, "program", two, none, 2)); V(SYS(execveat, dir, "program", two, none, 0x80000000));
    EACH_BAD(p, T(execveat, AT_FDCWD, p, two, none, 0)); EACH_BAD_BUT_NULL(p, T(execveat, AT_FDCWD, "program", p, none, 0); T(execveat, AT_FDCWD, "program", two, p, 0));
    /* Not executable, and no program. */
    long plain = put("plain", program, sizeof program, 0644), odd = put("odd", "text", 4, 0755);
    V(SYS(execveat, plain, "", two, none, EMPTY)); V(SYS(execveat, AT_FDCWD, "plain", two, none, 0)); V(SYS(execveat, odd, "", two, none, EMPTY));
    /* Scripts: their interpreter opens the descriptor, which may not be there any longer. */
    long script = put("script", "#!program\n", 10, 0755), kept = SYS(open, "script", O_RDONLY | CLOEXEC);
    CHILD(SYS(execveat, AT_FDCWD, "script", two, none, 0)); CHILD(SYS(execveat, script, "", two, none, EMPTY)); V(SYS(execveat, kept, "", two, none, EMPTY));
    SYS(fcntl, dir, 2, 0); CHILD(SYS(execveat, dir, "program", two, none, 0));
    /* One that has no name any longer. */
    SYS(unlink, "dir/program"); SYS(unlink, "script"); SYS(close, script); SYS(close, kept);
    SYS(close, fd); SYS(close, path); SYS(close, of_link); SYS(close, hidden); SYS(close, memory); SYS(close, plain); SYS(close, odd);
}

static void roots(int may) {
    char text[64] = { 0 };
    EACH_WRONG(p, T(chroot, p)); V(SYS(chroot, "file"));
    if (!may) { if (SYS(getuid, 0)) V(SYS(chroot, ".")); return; }
    SYS(mkdir, "cage", 0755); SYS(mkdir, "cage/in", 0755); SYS(close, make("cage/in/file", "caged"));
    SYS(symlink, "/in/file", "cage/link"); SYS(symlink, "../../../in/file", "cage/up"); SYS(symlink, "/file", "cage/out");
    long outside = SYS(open, ".", O_RDONLY), proc = SYS(open, "/proc", O_RDONLY);
    /* The links of a process lead to what it has, not to what their text names. */
    CHILD(
        V(SYS(chdir, "cage/in")); V(SYS(chroot, ".."));
        V(SYS(faccessat, proc, "self/cwd/file", 0)); V(SYS(faccessat, proc, "self/root/in/file", 0)); V(SYS(faccessat, proc, "self/exe", 0)); V(SYS(faccessat, proc, "self/exe/x", 0)); V(SYS(faccessat, proc, "self/cwd/../in/file", 0)); V(SYS(faccessat, proc, "self/root/../file", 0)); V(SYS(faccessat, proc, "self/root/link", 0));
        V(SYS(fchdir, outside)); V(SYS(faccessat, proc, "self/cwd/file", 0)); V(SYS(faccessat, proc, "self/cwd/cage/link", 0)));
    CHILD(
        V(SYS(chdir, "cage")); V(SYS(chroot, "."));
        V(SYS(getcwd, text, 64)); V(text[0]); V(text[1]); V(SYS(chdir, "in")); V(SYS(getcwd, text, 64)); say(text); V(0);
        V(SYS(access, "/in/file", 0)); V(SYS(access, "/link", 0)); V(SYS(access, "/up", 0)); V(SYS(access, "/out", 0)); V(SYS(access, "../../../in/file", 0)); V(SYS(access, "/../../in/file", 0)); V(SYS(access, "/file", 0)); V(SYS(access, "/proc/self/stat", 0)); V(SYS(access, "/dev/null", 0)); V(SYS(access, "/cage", 0));
        V(SYS(mkdir, "/new", 0755)); V(SYS(rename, "/in/file", "/new/file")); V(SYS(readlink, "/link", text, 64)); V(SYS(access, "/link", 0));
        V(SYS(chroot, "new")); V(SYS(chroot, "/new")); V(SYS(access, "/file", 0)); V(SYS(getcwd, text, 64) > 0); say(text[0] == '(' ? "outside" : text); V(0);
        /* What was opened before leads out. */
        V(SYS(openat, outside, "cage/new/file", O_RDONLY) >= 0); V(SYS(fchdir, outside)); V(SYS(access, "cage", 0)); V(SYS(access, "/cage", 0)); V(SYS(chdir, "..")); V(SYS(chdir, "/")); V(SYS(access, "file", 0));
        CHILD(V(SYS(access, "/file", 0))); SYS(exit_group, 0));
    /* The parent's stays. */
    V(SYS(access, "cage/new/file", 0)); V(SYS(access, "/proc/self/stat", 0));
    SYS(close, outside); SYS(close, proc);
    SYS(unlink, "cage/new/file"); SYS(rmdir, "cage/new"); SYS(unlink, "cage/link"); SYS(unlink, "cage/up"); SYS(unlink, "cage/out"); SYS(rmdir, "cage/in"); V(SYS(rmdir, "cage"));
    /* A program and its interpreter in the other root. */
    SYS(mkdir, "cage", 0755); SYS(close, put("cage/program", program, sizeof program, 0755)); SYS(close, put("cage/script", "#!/program\n", 11, 0755));
    CHILD(SYS(chroot, "cage"); SYS(chdir, "/"); SYS(execve, "/script", two, none));
    CHILD(SYS(chroot, "cage"); SYS(execve, "/program", two, none));
    CHILD(SYS(chroot, "cage"); V(SYS(execve, "/cage/program", two, none)));
    CHILD(SYS(setresuid, 1000, 1000, 1000); V(SYS(chroot, "cage")));
    SYS(unlink, "cage/program"); SYS(unlink, "cage/script"); SYS(rmdir, "cage");
}

static struct { unsigned version; int pid; } header = { 0x20080522, 0 };
static struct { unsigned effective, permitted, inheritable; } sets[2];
static void say_sets(void) {
    V(SYS(capget, &header, sets)); V(sets[0].effective != 0); V(sets[0].permitted != 0);
}
static void keeping(int may) {
    T(prctl, 7, 0, 0, 0, 0); T(prctl, 8, 2, 0, 0, 0); T(prctl, 8, -1, 0, 0, 0); T(prctl, 8, 1, 0, 0, 0); T(prctl, 7, 0, 0, 0, 0); T(prctl, 27, 0, 0, 0, 0);
    CHILD(V(SYS(prctl, 7, 0, 0, 0, 0)));
    T(prctl, 8, 0, 0, 0, 0); T(prctl, 7, 0, 0, 0, 0); T(prctl, 27, 0, 0, 0, 0);
    if (!may) return;
    CHILD(V(SYS(setresuid, 1000, 1000, 1000)); say_sets(); V(SYS(setresuid, 0, 0, 0)); V(SYS(prctl, 8, 1, 0, 0, 0)));
    CHILD(V(SYS(prctl, 8, 1, 0, 0, 0)); V(SYS(setresuid, 1000, 1000, 1000)); say_sets(); V(SYS(chown, "file", 5, 5)); V(SYS(setresuid, 0, 0, 0)); V(SYS(prctl, 7, 0, 0, 0, 0));
          SYS(capget, &header, sets); for (int i = 0; i < 2; i++) sets[i].effective = sets[i].permitted, sets[i].inheritable = 0;
          V(SYS(capset, &header, sets)); say_sets(); V(SYS(chown, "file", 5, 5)); V(SYS(chown, "file", 0, 0)); V(SYS(setresuid, 0, 0, 0)); V(SYS(getuid, 0)); say_sets());
    CHILD(V(SYS(setresuid, -1, 1000, -1)); say_sets(); V(SYS(setresuid, -1, 0, -1)); say_sets());
    /* Given up, although it stays user 0. */
    CHILD(for (int i = 0; i < 2; i++) sets[i].effective = sets[i].permitted = sets[i].inheritable = 0;
          V(SYS(capset, &header, sets)); say_sets(); V(SYS(setresuid, 5, 5, 5)); V(SYS(chown, "file", 5, 5)); V(SYS(setgroups, 0, 0)); V(SYS(chroot, ".")));
    /* Another program begins without the setting. */
    SYS(close, put("program", program, sizeof program, 0755));
    CHILD(SYS(prctl, 8, 1, 0, 0, 0); SYS(setresuid, 1000, 1000, 1000); SYS(execve, "program", two, none));
}

/* A child that waits in another program; it calls `before` and then that program. */
static long in_waiting(void (*before)(void)) {
    int ends[2]; char byte;
    SYS(pipe2, ends, CLOEXEC);
    flush();
    long child = SYS(fork, 0);
    if (child == 0) { before(); SYS(execve, "waiting", none, none); SYS(exit_group, 99); }
    /* The other end is closed by execve. */
    SYS(close, ends[1]); SYS(read, ends[0], &byte, 1); SYS(close, ends[0]);
    return child;
}
static void nothing(void) {}
static void own_session(void) { SYS(setsid, 0); }
static void dies_with_parent(void) { SYS(prctl, 1, 9, 0, 0, 0); }

/* What a program keeps of the one before: its group, and the signal for the end of its parent. */
static void kept(void) {
    int status;
    put_waiting("waiting");
    long same = in_waiting(nothing), other = in_waiting(own_session);
    V(SYS(setpgid, same, same)); V(SYS(setpgid, other, other)); V(SYS(setpgid, other, 0));
    SYS(kill, same, 9); SYS(kill, other, 9);
    SYS(wait4, same, &status, 0, 0); V(status); SYS(wait4, other, &status, 0, 0); V(status);

    int ends[2]; char byte;
    SYS(pipe, ends);
    flush();
    long child = SYS(fork, 0);
    if (child == 0) { in_waiting(dies_with_parent); SYS(exit_group, 0); }
    SYS(close, ends[1]); SYS(wait4, child, &status, 0, 0); V(status);
    /* Until the last one that has the pipe is gone. */
    V(SYS(read, ends[0], &byte, 1)); SYS(close, ends[0]);
}

static void cases(void) {
    executing();
    kept();
    roots(arguments > 1);
    keeping(arguments > 1);
    flush();
    SYS(exit_group, 0);
}
