/* Files by name: opening, creating, removing, renaming, reading links. */
#include "cases.h"
#define O_PATH_ 010000000

/* Opens a file, prints its descriptor and kind, and closes it. */
static void opened(const char *what, long fd) {
    report(what, fd);
    if (fd < 0) return;
    T(fcntl, fd, F_GETFL);
    T(fcntl, fd, F_GETFD);
    SYS(close, fd);
}
#define O(name, ...) opened(#name " " #__VA_ARGS__, SYS(name, __VA_ARGS__))

static void opening(void) {
    EACH_WRONG(p, O(open, p, O_RDONLY); O(open, p, O_WRONLY); O(open, p, O_PATH_); O(openat, FD(DIR), p, O_RDONLY));
    EACH_WRONG(p, O(open, p, O_RDONLY | O_DIRECTORY); O(open, p, O_RDONLY | O_NOFOLLOW));
    O(openat, AT_FDCWD, "file", O_RDWR);
    O(openat, FD(DIR), "inside", O_RDONLY);
    O(openat, FD(DIR), "../file", O_RDONLY);
    O(openat, FD(DIR), "/dev/null", O_RDONLY);
    O(openat, -1, "/dev/null", O_RDONLY);
    O(openat, -1, "file", O_RDONLY);
    O(openat, FD(RD), "file", O_RDONLY);
    O(openat, FD(PATH), "file", O_RDONLY);
    O(openat, 90, "file", O_RDONLY);
    O(openat, AT_FDCWD | 1ul << 32, "file", O_RDONLY);
    O(open, "dir", O_RDONLY);
    O(open, "dir", O_WRONLY);
    O(open, "dir", O_RDWR);
    O(open, "dir", O_RDONLY | O_CREAT, 0644);
    O(open, "dir", O_RDONLY | O_TRUNC);
    O(open, "dir/", O_RDONLY);
    O(open, "dir/.", O_RDONLY);
    O(open, "dir/..", O_RDONLY);
    O(open, "dir", O_PATH_);
    O(open, "dir", O_PATH_ | O_DIRECTORY | O_NOFOLLOW);
    O(open, "to-dir", O_RDONLY | O_DIRECTORY);
    O(open, "to-dir", O_RDONLY | O_NOFOLLOW);
    O(open, "to-dir/", O_RDONLY | O_NOFOLLOW);
    O(open, "to-dir", O_PATH_ | O_NOFOLLOW);
    O(open, "to-dir/inside", O_RDONLY);
    O(open, "link", O_RDONLY);
    O(open, "link", O_RDONLY | O_NOFOLLOW);
    O(open, "link", O_RDONLY | O_CREAT | O_EXCL, 0644);
    O(open, "link/", O_RDONLY);
    O(open, "file", O_RDONLY | O_CREAT | O_EXCL, 0644);
    O(open, "file", O_RDONLY | O_DIRECTORY);
    O(open, "file", 3);
    O(open, "file", O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC);
    O(open, "file", O_RDONLY | 040000000000);
    O(open, "new/", O_RDWR | O_CREAT, 0644);
    O(open, "new", O_RDWR | O_CREAT | O_EXCL, 0640);
    O(open, "new", O_RDWR | O_CREAT | O_EXCL, 0640);
    O(open, "dangling", O_RDWR | O_CREAT | O_EXCL, 0640);
    O(open, "dangling", O_RDWR | O_CREAT, 0640);
    T(unlink, "nowhere");
    O(open, "missing/x", O_RDWR | O_CREAT, 0640);
    O(open, "file/x", O_RDWR | O_CREAT, 0640);
    O(open, "loop", O_RDWR | O_CREAT, 0640);
    O(open, long_name, O_RDWR | O_CREAT, 0640);
    O(open, "", O_RDWR | O_CREAT, 0640);
    O(open, "/dev/null", O_RDWR | O_TRUNC);
    O(open, "/dev/null", O_RDONLY | O_DIRECTORY);
    O(open, "/dev/null/x", O_RDONLY);
    O(creat, "made", 0600);
    O(creat, "made", 0600);
    O(creat, "dir", 0600);
    EACH_WRONG(p, if (i_ != 0 && i_ != 6) O(creat, p, 0600));
    T(unlink, "new");
    T(unlink, "made");
    /* A descriptor with O_PATH names a file, but cannot be opened through it. */
    T(openat, FD(PATH), "", O_RDONLY);
    /* The content is truncated only if the file can be written. */
    long fd = make("short", "0123456789");
    T(ftruncate, fd, 3);
    T(lseek, fd, 0, 2);
    SYS(close, fd);
    fd = SYS(open, "short", O_RDONLY);
    long writer = SYS(open, "short", O_WRONLY | O_TRUNC);
    T(write, writer, "new", 3);
    T(read, fd, out.bytes, 10);
    T(unlink, "short");
    T(write, writer, "more", 4);
    T(pread64, fd, out.bytes, 10, 0);
    T(open, "short", O_RDONLY);
    SYS(close, fd);
    SYS(close, writer);
}

static void making(void) {
    EACH_WRONG(p, if (i_ != 0) { T(mkdir, p, 0755); T(mkdirat, FD(DIR), p, 0755); });
    T(rmdir, "dir/dangling");
    T(rmdir, "dir/loop");
    T(mkdir, "dir", 0755);
    T(mkdir, "link", 0755);
    T(mkdir, ".", 0755);
    T(mkdir, "..", 0755);
    T(mkdir, "/", 0755);
    T(mkdir, "a", 0700);
    T(mkdir, "a/b/", 0700);
    T(mkdirat, FD(DIR), "x", 0777);
    T(mkdirat, FD(RD), "x", 0777);
    T(mkdirat, 90, "x", 0777);
    T(mkdirat, FD(DIR), "x", 0777);
    EACH_WRONG(p, T(rmdir, p); T(unlink, p); T(unlinkat, FD(DIR), p, 0); T(unlinkat, FD(DIR), p, AT_REMOVEDIR));
    T(symlink, "loop", "loop");
    T(symlink, "nowhere", "dangling");
    T(rmdir, "a");
    T(rmdir, "a/b/.");
    T(rmdir, "a/b/..");
    T(rmdir, ".");
    T(rmdir, "file");
    T(rmdir, "link");
    T(rmdir, "to-dir");
    T(unlink, "a");
    T(unlink, "a/");
    T(rmdir, "a/b/");
    T(rmdir, "a");
    T(unlinkat, FD(DIR), "x", 0);
    T(unlinkat, FD(DIR), "x", AT_REMOVEDIR);
    T(unlinkat, FD(DIR), "inside", -1);
    T(unlinkat, FD(DIR), "inside", 1);
    T(unlinkat, FD(RD), "inside", 0);
    T(unlinkat, 90, "inside", 0);
    /* An open directory stays usable. */
    SYS(mkdir, "gone", 0755);
    long fd = SYS(open, "gone", O_RDONLY);
    T(rmdir, "gone");
    T(openat, fd, "x", O_RDWR | O_CREAT, 0600);
    T(mkdirat, fd, "x", 0700);
    T(openat, fd, "..", O_RDONLY);
    SYS(close, 16);
    SYS(close, fd);
    SYS(close_range, 15, 30, 0);
}

static void linking(void) {
    EACH_WRONG(p, if (i_ != 6 && i_ != 5) { T(link, p, "to"); T(linkat, AT_FDCWD, p, AT_FDCWD, "to", 0); });
    EACH_WRONG(p, if (i_ != 0 && i_ != 6) { T(link, "file", p); T(symlink, "file", p); T(symlinkat, "file", FD(DIR), p); });
    T(unlink, "dir/loop");
    T(link, "file", "hard");
    T(link, "file", "hard");
    T(link, "dir", "hard-dir");
    T(link, "link", "soft");
    T(readlink, "soft", out.bytes, 20);
    T(unlink, "soft");
    T(linkat, AT_FDCWD, "link", AT_FDCWD, "soft", AT_SYMLINK_FOLLOW);
    T(readlink, "soft", out.bytes, 20);
    T(unlink, "soft");
    T(linkat, AT_FDCWD, "file", AT_FDCWD, "soft", -1);
    T(linkat, AT_FDCWD, "file", AT_FDCWD, "soft", 1);
    T(linkat, 90, "file", AT_FDCWD, "soft", 0);
    T(linkat, AT_FDCWD, "file", 90, "soft", 0);
    T(linkat, AT_FDCWD, "file", FD(DIR), "soft", 0);
    T(unlinkat, FD(DIR), "soft", 0);
    long fd = SYS(open, "hard", O_RDWR);
    SYS(pwrite64, fd, "XY", 2, 2);
    T(pread64, FD(RD), out.bytes, 8, 0);
    SYS(pwrite64, fd, "23", 2, 2);
    SYS(close, fd);
    T(unlink, "hard");
    EACH_WRONG(p, if (i_ != 3) T(symlink, p, i_ == 8 ? "too-long" : "sym"); SYS(unlink, "sym"));
    T(symlink, "", "sym");
    T(symlink, "file", "link");
    T(symlinkat, "x", 90, "sym");
    T(symlinkat, "x", FD(RD), "sym");
    EACH_WRONG(p, T(readlink, p, out.bytes, 20); T(readlinkat, AT_FDCWD, p, out.bytes, 20));
    T(readlink, "file", out.bytes, 20);
    T(readlink, "dir", out.bytes, 20);
    T(readlink, "link", out.bytes, 20);
    T(readlink, "link", out.bytes, 2);
    T(readlink, "link", out.bytes, 0);
    T(readlink, "link", out.bytes, -1);
    T(readlinkat, FD(DIR), "../link", out.bytes, 20);
    T(readlinkat, 90, "link", out.bytes, 20);
    T(readlinkat, FD(RD), "link", out.bytes, 20);
    T(readlinkat, FD(RD), "", out.bytes, 20);
    fd = SYS(open, "link", O_PATH_ | O_NOFOLLOW);
    T(readlinkat, fd, "", out.bytes, 20);
    T(read, fd, out.bytes, 20);
    SYS(close, fd);
    EACH_BAD(p, T(readlink, "link", p, 20));
}

static void renaming(void) {
    EACH_WRONG(p, if (i_ != 6 && i_ != 5) { T(rename, p, "to"); T(renameat, AT_FDCWD, p, AT_FDCWD, "to"); });
    EACH_WRONG(p, if (i_ != 0 && i_ != 6 && i_ != 5) T(rename, "file", p));
    T(rename, "file", "other");
    T(open, "file", O_RDONLY);
    T(rename, "other", "file");
    T(rename, "file", "file");
    T(rename, "file", "dir");
    T(rename, "dir", "file");
    T(rename, "dir", "dir/sub");
    T(rename, "dir/inside", "dir");
    T(rename, ".", "x");
    T(rename, "dir/..", "x");
    T(rename, "dir/.", "x");
    T(rename, "file", ".");
    T(rename, "/", "x");
    T(rename, "file", "new/");
    SYS(mkdir, "full", 0755), SYS(mkdir, "void", 0755);
    SYS(close, make("full/f", ""));
    T(rename, "void", "full");
    T(rename, "full", "void");
    T(open, "full", O_RDONLY);
    SYS(close, SYS(open, "void/f", O_RDONLY));
    T(renameat2, AT_FDCWD, "void", AT_FDCWD, "dir", 1);
    T(renameat2, AT_FDCWD, "void", AT_FDCWD, "fresh", 1);
    T(renameat2, AT_FDCWD, "fresh", AT_FDCWD, "void", 3);
    T(renameat2, AT_FDCWD, "fresh", AT_FDCWD, "void", -1);
    T(renameat2, AT_FDCWD, "fresh", AT_FDCWD, "dir", 2);
    T(open, "fresh/inside", O_RDONLY);
    SYS(close, 15);
    T(renameat2, AT_FDCWD, "dir", AT_FDCWD, "fresh", 2);
    T(renameat2, AT_FDCWD, "missing", AT_FDCWD, "void", 2);
    T(renameat, 90, "fresh", AT_FDCWD, "void");
    T(renameat, AT_FDCWD, "fresh", 90, "void");
    T(renameat, AT_FDCWD, "fresh", FD(RD), "void");
    T(renameat, AT_FDCWD, "fresh", FD(DIR), "void");
    T(rename, "dir/void/f", "f");
    T(unlink, "f");
    T(rmdir, "dir/void");
    T(rename, "link", "moved");
    T(readlink, "moved", out.bytes, 20);
    T(rename, "moved", "link");
}

static void standing(void) {
    EACH_WRONG(p, T(chdir, p));
    EACH_CLOSED(fd, T(fchdir, fd));
    T(fchdir, FD(RD));
    T(fchdir, FD(PR));
    T(fchdir, FD(NUL));
    T(fchdir, FD(PATH));
    T(chdir, "file");
    T(chdir, "link");
    T(chdir, "/dev/null");
    long here = SYS(open, ".", O_PATH_);
    T(chdir, "/");
    T(getcwd, out.bytes, 100);
    T(getcwd, out.bytes, 2);
    T(getcwd, out.bytes, 1);
    T(getcwd, out.bytes, 0);
    EACH_BAD(p, T(getcwd, p, 100));
    T(chdir, "..");
    T(getcwd, out.bytes, 100);
    T(fchdir, here);
    T(chdir, "to-dir");
    T(open, "inside", O_RDONLY);
    SYS(close, 16);
    T(fchdir, here);
    SYS(close, here);
    T(mkdir, "left", 0755);
    T(chdir, "left");
    T(rmdir, "../left");
    T(getcwd, out.bytes, 100);
    T(open, "x", O_RDWR | O_CREAT, 0600);
    T(open, ".", O_RDONLY);
    SYS(close, 15);
    T(chdir, "..");
    T(open, "file", O_RDONLY);
    SYS(close, 15);
}

static void cases(void) {
    opening();
    making();
    linking();
    renaming();
    standing();
}
