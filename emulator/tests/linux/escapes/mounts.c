/* Attempts to reach what is behind the file systems that are mounted below the root: the host's
 * kernel and its processes. The test mounts them, in namespaces of its own. */
#include "attempts.h"

/* The answer where a file system must not be seen. */
#define HIDDEN (r == -EACCES)
/* The same, or an error about the call itself. */
#define SHUT (r == -EACCES || r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP || r == -EXDEV)

struct address { short family; char path[108]; };
static long at_socket(int connects, const char *path) {
    struct address a = { 1, { 0 } };
    memcpy(a.path, path, length(path) + 1);
    long s = SYS(socket, 1, 1, 0);
    long r = connects ? SYS(connect, s, &a, sizeof a) : SYS(bind, s, &a, sizeof a);
    SYS(close, s);
    return r;
}
/* What was opened must not stay open, so that descriptors never run out. */
static long closed(long f) {
    if (f >= 0) SYS(close, f);
    return f;
}
static char bytes_[4096];
/* A copy of a text that is not overwritten by the next ones. */
#define OWN(name, text) char name[600]; memcpy(name, text, length(text) + 1)

/* Looking at a path. */
static void looks_at(const char *path) {
    OWN(p, path);
    T(JOIN(p, " open"), closed(SYS(open, p, 0)), HIDDEN);
    T(JOIN(p, " open without waiting"), closed(SYS(open, p, NONBLOCK)), HIDDEN);
    T(JOIN(p, " open its name"), closed(SYS(open, p, PATHS)), HIDDEN);
    T(JOIN(p, " open its name, no link"), closed(SYS(open, p, PATHS | NOFOLLOW)), HIDDEN);
    T(JOIN(p, " openat2"), ({ word how[3] = { 0 }; closed(SYS(openat2, CWD, p, how, 24)); }), SHUT);
    T(JOIN(p, " openat2 beneath"), ({
        word how[3] = { PATHS, 0, 8 }; closed(SYS(openat2, CWD, p, how, 24)); }), SHUT || r == -EAGAIN);
    T(JOIN(p, " stat"), SYS(stat, p, bytes_), HIDDEN);
    T(JOIN(p, " lstat"), SYS(lstat, p, bytes_), HIDDEN);
    T(JOIN(p, " statx"), SYS(statx, CWD, p, 0, 0x7ff, bytes_), HIDDEN);
    T(JOIN(p, " statfs"), SYS(statfs, p, bytes_), HIDDEN);
    T(JOIN(p, " access"), SYS(access, p, 0), HIDDEN);
    T(JOIN(p, " faccessat2"), SYS(faccessat2, CWD, p, 4, 0x100), HIDDEN || r == -ENOSYS);
    T(JOIN(p, " readlink"), SYS(readlink, p, bytes_, 100), HIDDEN);
    T(JOIN(p, " getxattr"), SYS(getxattr, p, "user.x", bytes_, 100), SHUT);
    T(JOIN(p, " chdir"), SYS(chdir, p), HIDDEN);
    T(JOIN(p, " handle"), SYS(name_to_handle_at, CWD, p, bytes_, bytes_ + 200, 0), SHUT);
    T(JOIN(p, " watch"), ({
        long i = SYS(inotify_init1, 0), w = SYS(inotify_add_watch, i, p, 0xfff);
        SYS(close, i);
        w; }), HIDDEN);
    T(JOIN(p, " list"), ({
        long f = SYS(open, p, DIRECTORY), n = f < 0 ? f : SYS(getdents64, f, bytes_, sizeof bytes_);
        if (f >= 0) SYS(close, f);
        n; }), HIDDEN);
    T(JOIN(p, " execute"), SYS(execve, p, alone, 0), HIDDEN);
    T(JOIN(p, " execveat"), SYS(execveat, CWD, p, alone, 0, 0), SHUT);
    T(JOIN(p, " connect"), at_socket(1, p), SHUT);
    T(JOIN(p, " map"), ({
        long f = SYS(open, p, 0), at = f < 0 ? f : SYS(mmap, 0, 4096, 1, 2, f, 0);
        if (f >= 0) SYS(close, f);
        at; }), HIDDEN);
}

/* Changing it, or what is in the folder. */
static void changes(const char *path) {
    OWN(p, path);
    word times[4] = { 1, 0, 1, 0 };
    T(JOIN(p, " write"), put(p, RW), HIDDEN);
    T(JOIN(p, " write only"), put(p, 1), HIDDEN);
    T(JOIN(p, " create"), put(p, CREAT | RW), HIDDEN);
    T(JOIN(p, " append"), put(p, APPEND | 1), HIDDEN);
    T(JOIN(p, " truncate on open"), put(p, TRUNC | 1), HIDDEN);
    T(JOIN(p, " truncate"), SYS(truncate, p, 0), HIDDEN);
    T(JOIN(p, " unnamed file"), closed(SYS(open, p, 020200000 | RW, 0600)), HIDDEN);
    T(JOIN(p, " chmod"), SYS(chmod, p, 0777), HIDDEN);
    T(JOIN(p, " chown"), SYS(chown, p, 0, 0), HIDDEN);
    T(JOIN(p, " lchown"), SYS(lchown, p, 0, 0), HIDDEN);
    T(JOIN(p, " times"), SYS(utimensat, CWD, p, times, 0), HIDDEN);
    T(JOIN(p, " times of a link"), SYS(utimensat, CWD, p, times, 0x100), HIDDEN);
    T(JOIN(p, " setxattr"), SYS(setxattr, p, "user.x", "y", 1, 0), SHUT);
    T(JOIN(p, " unlink"), SYS(unlink, p), HIDDEN);
    T(JOIN(p, " rmdir"), SYS(rmdir, p), HIDDEN);
    T(JOIN(p, " rename from"), SYS(rename, p, "taken"), HIDDEN);
    T(JOIN(p, " rename to"), SYS(rename, "kept", p), HIDDEN);
    T(JOIN(p, " exchange"), SYS(renameat2, CWD, p, CWD, "kept", 2), HIDDEN);
    T(JOIN(p, " link from"), SYS(link, p, "linked"), HIDDEN);
    T(JOIN(p, " link from, followed"), SYS(linkat, CWD, p, CWD, "linked", 0x400), HIDDEN);
    T(JOIN(p, " link to"), SYS(link, "kept", p), HIDDEN);
    T(JOIN(p, " symlink to"), SYS(symlink, "kept", p), HIDDEN);
    T(JOIN(p, " mkdir"), SYS(mkdir, p, 0700), HIDDEN);
    T(JOIN(p, " mknod"), SYS(mknod, p, 0100600, 0), HIDDEN);
    T(JOIN(p, " FIFO"), SYS(mknod, p, 010600, 0), HIDDEN);
    T(JOIN(p, " bind"), at_socket(0, p), SHUT);
}

/* What others exchange while it is used: for a mount of procfs, and back. */
static void exchanged(void) {
    long seen = 0;
    for (int i = 0; i < 3000; i++) {
        char text[8] = { 0 };
        long f = SYS(open, "/mnt/flip/status", 0);
        if (f >= 0) {
            SYS(read, f, text, 7);
            SYS(close, f);
            seen |= begins(text, "Name");
        }
        f = SYS(open, "/mnt/flip", DIRECTORY);
        if (f >= 0) {
            char name[16];
            seen |= SYS(readlinkat, f, "exe", name, 16) > 0;
            seen |= put("/mnt/flip/coredump_filter", 1) > 0;
            SYS(close, f);
        }
    }
    T("a mount in a race", seen, r == 0);
}

/* File systems that may be seen, and what is in them. */
static void open_to_all(void) {
    static const char *const all[] = { "/mnt/tmp", "/mnt/ram", "/mnt/over", "/mnt/bind", "/box/to-tmp" };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        OWN(file, JOIN(all[i], "/file"));
        T(JOIN(file, " read"), LEAKS(file), r == 1);
        T(JOIN(file, " stat"), SYS(stat, file, bytes_), r == 0);
        T(JOIN(file, " list"), ({
            long f = SYS(open, all[i], DIRECTORY), n = SYS(getdents64, f, bytes_, sizeof bytes_);
            SYS(close, f);
            n; }), r > 0);
        T(JOIN(file, " create"), put(JOIN(all[i], "/new"), CREAT | RW), r == 4);
        T(JOIN(file, " remove"), SYS(unlink, JOIN(all[i], "/new")), r == 0);
    }
    /* The names in a folder are not what is behind them. */
    T("a list of mount points", ({
        long f = SYS(open, "/mnt", DIRECTORY), n = SYS(getdents64, f, bytes_, sizeof bytes_);
        SYS(close, f);
        n; }), r > 0);
    T("the machine's own /proc", ({
        long f = SYS(open, "/proc/self/status", 0), n = SYS(read, f, bytes_, 5);
        SYS(close, f);
        n < 0 ? n : begins(bytes_, "Name:"); }), r == 1);
    T("a descriptor's name", ({
        long f = SYS(open, "/mnt/tmp/file", 0);
        long g = LEAKS(JOIN("/proc/self/fd/", decimal(f)));
        SYS(close, f);
        g; }), r == 1);
}

int run(word *stack) {
    char **args = (char **)(stack + 1);
    const char *process = args[1];
    static const char *const names[] = { "", "/self/mem", "/self/environ", "/kallsyms",
        "/self/root/etc", "/sys/kernel/domainname", "/fs", "/none" };
    T("the working folder", SYS(chdir, "/box"), r == 0);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        OWN(name, JOIN("/mnt/proc", names[i]));
        looks_at(name), changes(name);
    }
    static const char *const others[] = { "/mnt/process", "/mnt/process/mem", "/mnt/mem", "/mnt/adjust",
        "/mnt/domain", "/mnt/sys", "/mnt/sys/kernel", "/mnt/pts", "/mnt/pts/ptmx", "/mnt/tmp/deep/self/mem",
        "/box/to-proc/self/mem", "/box/to-mem", "/box/../mnt/sys/kernel/../kernel" };
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        int is_link = others[i][1] == 'b' && others[i][8] == 'm';
        /* A link of the root itself is in the box, whatever it leads to. */
        if (!is_link) looks_at(others[i]), changes(others[i]);
        else T(others[i], put(others[i], RW), HIDDEN);
    }
    OWN(memory, join4("/mnt/proc/", process, "/", "mem"));
    looks_at(memory), changes(memory);
    OWN(filter, join4("/mnt/proc/", process, "/", "coredump_filter"));
    looks_at(filter), changes(filter);
    T("through a descriptor of the folder above", ({
        long f = SYS(open, "/mnt", DIRECTORY), g = closed(SYS(openat, f, "proc/self/environ", 0));
        SYS(close, f);
        g; }), HIDDEN);
    T("through its name only", ({
        long f = SYS(open, "/mnt", PATHS), g = closed(SYS(openat, f, "proc/self/environ", 0));
        SYS(close, f);
        g; }), HIDDEN);
    T("through the machine's own /proc", ({
        long f = SYS(open, "/mnt", PATHS);
        const char *way = join4("/proc/self/fd/", decimal(f), "/proc", "/self/environ");
        long g = closed(SYS(open, way, 0));
        SYS(close, f);
        g; }), HIDDEN);
    open_to_all();
    exchanged();
    number("attempts", attempts);
    number("surprises", surprises);
    return 0;
}
