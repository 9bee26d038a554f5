/* Files, directories, and what copies and watches them, on tmpfs and on the root file system. */
#include "workload.h"
#include <linux/fanotify.h>
#include <linux/inotify.h>
#include <linux/openat2.h>

static void use_file(const char *path)
{
	char buffer[256];
	long fd = need("open", open_file(path, O_RDWR | O_CREAT | O_TRUNC));
	need("write", S(write, fd, "one two three", 13));
	struct iovec parts[2] = {{buffer, 100}, {buffer + 100, 28}};
	memset(buffer, 'x', sizeof(buffer));
	need("writev", S(writev, fd, parts, 2));
	need("pwritev", S(pwritev, fd, parts, 2, 20000, 0));
	S(pwritev2, fd, parts, 2, 30000, 0, 4 /* RWF_SYNC */);
	S(pwrite64, fd, buffer, 10, 70000);
	need("lseek", S(lseek, fd, 0, 0));
	expect("read", S(read, fd, buffer, 13) == 13 && memcmp(buffer, "one two three", 13) == 0);
	S(readv, fd, parts, 2);
	S(preadv, fd, parts, 2, 0, 0);
	S(preadv2, fd, parts, 2, 0, 0, 8 /* RWF_NOWAIT */);
	S(pread64, fd, buffer, 10, 69998);
	S(lseek, fd, 0, 3 /* SEEK_DATA */);
	S(lseek, fd, 0, 4 /* SEEK_HOLE */);
	S(ftruncate, fd, 50000);
	S(fallocate, fd, 0, 0, 100000);
	S(fallocate, fd, 1 | 2 /* keep size, punch a hole */, 4096, 8192);
	S(fallocate, fd, 8 /* collapse */, 0, 4096);
	S(fsync, fd);
	S(fdatasync, fd);
	S(sync_file_range, fd, 0, 4096, 7);
	S(fadvise64, fd, 0, 0, 3);
	S(fadvise64, fd, 0, 0, 4);
	S(readahead, fd, 0, 8192);

	struct stat status;
	need("fstat", S(fstat, fd, &status));
	need("stat", S(stat, path, &status));
	S(lstat, path, &status);
	S(newfstatat, AT_FDCWD, path, &status, 0);
	struct statx statx;
	need("statx", S(statx, AT_FDCWD, path, 0, 0xfff, &statx));
	S(fchmod, fd, 0600);
	S(chmod, path, 0644);
	S(fchown, fd, 1000, 1000);
	S(chown, path, 0, 0);
	S(lchown, path, 0, 0);
	S(access, path, 4);
	S(faccessat2, AT_FDCWD, path, 2, 0x200);
	struct __kernel_timespec times[2] = {{1, 2}, {3, 0x3fffffff}};
	S(utimensat, AT_FDCWD, path, times, 0);

	S(fsetxattr, fd, "trusted.one", "value", 5, 0);
	S(setxattr, path, "security.two", "value", 5, 0);
	S(setxattr, path, "user.three", "value", 5, 1);
	S(getxattr, path, "trusted.one", buffer, sizeof(buffer));
	S(flistxattr, fd, buffer, sizeof(buffer));
	S(removexattr, path, "trusted.one");

	long other = S(dup, fd);
	S(dup2, other, 50);
	S(dup3, other, 51, O_CLOEXEC);
	S(fcntl, fd, F_GETFL);
	S(fcntl, fd, F_SETFL, O_APPEND | O_NONBLOCK);
	S(fcntl, fd, F_DUPFD_CLOEXEC, 60);
	S(fcntl, fd, F_SETFD, 1);
	S(fcntl, fd, 1034 /* F_GET_SEALS */);
	S(fcntl, fd, 1036 /* F_SET_RW_HINT */, &(u64){2});
	S(close_range, 50, 70, 0);
	int flags;
	S(ioctl, fd, FS_IOC_GETFLAGS, &flags);
	S(ioctl, fd, FIGETBSZ, &flags);
	S(ioctl, fd, 0x541b /* FIONREAD */, &flags);

	/* Two lockers of one file: they wait for each other, and one is told. */
	struct flock lock = {.l_type = F_WRLCK, .l_start = 0, .l_len = 100};
	need("lock", S(fcntl, fd, F_SETLK, &lock));
	lock.l_start = 200;
	S(fcntl, fd, F_SETLK, &lock);
	long pid = S(fork);
	if (pid == 0) {
		lock.l_start = 50;
		S(fcntl, fd, F_GETLK, &lock);
		lock = (struct flock){.l_type = F_RDLCK, .l_start = 0, .l_len = 300};
		S(fcntl, fd, F_SETLKW, &lock);
		leave(0);
	}
	sleep_ms(2);
	lock = (struct flock){.l_type = F_UNLCK};
	S(fcntl, fd, F_SETLK, &lock);
	wait_within(pid, 100);
	lock.l_type = F_WRLCK;
	S(fcntl, fd, 37 /* F_OFD_SETLK */, &lock);
	S(flock, fd, 2);
	S(flock, other, 2 | 4);
	S(flock, fd, 8);
	S(fcntl, fd, F_SETLEASE, F_RDLCK);
	S(fcntl, fd, F_SETLEASE, F_UNLCK);
	S(close, other);
	need("close", S(close, fd));
	S(truncate, path, 10);
	need("unlink", S(unlink, path));
}

void group_files(void)
{
	char buffer[64];
	use_file("/try/file");
	use_file("/file");
	S(mkdir, "/try/ram", 0755);
	if (S(mount, "ramfs", "/try/ram", "ramfs", 0, NULL) >= 0) {
		use_file("/try/ram/file");
		S(umount2, "/try/ram", 0);
	}

	/* A file without a name, one that is only a place, and handles. */
	long fd = S(openat, AT_FDCWD, "/try", 020000000 | O_DIRECTORY | O_RDWR, 0600);
	S(write, fd, "x", 1);
	S(linkat, fd, "", AT_FDCWD, "/try/named", AT_EMPTY_PATH);
	S(close, fd);
	fd = S(openat, AT_FDCWD, "/try/named", 010000000);
	S(read, fd, buffer, 1);
	S(close, fd);
	struct {
		struct file_handle {
			u32 bytes;
			int type;
			u8 data[128];
		} handle;
	} handle = {{.bytes = 128}};
	int mount_id;
	S(name_to_handle_at, AT_FDCWD, "/try/named", &handle, &mount_id, 0);
	long root = open_file("/try", O_RDONLY | O_DIRECTORY);
	fd = S(open_by_handle_at, root, &handle, O_RDONLY);
	S(close, fd);
	struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	fd = S(openat2, root, "named", &how, sizeof(how));
	S(close, fd);
	S(openat2, root, "../etc", &how, sizeof(how));
	S(umask, 022);
	S(sync);
	S(syncfs, root);
}

void group_directories(void)
{
	char buffer[2048], path[64];
	need("mkdir", S(mkdir, "/try/d", 0755));
	need("chdir", S(chdir, "/try/d"));
	for (int i = 0; i < 40; i++) {
		append_number(append(path, "entry"), i);
		if (i % 3 == 0)
			S(mkdir, path, 0700);
		else if (i % 3 == 1)
			S(symlink, "entry0", path);
		else
			S(mknodat, AT_FDCWD, path, S_IFREG | 0644, 0);
	}
	long fd = need("open", open_file("/try/d", O_RDONLY | O_DIRECTORY));
	long total = 0, got;
	while ((got = S(getdents64, fd, buffer, sizeof(buffer))) > 0)
		total += got;
	expect("getdents64", total > 40 * 24);
	S(lseek, fd, 0, 0);
	S(getdents, fd, buffer, 512);
	S(fchdir, fd);
	S(getcwd, buffer, sizeof(buffer));
	S(getcwd, buffer, 2);

	S(readlink, "entry1", buffer, sizeof(buffer));
	S(link, "entry2", "hard");
	S(linkat, AT_FDCWD, "entry1", AT_FDCWD, "followed", 0x400);
	need("rename", S(rename, "hard", "moved"));
	S(renameat2, AT_FDCWD, "entry2", AT_FDCWD, "entry3", 2 /* exchange */);
	S(renameat2, AT_FDCWD, "moved", AT_FDCWD, "entry5", 1 /* no replace */);
	S(rename, "entry0", "entry3/below");
	S(rename, "entry6", "entry6/below");
	S(mknod, "fifo", S_IFIFO | 0600, 0);
	S(mknod, "null", S_IFCHR | 0600, 0x103);
	S(mknod, "socket", S_IFSOCK | 0600, 0);
	S(mknod, "block", S_IFBLK | 0600, 0x700);
	S(close, open_file("null", O_RDWR));
	S(close, open_file("block", O_RDWR));
	open_file("socket", O_RDWR);
	S(unlink, "entry9");
	S(rmdir, "entry9");
	S(rmdir, "/try/d");
	S(symlink, "loop", "loop");
	open_file("loop", O_RDONLY);
	open_file("entry2/x", O_RDONLY);
	open_file("missing/x", O_RDONLY);
	open_file("entry3/../../d/./entry5", O_RDWR);
	memset(buffer, 'n', 300);
	buffer[300] = 0;
	open_file(buffer, O_RDONLY);
	memset(buffer, '/', sizeof(buffer) - 1);
	buffer[sizeof(buffer) - 1] = 0;
	open_file(buffer, O_RDONLY);
	u64 statfs[16];
	need("statfs", S(statfs, "/try", statfs));
	S(fstatfs, fd, statfs);
	S(ustat, 1, statfs);
	S(chroot, "/try/d");
	S(chdir, "/");
	open_file("entry1", O_RDONLY);
}

void group_copying(void)
{
	static char buffer[8 * PAGE];
	int pipe[2], second[2];
	long from = need("open", open_file("/try/from", O_RDWR | O_CREAT | O_TRUNC));
	long to = need("open", open_file("/try/to", O_RDWR | O_CREAT | O_TRUNC));
	memset(buffer, 'a', sizeof(buffer));
	S(write, from, buffer, sizeof(buffer));
	long offset = 0;
	need("sendfile", S(sendfile, to, from, &offset, 10000));
	offset = 100;
	need("copy_file_range", S(copy_file_range, from, &offset, to, NULL, 5000, 0));
	S(ioctl, to, FICLONE, from);

	need("pipe", S(pipe2, pipe, 0));
	need("pipe", S(pipe2, second, O_NONBLOCK));
	offset = 0;
	need("splice", S(splice, from, &offset, pipe[1], NULL, 9000, 1));
	need("tee", S(tee, pipe[0], second[1], 4096, 0));
	offset = 0;
	need("splice", S(splice, pipe[0], NULL, to, &offset, 9000, 0));
	S(splice, second[0], NULL, pipe[1], NULL, 4096, 0);
	struct iovec part = {buffer, 2 * PAGE};
	need("vmsplice", S(vmsplice, pipe[1], &part, 1, 0));
	part.iov_base = buffer + 4 * PAGE;
	S(vmsplice, pipe[0], &part, 1, 0);
	S(sendfile, second[1], from, NULL, 4096);
	/* A splice between a pipe and a device, and an end that is closed. */
	long null = open_file("/dev/null", O_RDWR);
	S(splice, second[0], NULL, null, NULL, 4096, 0);
	long zero = open_file("/dev/zero", O_RDWR);
	S(splice, zero, NULL, second[1], NULL, 4096, 0);
	ignore(SIGPIPE);
	S(close, second[0]);
	S(write, second[1], "x", 1);
}

void group_watching(void)
{
	char buffer[1024];
	S(mkdir, "/try/watched", 0755);
	long fd = need("inotify", S(inotify_init1, O_NONBLOCK));
	long watch = need("inotify", S(inotify_add_watch, fd, "/try/watched", IN_ALL_EVENTS));
	long file = open_file("/try/watched/file", O_RDWR | O_CREAT);
	S(write, file, "x", 1);
	S(rename, "/try/watched/file", "/try/watched/other");
	S(close, file);
	S(unlink, "/try/watched/other");
	need("read", S(read, fd, buffer, sizeof(buffer)));
	S(inotify_rm_watch, fd, watch);
	S(inotify_add_watch, fd, "/try/watched", IN_ALL_EVENTS | IN_ONESHOT);
	S(rmdir, "/try/watched");
	S(close, fd);

	long dir = open_file("/try", O_RDONLY | O_DIRECTORY);
	ignore(SIGIO);
	S(fcntl, dir, F_NOTIFY, DN_CREATE | DN_DELETE | DN_MODIFY | DN_MULTISHOT);
	S(close, open_file("/try/notes", O_RDWR | O_CREAT));
	S(fcntl, dir, F_NOTIFY, 0);

	fd = S(fanotify_init, FAN_CLASS_CONTENT | FAN_NONBLOCK, O_RDONLY);
	S(fanotify_mark, fd, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN | FAN_CLOSE | FAN_MODIFY, AT_FDCWD,
	  "/try");
	file = open_file("/try/notes", O_RDWR);
	S(write, file, "x", 1);
	S(close, file);
	S(read, fd, buffer, sizeof(buffer));
	S(fanotify_mark, fd, FAN_MARK_FLUSH | FAN_MARK_MOUNT, 0, AT_FDCWD, NULL);
	/* Permission to open: another process waits until this one allows it. */
	S(fanotify_mark, fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, "/try/notes");
	long pid = S(fork);
	if (pid == 0) {
		S(close, fd);
		open_file("/try/notes", O_RDONLY);
		leave(0);
	}
	sleep_ms(2);
	struct fanotify_event_metadata *event = (void *)buffer;
	if (S(read, fd, buffer, sizeof(buffer)) > 0) {
		struct fanotify_response response = {event->fd, FAN_ALLOW};
		S(write, fd, &response, sizeof(response));
	}
	wait_within(pid, 100);
	S(close, fd);
	fd = S(fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME | FAN_NONBLOCK, O_RDONLY);
	S(fanotify_mark, fd, FAN_MARK_ADD, FAN_CREATE | FAN_DELETE | FAN_ONDIR, AT_FDCWD, "/try");
	S(mkdir, "/try/seen", 0755);
	S(rmdir, "/try/seen");
	S(read, fd, buffer, sizeof(buffer));
}
