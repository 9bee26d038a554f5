/* Namespaces, mounts and control groups. */
#include "workload.h"
#include <linux/mount.h>

static void in_all(void)
{
	char text[32], *end = text;
	append(append_number(append(end, "0 "), 0), " 1\n");
	need("uid_map", write_file("/proc/self/uid_map", text));
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/gid_map", text);
	S(sethostname, "inside", 6);
	S(setdomainname, "domain", 6);
	S(mount, "none", "/", NULL, 0x4000 | 0x40000 /* private, all */, NULL);
	need("mount", S(mount, "t", "/try", "tmpfs", 0, "size=1m,mode=700"));
	S(mkdir, "/try/new", 0755);
	S(mount, "/try/new", "/try/new", NULL, 0x1000, NULL);
	S(mkdir, "/try/new/old", 0755);
	S(chdir, "/try/new");
	S(pivot_root, ".", "old");
	S(mount, "m", "/old/dev", "mqueue", 0, NULL);
	S(umount2, "/old", 2);
	/* The first process of its own: the others end with it. */
	long pid = S(fork);
	if (pid == 0) {
		expect("pid", S(getpid) == 1);
		if (S(fork) == 0)
			for (;;)
				S(pause);
		S(mkdir, "/proc", 0755);
		S(mount, "p", "/proc", "proc", 0, NULL);
		S(reboot, 0xfee1dead, 672274793, 0x1234567, NULL);
		leave(0);
	}
	wait_within(pid, 200);
	S(fork);
	leave(0);
}

void group_namespaces(void)
{
	static const u32 all[] = {CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET,
		CLONE_NEWCGROUP, CLONE_NEWTIME, CLONE_NEWUSER};
	static const char *const files[] = {"mnt", "uts", "ipc", "pid", "net", "cgroup", "time", "user"};
	char path[64], buffer[64];
	u32 every = 0;
	for (ulong i = 0; i < LEN(all); i++) {
		append(append(path, "/proc/1/ns/"), files[i]);
		S(readlink, path, buffer, sizeof(buffer));
		long fd = need("open", open_file(path, O_RDONLY));
		S(ioctl, fd, 0xb701 /* NS_GET_USERNS */);
		S(ioctl, fd, 0xb703 /* NS_GET_NSTYPE */);
		every |= all[i];
		long pid = S(fork);
		if (pid == 0) {
			S(unshare, all[i]);
			S(setns, fd, all[i]);
			if (S(fork) == 0)
				leave(0);
			S(wait4, -1, NULL, 0, NULL);
			leave(0);
		}
		wait_within(pid, 200);
		S(close, fd);
	}
	long pid = S(fork);
	if (pid == 0) {
		need("unshare", S(unshare, every));
		in_all();
	}
	expect("all", wait_within(pid, 500) == 0);
	/* The networks of dead namespaces are taken apart by the kernel's workers. */
	sleep_ms(50);
}

void group_mounts(void)
{
	static const char *const types[] = {"proc", "sysfs", "tmpfs", "ramfs", "devtmpfs", "devpts",
		"debugfs", "tracefs", "bpf", "mqueue", "hugetlbfs", "securityfs", "pstore", "efivarfs",
		"configfs", "cgroup2", "cgroup", "cpuset", "autofs", "fuse", "overlay", "ext4", "vfat",
		"squashfs", "pipefs", "binfmt_misc", "nfs", "none"};
	need("mkdir", S(mkdir, "/try/m", 0755));
	S(mkdir, "/try/n", 0755);
	char buffer[1024];
	for (ulong i = 0; i < LEN(types); i++) {
		if (S(mount, "none", "/try/m", types[i], 0xe, NULL) < 0)
			continue;
		long fd = open_file("/try/m", O_RDONLY);
		S(getdents64, fd, buffer, sizeof(buffer));
		S(fstatfs, fd, buffer);
		S(close, fd);
		S(mount, NULL, "/try/m", NULL, 0x20 /* remount */, "mode=755");
		S(umount2, "/try/m", 8 /* no symlinks */);
	}
	/* Bound, moved, shared and its relatives, and busy. */
	need("mount", S(mount, "none", "/try/m", "tmpfs", 0, "nr_inodes=100,uid=1,mpol=default"));
	S(mount, NULL, "/try/m", NULL, 0x20 | 1 /* read-only */, NULL);
	S(mount, NULL, "/try/m", NULL, 0x20, "nr_inodes=200");
	S(mount, "none", "/try/m", NULL, 0x100000, NULL);
	S(mount, "/try/m", "/try/n", NULL, 0x1000, NULL);
	S(mount, "none", "/try/n", NULL, 0x80000, NULL);
	S(mkdir, "/try/m/below", 0755);
	S(mount, "none", "/try/m/below", "tmpfs", 0, NULL);
	S(mount, "none", "/try/n", NULL, 0x20000, NULL);
	S(mount, "/try/m/below", "/try/n/below", NULL, 0x2000, NULL);
	read_file("/proc/self/mountinfo", buffer, sizeof(buffer));
	long busy = open_file("/try/m/below/file", O_RDWR | O_CREAT);
	S(umount2, "/try/m", 0);
	S(umount2, "/try/m/below", 4);
	S(umount2, "/try/m/below", 4);
	S(umount2, "/try/m/below", 2);
	S(close, busy);
	S(umount2, "/try/n", 2);
	S(umount2, "/try/m", 2);

	/* The calls that make a mount in steps. */
	long fs = need("fsopen", S(fsopen, "tmpfs", 1));
	S(fsconfig, fs, 1, "size", "1m", 0);
	S(fsconfig, fs, 0, "ro", NULL, 0);
	S(fsconfig, fs, 1, "wrong", "x", 0);
	S(read, fs, buffer, sizeof(buffer));
	need("fsconfig", S(fsconfig, fs, 6, NULL, NULL, 0));
	long mount = need("fsmount", S(fsmount, fs, 1, MOUNT_ATTR_NODEV));
	need("move_mount", S(move_mount, mount, "", AT_FDCWD, "/try/m", 4));
	long picked = S(fspick, AT_FDCWD, "/try/m", 0);
	S(fsconfig, picked, 0, "rw", NULL, 0);
	S(fsconfig, picked, 7, NULL, NULL, 0);
	long tree = S(open_tree, AT_FDCWD, "/try/m", 1 | 0x8000);
	struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY};
	S(mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof(attributes));
	S(move_mount, tree, "", AT_FDCWD, "/try/n", 4);
	struct statx status;
	S(statx, AT_FDCWD, "/try/m", 0, 0x1fff, &status);
	u64 request[4] = {24, status.stx_mnt_id, 0x7f, 0};
	NUMBERED(457 /* statmount */, request, buffer, sizeof(buffer), 0);
	request[1] = -1UL;
	request[2] = 0;
	NUMBERED(458 /* listmount */, request, buffer, 20, 0);
	S(umount2, "/try/n", 2);
	S(umount2, "/try/m", 2);
	S(quotactl, 0x800001, "/dev/none", 0, buffer);
	S(quotactl_fd, busy, 0x800001, 0, buffer);
	S(swapon, "/try/none", 0);
	long swap = open_file("/try/swap", O_RDWR | O_CREAT);
	S(ftruncate, swap, 20 * PAGE);
	S(swapon, "/try/swap", 0);
	S(swapoff, "/try/swap");
}

/* Reads every file of a group, and writes those that have a number to what they are. */
static void read_group(const char *path)
{
	static char names[8192], buffer[PAGE];
	char file[300];
	long fd = open_file(path, O_RDONLY | O_DIRECTORY);
	long got = S(getdents64, fd, names, sizeof(names));
	S(close, fd);
	for (long at = 0; at < got; at += *(u16 *)(names + at + 16)) {
		if (names[at + 18] != 8 /* DT_REG */)
			continue;
		append(append(append(file, path), "/"), names + at + 19);
		long size = read_file(file, buffer, sizeof(buffer));
		if (size > 0 && size < 64)
			write_file(file, buffer);
	}
}

void group_cgroups(void)
{
	S(mkdir, "/try/cgroup", 0755);
	need("mount", S(mount, "none", "/try/cgroup", "cgroup2", 0, NULL));
	write_file("/try/cgroup/cgroup.subtree_control", "+cpu +memory +pids +io +cpuset +hugetlb");
	need("mkdir", S(mkdir, "/try/cgroup/one", 0755));
	S(mkdir, "/try/cgroup/two", 0755);
	read_group("/try/cgroup");
	read_group("/try/cgroup/one");
	write_file("/try/cgroup/one/cpu.max", "2000 10000");
	write_file("/try/cgroup/one/cpu.weight", "50");
	write_file("/try/cgroup/one/memory.max", "4194304");
	write_file("/try/cgroup/one/memory.high", "2097152");
	write_file("/try/cgroup/one/pids.max", "3");

	long pid = S(fork);
	if (pid == 0) {
		/* It uses more than it may: it is slowed down, refused children, and killed. */
		need("procs", write_file("/try/cgroup/one/cgroup.procs", "0"));
		for (int i = 0; i < 4; i++)
			if (S(fork) == 0) {
				sleep_ms(3);
				leave(0);
			}
		spin(6000000);
		char *memory = map(16 << 20);
		for (ulong at = 0; at < 16 << 20; at += PAGE)
			memory[at] = 1;
		leave(0);
	}
	wait_within(pid, 1000);
	write_file("/try/cgroup/one/memory.max", "max");
	pid = S(fork);
	if (pid == 0) {
		write_file("/try/cgroup/one/cgroup.procs", "0");
		for (;;)
			sleep_ms(1);
	}
	sleep_ms(3);
	write_file("/try/cgroup/one/cgroup.freeze", "1");
	sleep_ms(2);
	read_group("/try/cgroup/one");
	write_file("/try/cgroup/one/cgroup.freeze", "0");
	char text[24];
	append_number(text, pid);
	write_file("/try/cgroup/two/cgroup.procs", text);
	write_file("/try/cgroup/two/cgroup.type", "threaded");
	write_file("/try/cgroup/two/cgroup.kill", "1");
	wait_within(pid, 100);
	S(rmdir, "/try/cgroup/one");
	S(rmdir, "/try/cgroup/two");
	S(umount2, "/try/cgroup", 2);
	/* The groups of version 1. */
	static const char *const controllers[] = {"cpu", "cpuacct", "memory", "pids", "freezer", "devices",
		"cpuset", "blkio", "net_cls", "perf_event", "hugetlb", "name=x,none"};
	for (ulong i = 0; i < LEN(controllers); i++) {
		if (S(mount, "none", "/try/cgroup", "cgroup", 0, controllers[i]) < 0)
			continue;
		read_group("/try/cgroup");
		S(mkdir, "/try/cgroup/one", 0755);
		read_group("/try/cgroup/one");
		write_file("/try/cgroup/one/tasks", "0");
		write_file("/try/cgroup/tasks", "0");
		S(rmdir, "/try/cgroup/one");
		S(umount2, "/try/cgroup", 2);
	}
}
