/* Makes one call of the C library on a file fail, for tests/cli/faults.rs (LD_PRELOAD).
 *
 * Calls on files below FAULT_BELOW, and writes to standard output, are counted from
 * 1 in the order in which they happen. FAULT_LOG gets a line for each: its function and its path.
 * Call number FAULT_AT fails once with FAULT_ERRNO. With FAULT_SHORT all reads and writes among
 * them transfer one byte. Only the program FAULT_PROGRAM is meant, not its child processes. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 1024
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static char below[PATH_MAX];
static int log_fd = -1, fail_errno, is_short;
static long fail_at, count;
static char fd_path[FDS][256];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner;

static void copy(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from ? from : "");
}

__attribute__((constructor)) static void start(void) {
    /* `timeout`, which starts the program, is left alone. */
    const char *name = getenv("FAULT_PROGRAM");
    if (name && strcmp(name, program_invocation_short_name))
        return;
    owner = getpid();
    copy(below, sizeof below, getenv("FAULT_BELOW"));
    copy(fd_path[1], sizeof fd_path[1], "<stdout>");
    fail_at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
    fail_errno = getenv("FAULT_ERRNO") ? atoi(getenv("FAULT_ERRNO")) : 0;
    is_short = getenv("FAULT_SHORT") != NULL;
    if (getenv("FAULT_LOG"))
        log_fd = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_LOG"),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unsetenv("LD_PRELOAD");
}

static int is_ours(const char *path) {
    if (!path || getpid() != owner)
        return 0;
    if (path[0] == '<' || (path[0] != '/' && path[0] != 0))
        return 1;
    return below[0] && !strncmp(path, below, strlen(below));
}

/* Whether the call is to fail. */
static int fails(const char *name, const char *path) {
    char line[PATH_MAX + 64];
    int is_due, saved = errno;
    if (!is_ours(path))
        return 0;
    pthread_mutex_lock(&lock);
    is_due = ++count == fail_at;
    if (log_fd >= 0) {
        int size = snprintf(line, sizeof line, "%s %s\n", name, path);
        syscall(SYS_write, log_fd, line, size < (int)sizeof line ? size : (int)sizeof line);
    }
    pthread_mutex_unlock(&lock);
    errno = is_due && fail_errno ? fail_errno : saved;
    return is_due && fail_errno;
}

static const char *of_fd(int fd) {
    return fd >= 0 && fd < FDS && fd_path[fd][0] ? fd_path[fd] : NULL;
}

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < FDS)
        copy(fd_path[fd], sizeof fd_path[fd], is_ours(path) ? path : NULL);
    return fd;
}

static size_t some(int fd, size_t size) {
    return is_short && of_fd(fd) && is_ours(of_fd(fd)) && size > 1 ? 1 : size;
}

#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list all;                                                                               \
        va_start(all, flags);                                                                      \
        mode = va_arg(all, mode_t);                                                                \
        va_end(all);                                                                               \
    }

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return fails("open", path) ? -1 : opened(NEXT(open64)(path, flags, mode), path);
}
int open(const char *path, int flags, ...) {
    MODE(flags)
    return fails("open", path) ? -1 : opened(NEXT(open)(path, flags, mode), path);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return fails("openat", path) ? -1 : opened(NEXT(openat64)(at, path, flags, mode), path);
}
int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return fails("openat", path) ? -1 : opened(NEXT(openat)(at, path, flags, mode), path);
}
int close(int fd) {
    int is_failing = of_fd(fd) && fd > 2 && fails("close", of_fd(fd)), result, wanted = errno;
    if (fd > 2 && fd < FDS)
        fd_path[fd][0] = 0;
    /* As Linux does it, the descriptor is closed in any case. */
    result = NEXT(close)(fd);
    if (is_failing)
        errno = wanted;
    return is_failing ? -1 : result;
}

#define ON_FD(result, name, label, params, ...)                                                    \
    result name params {                                                                           \
        return of_fd(fd) && fails(label, of_fd(fd)) ? (result)-1 : NEXT(name)(__VA_ARGS__);        \
    }
ON_FD(ssize_t, read, "read", (int fd, void *to, size_t size), fd, to, some(fd, size))
ON_FD(ssize_t, write, "write", (int fd, const void *from, size_t size), fd, from, some(fd, size))
ON_FD(ssize_t, pread64, "pread", (int fd, void *to, size_t size, off64_t at), fd, to,
      some(fd, size), at)
ON_FD(ssize_t, pwrite64, "pwrite", (int fd, const void *from, size_t size, off64_t at), fd, from,
      some(fd, size), at)
ON_FD(int, fstat64, "fstat", (int fd, struct stat64 *to), fd, to)
ON_FD(int, ftruncate64, "ftruncate", (int fd, off64_t size), fd, size)
ON_FD(int, fsync, "fsync", (int fd), fd)
ON_FD(int, fdatasync, "fdatasync", (int fd), fd)
ON_FD(int, fchmod, "fchmod", (int fd, mode_t mode), fd, mode)
ON_FD(off64_t, lseek64, "lseek", (int fd, off64_t at, int from), fd, at, from)

static int shorter(int fd, const struct iovec *all, int count, struct iovec *one) {
    int index;
    if (!is_short || !of_fd(fd))
        return 0;
    for (index = 0; index < count; index++)
        if (all[index].iov_len) {
            *one = all[index];
            one->iov_len = 1;
            return 1;
        }
    return 0;
}
ssize_t writev(int fd, const struct iovec *all, int count) {
    struct iovec one;
    if (of_fd(fd) && fails("writev", of_fd(fd)))
        return -1;
    return shorter(fd, all, count, &one) ? NEXT(writev)(fd, &one, 1) : NEXT(writev)(fd, all, count);
}
ssize_t readv(int fd, const struct iovec *all, int count) {
    struct iovec one;
    if (of_fd(fd) && fails("readv", of_fd(fd)))
        return -1;
    return shorter(fd, all, count, &one) ? NEXT(readv)(fd, &one, 1) : NEXT(readv)(fd, all, count);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    if (of_fd(in) && fails("copy_file_range", of_fd(in)))
        return -1;
    return NEXT(copy_file_range)(in, from, out, to, some(in, size), flags);
}
void *mmap64(void *at, size_t size, int access, int flags, int fd, off64_t from) {
    if (of_fd(fd) && fails("mmap", of_fd(fd)))
        return MAP_FAILED;
    return NEXT(mmap64)(at, size, access, flags, fd, from);
}
void *mmap(void *at, size_t size, int access, int flags, int fd, off_t from) {
    if (of_fd(fd) && fails("mmap", of_fd(fd)))
        return MAP_FAILED;
    return NEXT(mmap)(at, size, access, flags, fd, from);
}

#define ON_PATH(result, failure, name, label, params, ...)                                         \
    result name params {                                                                           \
        return fails(label, path) ? failure : NEXT(name)(__VA_ARGS__);                             \
    }
ON_PATH(int, -1, stat64, "stat", (const char *path, struct stat64 *to), path, to)
ON_PATH(int, -1, lstat64, "lstat", (const char *path, struct stat64 *to), path, to)
ON_PATH(int, -1, unlink, "unlink", (const char *path), path)
ON_PATH(int, -1, rmdir, "rmdir", (const char *path), path)
ON_PATH(int, -1, mkdir, "mkdir", (const char *path, mode_t mode), path, mode)
ON_PATH(int, -1, chmod, "chmod", (const char *path, mode_t mode), path, mode)
ON_PATH(int, -1, rename, "rename", (const char *path, const char *to), path, to)
ON_PATH(DIR *, NULL, opendir, "opendir", (const char *path), path)
ON_PATH(ssize_t, -1, readlink, "readlink", (const char *path, char *to, size_t size), path, to,
        size)
ON_PATH(char *, NULL, realpath, "realpath", (const char *path, char *to), path, to)
ON_PATH(int, -1, unlinkat, "unlinkat", (int at, const char *path, int flags), at, path, flags)
ON_PATH(int, -1, linkat, "linkat", (int at, const char *path, int to_at, const char *to, int flags),
        at, path, to_at, to, flags)

int statx(int at, const char *path, int flags, unsigned mask, struct statx *to) {
    /* Rust asks with a null pointer whether there is this call; a compiler thinks that nobody does. */
    const char *volatile given = path, *named = given && given[0] ? given : of_fd(at);
    return fails("statx", named) ? -1 : NEXT(statx)(at, path, flags, mask, to);
}
struct dirent64 *readdir64(DIR *all) {
    return of_fd(dirfd(all)) && fails("readdir", of_fd(dirfd(all))) ? NULL : NEXT(readdir64)(all);
}
