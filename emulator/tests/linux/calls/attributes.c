/* Attributes of files, and changes of them. */
#include "cases.h"
#define O_PATH_ 010000000
#define STATX_BASIC 0x7ff

static void stating(void) {
    EACH_WRONG(p, T(stat, p, out.bytes); T(newfstatat, AT_FDCWD, p, out.bytes, 0);
               T(newfstatat, FD(DIR), p, out.bytes, 0));
    EACH_WRONG(p, if (i_ != 5 && i_ != 6) T(lstat, p, out.bytes));
    EACH_WRONG(p, T(statx, AT_FDCWD, p, 0, STATX_BASIC, out.bytes); T(access, p, 0); T(faccessat, AT_FDCWD, p, 0));
    HIDE(STAT_FILE); T(stat, "file", out.bytes);
    HIDE(STAT_FILE); T(stat, "link", out.bytes);
    HIDE(STAT_FILE); T(lstat, "link", out.bytes);
    HIDE(STAT); T(stat, "dir", out.bytes);
    HIDE(STAT); T(stat, "to-dir", out.bytes);
    HIDE(STAT_FILE); T(newfstatat, FD(DIR), "inside", out.bytes, 0);
    HIDE(STAT_FILE); T(newfstatat, FD(RD), "", out.bytes, AT_EMPTY_PATH);
    HIDE(STAT); T(newfstatat, AT_FDCWD, "", out.bytes, AT_EMPTY_PATH);
    HIDE(STAT_FILE); T(newfstatat, AT_FDCWD, "link", out.bytes, AT_SYMLINK_NOFOLLOW);
    T(newfstatat, FD(RD), "inside", out.bytes, 0);
    T(newfstatat, 90, "inside", out.bytes, 0);
    T(newfstatat, AT_FDCWD, "file", out.bytes, 1 << 30);
    T(newfstatat, AT_FDCWD, "file", out.bytes, 1);
    HIDE(STAT_FILE); T(fstat, FD(RD), out.bytes);
    HIDE(STAT_FILE); T(fstat, FD(PATH), out.bytes);
    HIDE(STAT); T(fstat, FD(DIR), out.bytes);
    HIDE(STAT_PIPE); T(fstat, FD(PR), out.bytes);
    EACH_CLOSED(fd, T(fstat, fd, out.bytes); T(newfstatat, fd, "", out.bytes, AT_EMPTY_PATH));
    EACH_BAD(p, T(stat, "file", p); T(lstat, "file", p); T(fstat, FD(RD), p); T(newfstatat, AT_FDCWD, "file", p, 0);
             T(statx, AT_FDCWD, "file", 0, STATX_BASIC, p));
    T(stat, "file", ro);
    T(stat, "file", edge);
    HIDE(STATX); T(statx, AT_FDCWD, "file", 0, STATX_BASIC, out.bytes);
    HIDE(STATX); T(statx, AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_BASIC, out.bytes);
    HIDE(STATX); T(statx, FD(RD), "", AT_EMPTY_PATH, STATX_BASIC, out.bytes);
    HIDE(STATX); T(statx, FD(DIR), "inside", 0x2000, STATX_BASIC, out.bytes);
    T(statx, AT_FDCWD, "file", 0x6000, STATX_BASIC, out.bytes);
    T(statx, AT_FDCWD, "file", -1, STATX_BASIC, out.bytes);
    T(statx, AT_FDCWD, "file", 0, 1u << 31, out.bytes);
    T(statx, 90, "file", 0, STATX_BASIC, out.bytes);
    HIDE(STATFS); T(statfs, "file", out.bytes);
    HIDE(STATFS); T(fstatfs, FD(RD), out.bytes);
    HIDE(STATFS); T(fstatfs, FD(PR), out.bytes);
    HIDE(STATFS); T(fstatfs, FD(PATH), out.bytes);
    EACH_WRONG(p, T(statfs, p, out.bytes));
    EACH_CLOSED(fd, T(fstatfs, fd, out.bytes));
    EACH_BAD(p, T(statfs, "file", p); T(fstatfs, FD(RD), p));
}

/* Whether st_dev is the same. */
static long same_device(const char *a, const char *b) {
    word one[18], other[18];
    if (SYS(lstat, a, one) || SYS(lstat, b, other)) return -1;
    return one[0] == other[0];
}
static long inode(const char *path) {
    word one[18];
    return SYS(lstat, path, one) ? -1 : (long)one[1];
}
static void numbering(void) {
    V(same_device(".", "dir"));
    SYS(mkdir, "dir/new", 0755);
    V(same_device(".", "dir/new"));
    V(same_device("file", "dir/new"));
    V(same_device("link", "file"));
    V(same_device(".", "/dev/null"));
    V(inode("file") == inode("dir/inside"));
    V(inode("dir") == inode("dir/."));
    long before = inode("file");
    SYS(rename, "file", "renamed");
    V(inode("renamed") == before);
    SYS(rename, "renamed", "file");
    SYS(link, "file", "hard");
    V(inode("hard") == before);
    HIDE(STAT_FILE); T(stat, "hard", out.bytes);
    SYS(unlink, "hard");
    SYS(chmod, "file", 0644);
    V(inode("file") == before);
    SYS(rmdir, "dir/new");
    /* The times of new files are those of the clock. */
    word now[2], st[18];
    SYS(close, make("stamped", "x"));
    SYS(clock_gettime, 0, now);
    SYS(stat, "stamped", st);
    V((long)(st[11] - now[0]) <= 1 && (long)(now[0] - st[11]) <= 3600);
    SYS(stat, "/", st);
    V(st[11] <= now[0] + 1);
    SYS(unlink, "stamped");
}

static void listing(void) {

    long list = SYS(open, "dir", O_RDONLY);
    static unsigned char names_of[400];
    EACH_FD(fd, if (fd != FD(DIR)) T(getdents64, fd, out.bytes, 400));
    T(getdents64, list, out.bytes, 0);
    T(getdents64, list, out.bytes, 5);
    /* The first entry is `.`, or the buffer is too small. */
    EACH_BAD(p, T(getdents64, list, p, 400));
    long got = SYS(getdents64, list, names_of, 400), names = 0;
    V(got);
    for (long at = 0; at < got; at += *(unsigned short *)(names_of + at + 16)) names++;
    V(names);
    T(getdents64, list, out.bytes, 400);
    SYS(lseek, list, 0, 0);
    got = SYS(getdents64, list, names_of, 400);
    V(got);
    SYS(close, list);
    /* The open descriptors, including the one being read. */
    list = SYS(open, "/proc/self/fd", O_RDONLY | O_DIRECTORY);
    V(list);
    int found = 0, count = 0;
    while ((got = SYS(getdents64, list, names_of, 400)) > 0)
        for (long at = 0; at < got; at += *(unsigned short *)(names_of + at + 16)) {
            char *name = (char *)names_of + at + 19;
            found |= name[0] == '1' && name[1] == '0' + list % 10 && !name[2];
            count++;
        }
    V(got); V(found); V(count);
    SYS(close, list);
    /* A file is opened again through its descriptor. */
    SYS(lseek, FD(RD), 5, 0);
    V(FD(RD));
    long again = SYS(open, "/proc/self/fd/3", O_RDONLY);
    V(again);
    T(read, again, out.bytes, 4); T(lseek, FD(RD), 0, 1);
    SYS(close, again);
    T(open, "/proc/self/fd/77", O_RDONLY);
    /* The ends of a pipe are one file, and two pipes are two. */
    int ends[2];
    word first[18], second[18], other[18];
    SYS(pipe, ends);
    SYS(fstat, FD(PR), first); SYS(fstat, FD(PW), second); SYS(fstat, ends[0], other);
    V(first[1] == second[1]); V(first[1] == other[1]);
    SYS(close, ends[0]); SYS(close, ends[1]);
    /* A pipe has no other name than this. */
    V(FD(PR));
    HIDE(STAT_PIPE); T(stat, "/proc/self/fd/9", out.bytes);
    HIDE(STAT_PIPE); T(stat, "/dev/fd/9", out.bytes);
    T(stat, "/dev/fd/9/x", out.bytes);
    T(access, "/dev/fd/9", 4);
    T(chdir, "/dev/fd/9");
    T(unlink, "/dev/fd/9/x");
    T(fchmod, FD(PR), 0640); HIDE(STAT_PIPE); T(fstat, FD(PW), out.bytes);
    T(fchmod, FD(PR), 0600);
    SYS(socketpair, 1, 1, 0, ends);
    T(fchmod, ends[0], 0640);
    SYS(fstat, ends[0], first); SYS(fstat, ends[1], other);
    V(((unsigned *)first)[6]); V(((unsigned *)other)[6]);
    SYS(close, ends[0]); SYS(close, ends[1]);
    T(fchown, FD(PR), -1, -1);
    T(chmod, "/dev/fd/9", 0600);
    T(truncate, "/dev/fd/9", 3);
    again = SYS(open, "/dev/fd/9", O_RDONLY | O_NONBLOCK);
    T(lseek, again, 0, 1);
    SYS(close, again);
    T(open, "/proc/self/fd/x", O_RDONLY);
}

static void accessing(void) {
    for (int mode = 0; mode < 8; mode++) { T(access, "dir", mode); }
    T(access, "file", 4);
    T(access, "file", 8);
    T(access, "file", -1);
    T(access, "link", 0);
    T(faccessat, FD(DIR), "inside", 0);
    T(faccessat, 90, "inside", 0);
    T(faccessat, FD(RD), "inside", 0);
    T(faccessat2, AT_FDCWD, "file", 0, -1);
    T(faccessat2, AT_FDCWD, "file", 0, 1);
    T(faccessat2, AT_FDCWD, "file", 4, 0x200);
    T(faccessat2, AT_FDCWD, "dangling", 0, AT_SYMLINK_NOFOLLOW);
    T(faccessat2, FD(RD), "", 0, AT_EMPTY_PATH);
    T(faccessat2, FD(RD), "", 0, 0);
    T(faccessat2, 90, "", 0, AT_EMPTY_PATH);
}

#define MODE(path) do { HIDE(STAT_FILE); T(stat, path, out.bytes); } while (0)
static void changing(void) {
    EACH_WRONG(p, T(chmod, p, 0600); T(fchmodat, AT_FDCWD, p, 0600); T(truncate, p, 3));
    EACH_WRONG(p, T(chown, p, -1, -1); T(fchownat, AT_FDCWD, p, -1, -1, 0));
    EACH_WRONG(p, if (i_ != 5 && i_ != 6) T(lchown, p, -1, -1));
    EACH_WRONG(p, if (p) T(utimensat, AT_FDCWD, p, 0, 0));
    T(chmod, "file", 0600); MODE("file");
    T(chmod, "file", 0xfffff000 | 0644); MODE("file");
    T(chmod, "link", 0640); MODE("file");
    T(fchmodat, FD(DIR), "inside", 0444); MODE("dir/inside");
    T(fchmodat, 90, "inside", 0444);
    T(fchmodat, FD(RD), "inside", 0444);
    T(chmod, "dir", 0700);
    T(chmod, "dir", 0755);
    T(fchmod, FD(RD), 0644); MODE("file");
    EACH_CLOSED(fd, T(fchmod, fd, 0600); T(fchown, fd, -1, -1); T(fchownat, fd, "", -1, -1, AT_EMPTY_PATH));
    T(fchmod, FD(PATH), 0600);
    T(fchown, FD(PATH), -1, -1);
    T(fchown, FD(RD), -1, -1);
    T(chown, "link", -1, -1);
    T(lchown, "link", -1, -1);
    T(fchownat, FD(DIR), "inside", -1, -1, 0);
    T(fchownat, FD(DIR), "inside", -1, -1, -1);
    T(fchownat, 90, "inside", -1, -1, 0);
    T(fchownat, FD(RD), "", -1, -1, AT_EMPTY_PATH);
    T(truncate, "file", 4); MODE("file");
    T(truncate, "file", -1);
    T(truncate, "file", 1ul << 63);
    T(truncate, "dir", 4);
    T(truncate, "link", 20);
    T(pread64, FD(RD), out.bytes, 40, 0);
    long times[4] = { 100, 5, 200, 999999999 };
    T(utimensat, AT_FDCWD, "file", times, 0);
    word st[18];
    SYS(stat, "file", st);
    V(st[9]); V(st[11]);
    times[0] = 300, times[3] = 0x3ffffffe;
    T(utimensat, AT_FDCWD, "link", times, 0);
    SYS(stat, "file", st);
    V(st[9]); V(st[11]);
    T(utimensat, FD(RD), 0, times, 0);
    T(utimensat, FD(RW), 0, 0, 0);
    T(utimensat, FD(PR), 0, 0, 0);
    T(utimensat, FD(RD), "", times, AT_EMPTY_PATH);
    T(utimensat, AT_FDCWD, "link", times, AT_SYMLINK_NOFOLLOW);
    T(utimensat, AT_FDCWD, "file", times, -1);
    T(utimensat, AT_FDCWD, "file", times, 1);
    T(utimensat, AT_FDCWD, 0, times, 0);
    T(utimensat, 90, "file", times, 0);
    T(utimensat, FD(RD), 0, times, AT_SYMLINK_NOFOLLOW);
    times[1] = 1000000000;
    T(utimensat, AT_FDCWD, "file", times, 0);
    times[1] = -1;
    T(utimensat, AT_FDCWD, "file", times, 0);
    EACH_BAD_BUT_NULL(p, T(utimensat, AT_FDCWD, "file", p, 0));
}

/* The attributes depend on the file system: only what is checked before it is called. */
static void extended(void) {
    EACH_WRONG(p, T(getxattr, p, "user.x", out.bytes, 10); T(listxattr, p, out.bytes, 10);
               T(setxattr, p, "user.x", "v", 1, 0); T(removexattr, p, "user.x"));
    EACH_WRONG(p, if (i_ != 5 && i_ != 6) { T(lgetxattr, p, "user.x", out.bytes, 10); T(llistxattr, p, out.bytes, 10);
               T(lsetxattr, p, "user.x", "v", 1, 0); T(lremovexattr, p, "user.x"); });
    EACH_CLOSED(fd, T(fgetxattr, fd, "user.x", out.bytes, 10); T(flistxattr, fd, out.bytes, 10);
                T(fsetxattr, fd, "user.x", "v", 1, 0); T(fremovexattr, fd, "user.x"));
    T(fgetxattr, FD(PATH), "user.x", out.bytes, 10);
    T(flistxattr, FD(PATH), out.bytes, 10);
    T(fsetxattr, FD(PATH), "user.x", "v", 1, 0);
    T(fremovexattr, FD(PATH), "user.x");
    EACH_BAD(p, T(getxattr, "file", p, out.bytes, 10); T(setxattr, "file", p, "v", 1, 0); T(removexattr, "file", p));
    T(getxattr, "file", "", out.bytes, 10);
    T(getxattr, "file", long_name, out.bytes, 10);
    T(setxattr, "file", "", "v", 1, 0);
    T(setxattr, "file", "user.x", "v", 1, 4);
    T(setxattr, "file", "user.x", "v", 65537, 0);
    T(setxattr, "file", "user.x", ro + 8192 * 0, -1, 0);
    T(removexattr, "file", "");
    T(getxattr, "file", "nowhere.x", out.bytes, 10);
    T(setxattr, "file", "nowhere.x", "v", 1, 0);
    T(removexattr, "file", "nowhere.x");
}

static void cases(void) {
    stating();
    numbering();
    listing();
    accessing();
    changing();
    extended();
}
