/* Every call that takes a path, on every kind of name that could lead out of the root: links, names of
 * descriptors in /proc and /dev, descriptors of folders and paths, and what they are combined with. */

/* The calls, on a path from a descriptor. */
static void by_way(long fd, const char *path) {
    static char bytes[4096];
    static const word beneath[3] = { 0, 0, 8 }, in_root[3] = { 0, 0, 16 }, whole[3] = { RW, 0, 0 };
    char p[600];
    memcpy(p, path, length(path) + 1);
    word times[4] = { 1, 0, 1, 0 };
    T(JOIN(p, " open"), leaks(SYS(openat, fd, p, 0, 0)), REFUSED);
    T(JOIN(p, " open to write"), SYS(openat, fd, p, RW, 0), REFUSED);
    T(JOIN(p, " open to truncate"), SYS(openat, fd, p, TRUNC | 1, 0), REFUSED);
    T(JOIN(p, " create"), SYS(openat, fd, p, CREAT | RW, 0666), REFUSED);
    T(JOIN(p, " open its name"), SYS(openat, fd, p, PATHS, 0), REFUSED);
    T(JOIN(p, " openat2"), SYS(openat2, fd, p, whole, 24), REFUSED);
    T(JOIN(p, " openat2 beneath"), SYS(openat2, fd, p, beneath, 24), REFUSED);
    T(JOIN(p, " openat2 in a root"), SYS(openat2, fd, p, in_root, 24), REFUSED);
    T(JOIN(p, " stat"), SYS(newfstatat, fd, p, bytes, 0), REFUSED);
    T(JOIN(p, " statx"), SYS(statx, fd, p, 0, 0x7ff, bytes), REFUSED);
    T(JOIN(p, " access"), SYS(faccessat, fd, p, 0), REFUSED);
    T(JOIN(p, " handle"), SYS(name_to_handle_at, fd, p, bytes, bytes + 200, 0), REFUSED);
    T(JOIN(p, " mode"), SYS(fchmodat, fd, p, 0777), REFUSED);
    T(JOIN(p, " owner"), SYS(fchownat, fd, p, 1, 1, 0), REFUSED);
    T(JOIN(p, " times"), SYS(utimensat, fd, p, times, 0), REFUSED);
    T(JOIN(p, " remove"), SYS(unlinkat, fd, p, 0), REFUSED);
    T(JOIN(p, " remove a folder"), SYS(unlinkat, fd, p, 0x200), REFUSED);
    T(JOIN(p, " link from"), SYS(linkat, fd, p, CWD, "stolen", 0), REFUSED);
    T(JOIN(p, " link from, followed"), SYS(linkat, fd, p, CWD, "stolen", 0x400), REFUSED);
    T(JOIN(p, " link to"), SYS(linkat, CWD, "file-kept", fd, p, 0), REFUSED);
    T(JOIN(p, " move from"), SYS(renameat2, fd, p, CWD, "stolen", 0), REFUSED);
    T(JOIN(p, " move to"), SYS(renameat2, CWD, "file-kept", fd, p, 0), REFUSED);
    T(JOIN(p, " exchange"), SYS(renameat2, CWD, "file-kept", fd, p, 2), REFUSED);
    T(JOIN(p, " symbolic link"), SYS(symlinkat, "x", fd, p), REFUSED);
    T(JOIN(p, " folder"), SYS(mkdirat, fd, p, 0777), REFUSED);
    T(JOIN(p, " FIFO"), SYS(mknodat, fd, p, 010666, 0), REFUSED);
    T(JOIN(p, " execute"), SYS(execveat, fd, p, alone, 0, 0), REFUSED);
}

/* The same where a call knows no descriptors. */
static void by_path(const char *path) {
    static char bytes[4096];
    struct { short family; char path[108]; } a = { 1, { 0 } };
    char p[600];
    memcpy(p, path, length(path) + 1);
    by_way(CWD, p);
    T(JOIN(p, " file system"), SYS(statfs, p, bytes), REFUSED);
    T(JOIN(p, " working folder"), SYS(chdir, p), REFUSED);
    T(JOIN(p, " size"), SYS(truncate, p, 0), REFUSED);
    T(JOIN(p, " attribute"), SYS(getxattr, p, "user.x", bytes, 100), REFUSED);
    T(JOIN(p, " watch"), SYS(inotify_add_watch, SYS(inotify_init1, 0), p, 0xfff), REFUSED);
    if (length(p) > 100) return;
    memcpy(a.path, p, length(p) + 1);
    T(JOIN(p, " bind"), SYS(bind, SYS(socket, 1, 1, 0), &a, sizeof a), REFUSED);
    T(JOIN(p, " connect"), SYS(connect, SYS(socket, 1, 1, 0), &a, sizeof a), REFUSED);
}

static void ways(void) {
    if (!rooted) return;
    T("a file of its own", put("file-kept", CREAT | RW), r == 4);
    T("a link to a link", SYS(symlink, "out", "twice"), r == 0);
    T("a link through /proc", SYS(symlink, "/proc/self/root/../../outside", "by-proc"), r == 0);
    T("a link to a descriptor", SYS(symlink, "/proc/self/fd/200/../../outside", "by-descriptor"), r == 0);
    long root = SYS(open, "/", DIRECTORY), here = SYS(open, ".", PATHS), link = SYS(open, "out", PATHS | NOFOLLOW);
    T("a descriptor at 200", SYS(dup2, root, 200), r == 200);
    static const char *const roads[] = {
        "out/secret", "absolute/secret", "twice/secret", "by-proc/secret", "by-descriptor/secret",
        "../../outside/secret", "/proc/self/root/../outside/secret", "/proc/self/cwd/../../outside/secret",
        "/proc/self/fd/200/../outside/secret", "/dev/fd/200/../outside/secret",
        "/proc/thread-self/fd/200/../../outside/secret", "/proc/self/cwd/out/secret",
    };
    for (unsigned i = 0; i < sizeof roads / sizeof *roads; i++) by_path(roads[i]);
    by_way(root, "../outside/secret");
    by_way(root, "box/out/secret");
    by_way(here, "../../outside/secret");
    by_way(here, "twice/secret");
    by_way(link, "secret");
    by_way(link, "../secret");
    SYS(close, root), SYS(close, here), SYS(close, link), SYS(close, 200);
}
