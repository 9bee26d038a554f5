/* Attempts of a program to reach beyond the machine: files, links, mappings, processes, sockets,
 * devices, the kernel. Each answer is checked here; that nothing outside changed, by the test.
 * Run it only in the machine: natively some attempts do harm. */
#include "attempts.h"

/* The files of the box, within what the program may do. */
static void files(void) {
    const char *v;
    T("create", put("new", CREAT | RW), r == 4);
    T("truncate on open", put(fresh(), TRUNC | RW), r == 4);
    T("append", put(fresh(), APPEND | RW), r == 4);
    T("unlink", SYS(unlink, fresh()), r == 0);
    T("rename", SYS(rename, fresh(), "renamed"), r == 0);
    v = fresh();
    T("exchange", SYS(renameat2, CWD, v, CWD, fresh(), 2), r == 0);
    v = fresh();
    T("hard link", SYS(link, v, "hard"), r == 0);
    T("write through it", put("hard", RW), r == 4);
    v = fresh();
    T("symbolic link", SYS(symlink, JOIN(box, JOIN("/", v)), "soft"), r == 0);
    T("write through it", put("soft", RW), r == 4);
    word how[3] = { RW, 0, 0 };
    T("openat2", SYS(openat2, CWD, fresh(), how, 24), r >= 0 || r == -ENOSYS);
    T("shared mapping", ({
        long f = SYS(open, fresh(), RW), at = SYS(mmap, 0, 4096, 3, 1, f, 0);
        if (at > 0) { memcpy((void *)at, "EVIL", 4); SYS(msync, at, 4096, 4); SYS(munmap, at, 4096); }
        at < 0 ? at : 0; }), r <= 0);
    T("shared mapping made writable", ({
        long f = SYS(open, fresh(), 0), at = SYS(mmap, 0, 4096, 1, 1, f, 0);
        SYS(mprotect, at, 4096, 3); }), r == -EACCES);
    T("private mapping of a file", ({
        long f = SYS(open, fresh(), 0), at = SYS(mmap, 0, 4096, 3, 2, f, 0);
        if (at > 0) memcpy((void *)at, "EVIL", 4);
        at < 0 ? at : 0; }), r == 0);
    T("truncate", SYS(truncate, fresh(), 0), r == 0);
    T("ftruncate", SYS(ftruncate, SYS(open, fresh(), RW), 1), r == 0);
    T("fallocate", SYS(fallocate, SYS(open, fresh(), RW), 0, 0, 100), r == 0 || r == -EOPNOTSUPP);
    T("punch a hole", SYS(fallocate, SYS(open, fresh(), RW), 3, 0, 4), r <= 0);
    T("chmod", SYS(chmod, fresh(), 0777), r == 0);
    T("fchmod of what is only read", SYS(fchmod, SYS(open, fresh(), 0), 0777), r == 0);
    T("chown", SYS(chown, fresh(), 1, 1), r == -EPERM || r == 0);
    T("lchown of a link out", SYS(lchown, "out", 1, 1), r == -EPERM || r == 0);
    T("set-user-ID", SYS(chmod, fresh(), 04755), r == 0);
    T("set-group-ID", SYS(chmod, fresh(), 02755), r == 0);
    T("both on a folder", SYS(chmod, "sub", 06755), r == 0);
    T("a new file with set-user-ID", SYS(openat, CWD, "new-set-id", CREAT | RW, 06777), r >= 0);
    T("a new file with them, by creat", SYS(creat, "new-set-ids", 06777), r >= 0);
    T("a FIFO with them", SYS(mknod, "fifo-set-id", 016777, 0), r == 0);
    T("a FIFO given them", SYS(chmod, "fifo-set-id", 06777), r == 0);
    T("a FIFO of its own", ({
        long f = SYS(open, "fifo-set-id", RW);
        SYS(write, f, "EVIL", 4); }), r == 4);
    T("a node with them", SYS(mknod, "node-set-id", 0106777, 0), r == 0);
    T("a new folder with them", SYS(mkdir, "folder-set-id", 06777), r == 0);
    T("times", SYS(utimensat, CWD, fresh(), 0, 0), r == 0);
    T("extended attribute", SYS(setxattr, fresh(), "user.x", "y", 1, 0), r == -EOPNOTSUPP);
    T("trusted attribute", SYS(setxattr, fresh(), "security.capability", "y", 1, 0), REFUSED);
    T("folder", SYS(mkdir, "folder", 0777), r == 0);
    T("remove a folder", SYS(rmdir, "empty"), r == 0);
    T("FIFO", SYS(mknod, "pipe", 010666, 0), r == 0 || r == -ENOSYS);
    T("block device", SYS(mknod, "block", 060666, 254 << 8), REFUSED);
    T("character device", SYS(mknod, "mem", 020666, 1 << 8 | 1), REFUSED);
    T("unnamed file", ({
        long f = SYS(open, ".", 020200000 | RW, 0666);
        f < 0 ? f : SYS(linkat, CWD, JOIN("/proc/self/fd/", decimal(f)), CWD, "named", 0x400); }),
      r == 0 || REFUSED);
    T("copy_file_range", ({
        long a = SYS(open, fresh(), 0), b = SYS(open, fresh(), RW);
        SYS(copy_file_range, a, 0, b, 0, 4, 0); }), r == 4 || r == -ENOSYS);
    T("sendfile", ({
        long a = SYS(open, fresh(), 0), b = SYS(open, fresh(), RW);
        SYS(sendfile, b, a, 0, 4); }), r == 4);
    T("splice", ({
        int p[2]; SYS(pipe, p); SYS(write, p[1], "EVIL", 4);
        SYS(splice, p[0], 0, SYS(open, fresh(), RW), 0, 4, 0); }), r == 4);
    T("reflink", ({
        long a = SYS(open, fresh(), 0), b = SYS(open, fresh(), RW);
        SYS(ioctl, b, 0x40049409, a); }), REFUSED);
    T("immutable", ({ int flags = 16; SYS(ioctl, SYS(open, fresh(), 0), 0x40086602, &flags); }), REFUSED);
    T("lease", SYS(fcntl, SYS(open, fresh(), RW), 1024, 1), r == 0 || REFUSED);
    T("flock", SYS(flock, SYS(open, fresh(), RW), 2), r == 0 || REFUSED);
    T("a file by its handle", ({
        struct { unsigned size; int type; char bytes[128]; } handle = { 128 };
        int mount;
        long f = SYS(name_to_handle_at, CWD, fresh(), &handle, &mount, 0);
        f < 0 ? f : SYS(open_by_handle_at, CWD, &handle, RW); }), REFUSED);
}

/* Odd names, and more bytes or folders than there is room for. */
static void sizes(void) {
    T("a name with odd bytes", put("\x01\n\\\xff\xfe%s$(x)", CREAT | RW), r == 4);
    T("a name of newlines", put("\n\n\n", CREAT | RW), r == 4);
    T("a name like an escape sequence", put("\x1b[2J", CREAT | RW), r == 4);
    T("a name like an option", put("--", CREAT | RW), r == 4);
    T("a name that is too long", ({
        static char name[300]; memset(name, 'n', 299); put(name, CREAT | RW); }), r == -ENAMETOOLONG);
    T("a path that is too long", ({
        static char path[5000]; for (int i = 0; i < 4998; i += 2) memcpy(path + i, "./", 2);
        put(path, CREAT | RW); }), r == -ENAMETOOLONG);
    T("a path at an address of the kernel", SYS(open, 0xffffffff81000000ul, 0), r == -EFAULT);
    T("a path without an end", ({
        long at = SYS(mmap, 0, 4096, 3, 0x22, -1, 0);
        memset((void *)at, 'x', 4096);
        SYS(munmap, at + 4096, 4096);
        SYS(open, at, 0); }), r == -EFAULT || r == -ENAMETOOLONG);
    T("a huge file", ({
        long f = SYS(openat, CWD, "/dev/shm/huge", CREAT | RW, 0666);
        SYS(ftruncate, f, 1l << 50); }), r == -ENOSPC || r == -EFBIG || r == 0);
    T("a byte far away", ({
        long f = SYS(openat, CWD, "/dev/shm/far", CREAT | RW, 0666);
        SYS(pwrite64, f, "x", 1, 1l << 55); }), r == -ENOSPC || r == -EFBIG);
    T("a huge size on the command", ({
        long f = SYS(memfd_create, "huge", 0);
        SYS(ftruncate, f, 0x7fffffffffffffff); }), REFUSED || r == 0);
    T("folders in folders", ({
        long error = 0;
        SYS(chdir, "/dev/shm");
        for (int i = 0; i < 1500 && !error; i++) {
            error = SYS(mkdir, "d", 0777);
            if (!error) error = SYS(chdir, "d");
        }
        char path[600];
        long n = SYS(getcwd, path, 600);
        SYS(chdir, box);
        error ? error : n; }), REFUSED);
    T("up more often than down", ({
        char path[600] = { 0 };
        SYS(chdir, "/dev/shm/d/d/d");
        for (int i = 0; i < 50; i++) SYS(chdir, "..");
        long n = SYS(getcwd, path, 600);
        SYS(chdir, box);
        n == 2 && path[0] == '/'; }), r == 1);
}

/* Ways out of the root, and what would be there. */
static void paths(void) {
    static const char *const up[] = {
        "", "/", "./", "../", "../../../../../../../../../../", "/../../../../../../../..",
        "/proc/self/root", "/proc/self/root/../..", "/proc/self/cwd/../../..", "/proc/self/exe/../..",
        "/proc/1/root", "/proc/1/cwd", "/proc/self/fd/..", "/proc/self/fd/../../..",
        "/dev/fd/../../../../..", "/dev/shm/../../..", "/proc/self/task/../root", "out", "out/..", "absolute",
        "absolute/../..", "loop", "swap/../..", "/proc/thread-self/root", "/proc/self/map_files/..",
    };
    for (unsigned i = 0; i < sizeof up / sizeof *up; i++) {
        T(up[i], LEAKS(join4(up[i], "/", outside, "/secret")), !rooted || (r != 1));
        T(up[i], LEAKS(JOIN(up[i], "/../outside/secret")), !rooted || r != 1);
    }
    if (!rooted) return;
    static const char *const links[] = { "out/secret", "absolute/secret", "secret", "../../outside/secret" };
    for (unsigned i = 0; i < 4; i++) {
        T(links[i], LEAKS(links[i]), r == -ENOENT || r == -ENOTDIR);
        T(links[i], put(links[i], RW), r == -ENOENT || r == -ENOTDIR);
        T(links[i], SYS(truncate, links[i], 0), REFUSED);
        T(links[i], SYS(chmod, links[i], 0777), REFUSED);
        T(links[i], SYS(chown, links[i], 1, 1), REFUSED);
        T(links[i], SYS(lchown, links[i], 1, 1), REFUSED || i == 2 && r == 0);
        T(links[i], SYS(readlink, links[i], text_[0], 100), REFUSED || i == 2);
        T(links[i], SYS(execve, links[i], alone, 0), REFUSED);
    }
    T("a folder's descriptor", ({
        long f = SYS(open, "/", DIRECTORY);
        leaks(SYS(openat, f, "../outside/secret", 0)); }), r == -ENOENT);
    T("a path's descriptor", ({
        long f = SYS(open, "/", PATHS);
        leaks(SYS(openat, f, "..", PATHS) < 0 ? -1 : SYS(openat, f, "../../outside/secret", 0)); }), r == -ENOENT);
    T("a link to the folder above", ({
        SYS(symlink, "../../../../..", "above");
        LEAKS("above/outside/secret"); }), r == -ENOENT);
    T("a hard link to what is outside", SYS(link, "../../outside/secret", "mine"), r == -ENOENT);
    T("a hard link through a link", SYS(linkat, CWD, "absolute/secret", CWD, "mine", 0x400), r == -ENOENT);
    T("moving out", SYS(rename, fresh(), "out/moved"), REFUSED);
    T("moving in", SYS(rename, "out/secret", "moved"), REFUSED);
    T("creating outside", put("out/created", CREAT | RW), REFUSED);
    T("a folder outside", SYS(mkdir, "absolute/created", 0777), REFUSED);
    T("a socket outside", ({
        struct { short family; char path[108]; } a = { 1, "out/socket" };
        SYS(bind, SYS(socket, 1, 1, 0), &a, sizeof a); }), REFUSED);
    T("working outside", SYS(chdir, "out"), REFUSED);
    T("a script whose interpreter is outside", SYS(execve, "script", alone, 0), REFUSED);
    T("its absolute path", SYS(execve, "absolute-script", alone, 0), REFUSED);
    T("a script by its descriptor", ({
        long f = SYS(open, "script", 0);
        SYS(execveat, f, "", alone, 0, 0x1000); }), REFUSED);
}

/* Descriptors that another process passes, chroot, and mounts. */
static void descriptors(void) {
    int pair[2];
    T("socketpair", SYS(socketpair, 1, 1, 0, pair), r == 0);
    T("a folder from another process", ({
        long status = CHILD(({ SYS(chdir, "/"); pass(pair[1], SYS(open, "..", DIRECTORY)) < 0; }));
        long f = pass(pair[0], -1);
        status ? status : leaks(SYS(openat, f, "../outside/secret", 0)); }), r == -ENOENT || (!rooted && r < 0));
    T("a file from another process", ({
        long status = CHILD(({ long f = SYS(open, "out/secret", 0); f >= 0 && pass(pair[1], f) >= 0; }));
        status; }), !rooted || r == 0);
    T("a path from a removed folder", ({
        SYS(mkdir, "gone", 0777);
        long f = SYS(open, "gone", DIRECTORY);
        SYS(rmdir, "gone");
        SYS(openat, f, "../../outside/secret", 0); }), REFUSED);
    T("chroot and up", CHILD(({
        long f = SYS(open, "/", DIRECTORY), error = SYS(chroot, "sub");
        SYS(fchdir, f);
        error ? error : LEAKS("../../../outside/secret") == 1 ? 99 : 0; })), r != 99 << 8);
    T("mount over the box", SYS(mount, "none", box, "tmpfs", 0, 0), REFUSED);
    T("bind mount of what is outside", SYS(mount, outside, box, 0, 4096, 0), REFUSED);
    T("unmount", SYS(umount2, "/proc", 0), REFUSED);
    T("pivot_root", SYS(pivot_root, box, box), REFUSED);
    T("move_mount", SYS(move_mount, CWD, box, CWD, "/", 0), REFUSED);
    T("open_tree", SYS(open_tree, CWD, "/", 0), REFUSED);
    T("fsopen", SYS(fsopen, "proc", 0), REFUSED);
    T("unshare", SYS(unshare, 0x10000000), REFUSED || r == 0);
    T("setns", SYS(setns, 0, 0), REFUSED);
    T("clone into namespaces", SYS(clone, 0x10020011, 0, 0, 0, 0), REFUSED);
}

/* What is neither a file nor a folder, in the box and in /dev. */
static void special(void) {
    struct { short family; char path[108]; } address = { 1, "usock" };
    T("read the FIFO", SYS(open, "fifo", 0), r == -ENXIO);
    T("read the FIFO without waiting", SYS(open, "fifo", NONBLOCK), r == -ENXIO);
    T("write to the FIFO", put("fifo", 1), r == -ENXIO);
    T("both", put("fifo", RW | NONBLOCK), r == -ENXIO);
    T("the FIFO through a link", put("to-fifo", RW), r == -ENXIO);
    T("truncate the FIFO", SYS(truncate, "fifo", 0), r == -EINVAL);
    T("times of the FIFO", SYS(utimensat, CWD, "to-fifo", 0, 0), r == 0 || r == -EXDEV);
    T("mode of the FIFO", SYS(chmod, "missing-fifo", 0600), r == -ENOENT);
    T("execute the FIFO", SYS(execve, "fifo", alone, 0), r == -EACCES);
    T("a path to the FIFO", SYS(open, "fifo", PATHS), r >= 0);
    T("the FIFO by its descriptor", ({
        long f = SYS(open, "fifo", PATHS);
        SYS(open, JOIN("/proc/self/fd/", decimal(f)), RW | NONBLOCK); }), r == -ENXIO);
    T("write to a FIFO with a reader", put("held", 1 | NONBLOCK), r == -ENXIO);
    T("open the socket", put("usock", RW), r == -ENXIO);
    T("connect to the socket", SYS(connect, SYS(socket, 1, 1, 0), &address, sizeof address), r == -ECONNREFUSED);
    T("send to the socket", ({
        SYS(sendto, SYS(socket, 1, 2, 0), "EVIL", 4, 0, &address, sizeof address); }), r == -ECONNREFUSED);
    T("bind to the socket", SYS(bind, SYS(socket, 1, 1, 0), &address, sizeof address), r == -98);
    T("open the device", put("device", RW), r == -ENXIO || r == -ENOENT || r == -EACCES);
    T("read the device", SYS(open, "device", 0), r == -ENXIO || r == -ENOENT || r == -EACCES);
    static const char *const devices[] = {
        "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1",
        "/dev/tty", "/dev/tty0", "/dev/console", "/dev/pts/0", "/dev/pts/1", "/dev/pts/2", "/dev/pts/3", "/dev/kvm", "/dev/fuse",
        "/dev/net/tun", "/dev/loop-control", "/dev/loop0", "/dev/uinput", "/dev/vhost-net",
        "/dev/watchdog", "/dev/rtc0", "/dev/cpu/0/msr", "/dev/dri/card0", "/dev/snd/timer",
        "/dev/userfaultfd", "/dev/vsock", "/dev/shm/../mem", "/dev/hugepages/x", "/dev/mqueue/x",
    };
    for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++)
        T(devices[i], put(devices[i], RW | NONBLOCK), REFUSED);
    /* A terminal of the machine's own. */
    T("/dev/ptmx", put("/dev/ptmx", RW | NONBLOCK), r == 4);
    static const char *const texts[] = {
        "/proc/sys/kernel/domainname", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
        "/proc/kcore", "/proc/kmsg", "/proc/self/oom_score_adj", "/proc/self/uid_map", "/proc/self/coredump_filter",
        "/proc/sys/vm/drop_caches", "/proc/irq/0/smp_affinity", "/proc/bus/pci/00", "/proc/acpi/x",
        "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
        "/sys/kernel/debug/tracing/trace_on", "/sys/class/net/lo/mtu", "/sys/firmware/x",
    };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) T(texts[i], put(texts[i], RW), REFUSED);
    T("a new file in /proc", put("/proc/new", CREAT | RW), REFUSED);
    T("a new file in /sys", put("/sys/new", CREAT | RW), REFUSED);
    T("a folder in /dev", SYS(mkdir, "/dev/new", 0777), REFUSED);
    T("a file in /dev/shm", put("/dev/shm/new", CREAT | RW), r == 4);
    T("moving to /dev", SYS(rename, fresh(), "/dev/moved"), REFUSED);
}

/* Processes of the host, and itself through /proc. */
/* Whether a file of /proc/1, open as `f`, is that of the machine's init: it never has memory. */
static int is_init(const char *name, long f) {
    char text[10] = { 0 };
    long n = SYS(read, f, text, sizeof text);
    SYS(close, f);
    if (same(name, "stat", 5)) return same(text, "1 (init) S", 10);
    if (same(name, "cmdline", 8)) return n == 0;
    return same(name, "task", 5) && n == -EISDIR;
}

static void processes(void) {
    static const char *const names[] = {
        "mem", "environ", "maps", "cmdline", "root/etc/hostname", "cwd/x", "exe", "fd/0", "fd/1", "stat", "task", "ns/mnt",
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = join4("/proc/", decimal(victim), "/", names[i]);
        T(path, SYS(open, path, 0), r == -ENOENT);
        path = join4("/proc/", decimal(SYS(getppid, 0)), "/", names[i]);
        /* The parent is the machine's init, of which everybody may know the name and the threads. */
        T(path, SYS(open, path, 0), REFUSED || is_init(names[i], r));
    }
    T("own memory", ({
        static char bytes[8] = "kept";
        long f = SYS(open, "/proc/self/mem", RW);
        f < 0 ? f : SYS(pwrite64, f, "EVIL", 4, bytes); }), r == 4 || REFUSED);
    T("standard input again", ({ long f = SYS(open, "/proc/self/fd/0", RW); f < 0 ? f : SYS(write, f, "EVIL", 4); }), REFUSED);
    T("/dev/stdin", put("/dev/stdin", RW), REFUSED);
    T("write to standard input", SYS(write, 0, "EVIL", 4), r == -EBADF);
    T("no other descriptor is open", ({
        int open = 0;
        SYS(close_range, 3, 200, 0);
        for (int i = 3; i < 256; i++) open += SYS(fcntl, i, 1, 0) >= 0;
        open; }), r == 0);
    T("kill", SYS(kill, victim, 9), r == -ESRCH);
    T("tkill", SYS(tkill, victim, 9), r == -ESRCH);
    T("tgkill", SYS(tgkill, victim, victim, 9), r == -ESRCH);
    T("kill its group", SYS(kill, -victim, 9), r == -ESRCH);
    T("queue a signal", ({ int info[32] = { 9, 0, -1 }; SYS(rt_sigqueueinfo, victim, 9, info); }), r == -ESRCH);
    T("a descriptor of it", SYS(pidfd_open, victim, 0), r == -ESRCH);
    T("its files", SYS(pidfd_getfd, SYS(pidfd_open, SYS(getpid, 0), 0), 0, 0), REFUSED || r >= 0);
    T("kill the parent", SYS(kill, SYS(getppid, 0), 15), REFUSED);
    T("kill init", SYS(kill, 1, 9), REFUSED);
    on_signal(10, (void *)1, 0, 0);
    T("kill all", CHILD(SYS(kill, -1, 10)), r == 0 || r == ESRCH << 8);
    T("signals by descriptors", ({
        long f = SYS(open, "/", DIRECTORY);
        SYS(fcntl, f, 8, victim); SYS(fcntl, f, 10, 9);
        SYS(fcntl, f, 1026, 1); }), REFUSED || r == 0);
    T("a signal at its death", SYS(prctl, 1, 0), r == 0);
    T("ptrace attach", SYS(ptrace, 16, victim, 0, 0), REFUSED);
    T("ptrace seize", SYS(ptrace, 0x4206, SYS(getppid, 0), 0, 0), REFUSED);
    T("ptrace itself", SYS(ptrace, 0, 0, 0, 0), REFUSED);
    T("process_vm_readv", ({ char to[4]; struct iov l = { to, 4 }, o = { (void *)0x400000, 4 };
        SYS(process_vm_readv, victim, &l, 1, &o, 1, 0); }), REFUSED);
    T("process_vm_writev", ({ struct iov l = { "EVIL", 4 }, o = { (void *)0x400000, 4 };
        SYS(process_vm_writev, victim, &l, 1, &o, 1, 0); }), REFUSED);
    T("its priority", SYS(setpriority, 0, victim, 10), r == -ESRCH);
    T("its limits", ({ word limit[2] = { 1, 1 }; SYS(prlimit64, victim, 7, limit, 0); }), r == -ESRCH);
    T("its processors", ({ word set = 1; SYS(sched_setaffinity, victim, 8, &set); }), r == -ESRCH);
    T("its scheduling", ({ int zero = 0; SYS(sched_setscheduler, victim, 0, &zero); }), r == -ESRCH);
    T("its group", SYS(setpgid, victim, victim), r == -ESRCH);
    T("its session", SYS(getsid, victim), r == -ESRCH);
    T("its robust list", ({ word a, b; SYS(get_robust_list, victim, &a, &b); }), r == -ESRCH);
    T("its I/O priority", SYS(ioprio_set, 1, victim, 0), r == -ESRCH);
    T("wait for it", SYS(wait4, victim, 0, 0, 0), r == -10);
    T("kcmp", SYS(kcmp, victim, SYS(getpid, 0), 0, 0, 0), REFUSED);
    T("move_pages", SYS(move_pages, victim, 0, 0, 0, 0, 0), REFUSED);
    T("process_madvise", SYS(process_madvise, 0, 0, 0, 0, 0), REFUSED);
    T("a core elsewhere", CHILD(({ SYS(chdir, "/"); SYS(kill, SYS(getpid, 0), 11); 0; })), (r & 127) == 11);
    T("a program in memory", CHILD(({
        long f = SYS(memfd_create, "x", 0);
        SYS(write, f, "#!/nothing\n", 11);
        SYS(execveat, f, "", alone, 0, 0x1000); })), r != 0);
    T("another session", CHILD(SYS(setsid, 0) < 0), r == 0);
}

/* Networks and sockets of the host. */
static void sockets(void) {
    struct { unsigned short family, port; unsigned address; word pad; } a = { 2, (unsigned short)(port >> 8 | port << 8), 0x0100007f, 0 };
    struct { unsigned short family, port; unsigned flow; unsigned address[4], scope; } a6 = { 10, a.port, 0, { 0, 0, 0, 0x01000000 }, 0 };
    T("TCP to the host", SYS(connect, SYS(socket, 2, 1, 0), &a, 16), r == -ECONNREFUSED);
    T("TCP to the host by IPv6", SYS(connect, SYS(socket, 10, 1, 0), &a6, 28), r == -ECONNREFUSED);
    T("TCP by sendto", SYS(sendto, SYS(socket, 2, 1, 0), "EVIL", 4, 0x20004000, &a, 16), REFUSED);
    T("UDP to the host", SYS(sendto, SYS(socket, 2, 2, 0), "EVIL", 4, 0, &a, 16), r == 4);
    T("the host's port", ({ long s = SYS(socket, 2, 1, 0), e = SYS(bind, s, &a, 16); e ? e : SYS(listen, s, 1); }), r == 0);
    a.address = 0x08080808;
    T("TCP to elsewhere", SYS(connect, SYS(socket, 2, 1, 0), &a, 16), r == -ENETUNREACH);
    T("UDP to elsewhere", SYS(sendto, SYS(socket, 2, 2, 0), "EVIL", 4, 0, &a, 16), r == -ENETUNREACH);
    a.address = 0xffffffff;
    T("UDP to all", SYS(sendto, SYS(socket, 2, 2, 0), "EVIL", 4, 0, &a, 16), REFUSED);
    T("an abstract name", ({
        struct { short family; char path[60]; } u = { 1, { 0 } };
        const char *name = JOIN("unwind-sim-canary-", decimal(victim));
        memcpy(u.path + 1, name, length(name));
        SYS(sendto, SYS(socket, 1, 2, 0), "EVIL", 4, 0, &u, 3 + length(name)); }), r == -ECONNREFUSED);
    T("raw packets", SYS(socket, 17, 3, 0), REFUSED);
    T("raw IP", SYS(socket, 2, 3, 1), REFUSED);
    T("the host's virtual machine", SYS(socket, 40, 1, 0), REFUSED);
    T("the kernel's crypto", SYS(socket, 38, 5, 0), REFUSED);
    T("Bluetooth", SYS(socket, 31, 3, 0), REFUSED);
    T("audit", SYS(socket, 16, 3, 9), REFUSED || r >= 0);
    T("events of devices", SYS(socket, 16, 3, 15), REFUSED || r >= 0);
    T("change a route", ({
        long s = SYS(socket, 16, 3, 0);
        unsigned m[8] = { 32, 24 | 5 << 16, 1, 0, 2 };
        s < 0 ? s : SYS(sendto, s, m, 32, 0, 0, 0); }), REFUSED || r == 32);
    T("an interface's address", ({ char q[40] = "lo"; SYS(ioctl, SYS(socket, 2, 2, 0), 0x8916, q); }), REFUSED);
    T("message queue", SYS(mq_open, "canary", CREAT | RW, 0666, 0), REFUSED || r >= 0);
}

/* The kernel itself. */
static void kernel(void) {
    static const struct { const char *name; long number; } calls[] = {
#define C(name) { #name, __NR_##name }
        C(init_module), C(finit_module), C(delete_module), C(kexec_load), C(reboot), C(swapon),
        C(swapoff), C(acct), C(iopl), C(ioperm), C(bpf), C(perf_event_open), C(userfaultfd),
        C(io_uring_setup), C(io_uring_enter), C(io_uring_register), C(add_key), C(request_key),
        C(keyctl), C(quotactl), C(fanotify_init), C(syslog), C(vhangup), C(lookup_dcookie),
        C(sethostname), C(setdomainname), C(settimeofday), C(clock_settime), C(clock_adjtime),
        C(adjtimex), C(modify_ldt), C(uselib), C(sysfs), C(migrate_pages), C(mbind), C(landlock_create_ruleset),
        C(seccomp), C(ustat), C(io_setup), C(remap_file_pages), C(kexec_file_load), C(mount_setattr),
    };
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        T(calls[i].name, call6(calls[i].number, -1, 0, 0, 0, 0, 0), REFUSED || r == 0);
    T("a stack in the kernel", SYS(rt_sigaction, 10, 0xffffffff81000000ul, 0, 8), r == -EFAULT);
    T("read into the kernel", SYS(read, SYS(open, "/dev/zero", 0), 0xffffffff81000000ul, 8), r == -EFAULT);
    T("write from the kernel", SYS(write, 1, 0xffffffff81000000ul, 8), r == -EFAULT);
    T("map the kernel", SYS(mmap, 0xffffffff81000000ul, 4096, 3, 0x32, -1, 0), r == -ENOMEM || r == -EINVAL);
    T("map page 0", SYS(mmap, 0, 4096, 3, 0x32, -1, 0), REFUSED || r == 0);
    T("map all", SYS(mmap, 0, 1l << 62, 3, 0x22, -1, 0), r == -ENOMEM);
    T("base of fs in the kernel", SYS(arch_prctl, 0x1002, 0xffffffff81000000ul), r == -EPERM);
    T("store to the machine's own memory", CHILD(({ *(volatile long *)0x7ffe00000000 = 1; 0; })), (r & 127) == 11);
    T("store to the kernel", CHILD(({ *(volatile long *)0xffffffff81000000 = 1; 0; })), (r & 127) == 11);
    T("jump to the kernel", CHILD(({ ((void (*)(void))0xffffffff81000000)(); 0; })), (r & 127) == 11);
    T("hlt", CHILD(({ __asm__ volatile("hlt"); 0; })), (r & 127) == 11);
    T("out", CHILD(({ __asm__ volatile("out %%al, $0x70" ::"a"(0)); 0; })), (r & 127) == 11);
    T("cli", CHILD(({ __asm__ volatile("cli"); 0; })), (r & 127) == 11);
    T("rdmsr", CHILD(({ __asm__ volatile("rdmsr" ::"c"(0x1b) : "rax", "rdx"); 0; })), (r & 127) == 11);
    T("mov to cr3", CHILD(({ __asm__ volatile("mov %0, %%cr3" ::"r"(0l)); 0; })), (r & 127) == 11);
    T("lidt", CHILD(({ char table[10] = { 0 }; __asm__ volatile("lidt %0" ::"m"(table)); 0; })), (r & 127) == 11);
    T("become another user", CHILD(SYS(setuid, 12345)), r == 0 || r == EPERM << 8);
    T("System V memory", SYS(shmget, 0x48345634, 4096, 01666), r >= 0 || r == -ENOSYS);
    T("System V messages", SYS(msgget, 0x48345634, 01666), r >= 0 || r == -ENOSYS);
    T("System V semaphores", SYS(semget, 0x48345634, 1, 01666), r >= 0 || r == -ENOSYS);
}

#include "races.h"
#include "ways.h"

int run(word *stack) {
    char **args = (char **)(stack + 1);
    for (const char *how = args[1]; *how; how++) {
        rooted |= *how == 'r';
        writes |= *how == 'w';
    }
    victim = parse(args[2]);
    port = parse(args[3]);
    box = args[4];
    outside = args[5];
    T("the working folder", SYS(chdir, box), r == 0);
    special();
    files();
    sizes();
    paths();
    ways();
    races();
    descriptors();
    sockets();
    kernel();
    processes();
    number("attempts", attempts);
    number("surprises", surprises);
    return 0;
}
