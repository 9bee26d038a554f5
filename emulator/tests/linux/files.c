/* Files and descriptors, in an empty working directory. */
#include "start.h"
#include <linux/fcntl.h>
#include <linux/stat.h>

struct stat64_ { word dev, ino, nlink; uint32_t mode, uid, gid, pad; word rdev, size, blksize,
    blocks, at, atn, mt, mtn, ct, ctn, unused[3]; };

static char buffer[70000];

static void show(const char *path) {
    struct stat64_ st;
    long r = SYS(newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW);
    print(path);
    number(" stat", r);
    if (r) return;
    number(" mode", st.mode);
    number(" links", (st.mode & S_IFMT) == S_IFDIR ? 0 : st.nlink);
    number(" size", (st.mode & S_IFMT) == S_IFDIR ? 0 : st.size);
}

static void list(const char *path) {
    long fd = SYS(open, path, O_RDONLY | O_DIRECTORY);
    char names[50][32], data[1024];
    int count = 0;
    long got;
    while ((got = SYS(getdents64, fd, data, sizeof data)) > 0)
        for (long at = 0; at < got; at += *(unsigned short *)(data + at + 16)) {
            char *name = data + at + 19;
            names[count][0] = '0' + data[at + 18];
            names[count][1] = ' ';
            memcpy(names[count] + 2, name, length(name) + 1);
            count++;
        }
    number("list ends", got);
    SYS(close, fd);
    for (int round = 0; round < count; round++)
        for (int i = 0; i + 1 < count; i++) {
            int j = 0;
            while (names[i][j] && names[i][j] == names[i + 1][j]) j++;
            if (names[i][j] > names[i + 1][j]) {
                char swap[32];
                memcpy(swap, names[i], 32);
                memcpy(names[i], names[i + 1], 32);
                memcpy(names[i + 1], swap, 32);
            }
        }
    for (int i = 0; i < count; i++) { print(names[i]); print("\n"); }
}

int run(word *stack) {
    (void)stack;
    number("umask", SYS(umask, 027));
    long fd = SYS(open, "one", O_RDWR | O_CREAT | O_EXCL, 0666);
    number("fd", fd);
    number("again", SYS(open, "one", O_RDWR | O_CREAT | O_EXCL, 0666));
    number("write", SYS(write, fd, "hello, world\n", 13));
    number("seek", SYS(lseek, fd, 7, 0));
    number("read", SYS(read, fd, buffer, 100));
    buffer[6] = 0;
    print(buffer);
    number("end", SYS(read, fd, buffer, 100));
    number("pwrite", SYS(pwrite64, fd, "W", 1, 7));
    number("pread", SYS(pread64, fd, buffer, 5, 7));
    buffer[5] = '\n'; buffer[6] = 0;
    print(buffer);
    number("seek before", SYS(lseek, fd, -1, 0));
    number("seek far", SYS(lseek, fd, 100000, 0));
    number("write far", SYS(write, fd, "x", 1));
    number("hole", SYS(pread64, fd, buffer, 4, 50000) + buffer[0]);
    show("one");
    number("truncate", SYS(ftruncate, fd, 5));
    number("where", SYS(lseek, fd, 0, 1));
    number("append", SYS(fcntl, fd, F_SETFL, O_APPEND));
    number("flags", SYS(fcntl, fd, F_GETFL) & (O_APPEND | 3));
    number("at end", SYS(write, fd, "!!", 2));
    number("where", SYS(lseek, fd, 0, 1));
    show("one");

    long second = SYS(dup, fd);
    number("dup", second);
    number("shared", SYS(lseek, second, 1, 0) + SYS(lseek, fd, 0, 1));
    number("dup2", SYS(dup2, fd, 20));
    number("dup2 self", SYS(dup2, fd, fd));
    number("dup3 self", SYS(dup3, fd, fd, 0));
    number("dup2 none", SYS(dup2, 99, 20));
    number("cloexec", SYS(fcntl, 20, F_GETFD));
    number("above", SYS(fcntl, fd, F_DUPFD_CLOEXEC, 200));
    number("cloexec", SYS(fcntl, 200, F_GETFD));
    number("close", SYS(close, 200));
    number("close", SYS(close, 200));
    number("bad read", SYS(read, 200, buffer, 1));
    number("fault", SYS(read, fd, 8, 1));
    number("fault", SYS(write, fd, 8, 1));
    number("fault", SYS(open, 8, 0));
    long readonly = SYS(open, "one", O_RDONLY);
    number("read only", SYS(write, readonly, "x", 1));
    long vectors[] = { (long)buffer, 2, (long)(buffer + 10), 3 };
    number("readv", SYS(readv, readonly, vectors, 2));
    number("got", same(buffer, "he", 2) && same(buffer + 10, "llo", 3));
    number("writev", SYS(writev, fd, vectors, 2));
    show("one");

    number("mkdir", SYS(mkdir, "dir", 0777));
    number("mkdir", SYS(mkdir, "dir", 0777));
    number("mkdir", SYS(mkdir, "none/dir", 0777));
    number("mkdir", SYS(mkdir, "one/dir", 0777));
    show("dir");
    number("rename", SYS(rename, "one", "dir/uno"));
    show("one");
    show("dir/uno");
    number("rmdir", SYS(rmdir, "dir"));
    number("unlink", SYS(unlink, "dir"));
    number("rmdir", SYS(rmdir, "dir/uno"));
    number("link", SYS(link, "dir/uno", "two"));
    show("two");
    number("symlink", SYS(symlink, "dir/../two", "soft"));
    number("symlink", SYS(symlink, "loop", "loop"));
    show("soft");
    number("readlink", SYS(readlink, "soft", buffer, 4));
    number("readlink", SYS(readlink, "two", buffer, 4));
    number("open soft", SYS(open, "soft", O_RDONLY));
    number("nofollow", SYS(open, "soft", O_RDONLY | O_NOFOLLOW));
    number("loop", SYS(open, "loop", O_RDONLY));
    number("slash", SYS(open, "two/", O_RDONLY));
    number("directory", SYS(open, "two", O_RDONLY | O_DIRECTORY));
    number("write directory", SYS(open, "dir", O_RDWR));
    number("empty", SYS(open, "", O_RDONLY));
    list(".");
    list("dir");
    number("chmod", SYS(chmod, "two", 0611));
    show("dir/uno");
    number("rename dir", SYS(rename, "dir", "moved"));
    show("moved/uno");
    show("dir/uno");
    number("into itself", SYS(rename, "moved", "moved/in"));
    long dir = SYS(open, "moved", O_RDONLY);
    number("openat", SYS(openat, dir, "../two", O_RDONLY) > 0);
    number("read dir", SYS(read, dir, buffer, 1));
    number("unlink", SYS(unlink, "two"));
    number("fchdir", SYS(fchdir, dir));
    show("uno");
    number("chdir", SYS(chdir, ".."));
    number("chdir", SYS(chdir, "soft"));
    number("unlink", SYS(unlinkat, dir, "uno", 0));
    number("still", SYS(pread64, fd, buffer, 2, 0));
    number("rmdir", SYS(rmdir, "moved"));
    number("access", SYS(access, "soft", 4));
    number("access", SYS(access, ".", 7));
    list(".");

    int ends[2];
    number("pipe", SYS(pipe2, ends, 0));
    number("write", SYS(write, ends[1], "abc", 3));
    number("read", SYS(read, ends[0], buffer, 10));
    number("seek", SYS(lseek, ends[0], 0, 0));
    number("nonblock", SYS(fcntl, ends[0], F_SETFL, O_NONBLOCK));
    number("empty", SYS(read, ends[0], buffer, 10));
    number("close", SYS(close, ends[1]));
    number("end", SYS(read, ends[0], buffer, 10));
    number("pipe", SYS(pipe2, ends, O_NONBLOCK));
    number("full", SYS(write, ends[1], buffer, sizeof buffer));
    number("full", SYS(write, ends[1], buffer, 1));
    on_signal(13, (void *)1, 0, 0);
    SYS(close, ends[0]);
    number("nobody", SYS(write, ends[1], "x", 1));

    char counter[8];
    fd = SYS(eventfd2, 3, O_NONBLOCK);
    number("eventfd", SYS(read, fd, counter, 8) + counter[0]);
    number("eventfd", SYS(read, fd, counter, 8));
    fd = SYS(open, "/dev/zero", O_RDONLY);
    buffer[9] = 1;
    number("zero", SYS(read, fd, buffer, 10) + buffer[9]);
    fd = SYS(open, "/dev/full", O_WRONLY);
    number("full", SYS(write, fd, buffer, 10));
    fd = SYS(open, "/dev/null", O_RDWR);
    number("null", SYS(write, fd, buffer, 10) + SYS(read, fd, buffer, 10));
    number("terminal", SYS(ioctl, fd, 0x5401, buffer));
    number("memfd", (fd = SYS(memfd_create, "m", 0)) > 0);
    number("memfd", SYS(write, fd, "ab", 2) + SYS(pread64, fd, buffer, 9, 1));
    struct { int fd; short events, got; } polled[] = { { fd, 1, 0 }, { 77, 1, 0 }, { -1, 1, 0 } };
    number("poll", SYS(poll, polled, 3, 0));
    number("poll", polled[0].got + 1000 * polled[1].got + polled[2].got);
    return 7;
}
