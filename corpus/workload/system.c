/* Communication of System V and POSIX, keys, what the kernel says of itself, and all system calls with
 * arguments that are wrong. */
#include "workload.h"
#include <linux/keyctl.h>
#include <linux/mqueue.h>
#include <linux/sem.h>

static volatile int notified;

static void note(int signal, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	notified = signal;
}

void group_ipc(void)
{
	u8 status[256];
	struct {
		long type;
		char text[100];
	} message = {5, "text"};
	long queue = need("msgget", S(msgget, 0x1234, 01600));
	need("msgsnd", S(msgsnd, queue, &message, 100, 0));
	message.type = 7;
	S(msgsnd, queue, &message, 10, 0);
	S(msgctl, queue, 2 /* IPC_STAT */, status);
	S(msgctl, queue, 1 /* IPC_SET */, status);
	expect("msgrcv", S(msgrcv, queue, &message, 100, 7, 0) == 10);
	long pid = S(fork);
	if (pid == 0) {
		S(msgrcv, queue, &message, 100, 99, 0);
		leave(0);
	}
	sleep_ms(1);
	S(msgrcv, queue, &message, 10, -6, 010000 /* cut off */);
	S(msgctl, queue, 3 /* IPC_INFO */, status);
	S(msgctl, queue, 12 /* MSG_INFO */, status);
	need("remove", S(msgctl, queue, 0, NULL));
	wait_within(pid, 100);

	long set = need("semget", S(semget, 0, 3, 01600));
	u16 values[3] = {0, 1, 2};
	S(semctl, set, 0, SETALL, values);
	struct sembuf operations[2] = {{1, -1, SEM_UNDO}, {2, -2, 0}};
	need("semop", S(semop, set, operations, 2));
	pid = S(fork);
	if (pid == 0) {
		struct sembuf wait = {0, -1, SEM_UNDO};
		S(semop, set, &wait, 1);
		leave(0);
	}
	sleep_ms(1);
	struct sembuf post = {0, 1, 0};
	S(semop, set, &post, 1);
	expect("semaphore", wait_within(pid, 100) == 0);
	struct __kernel_timespec time = {0, 1000000};
	operations[0].sem_op = -5;
	S(semtimedop, set, operations, 1, &time);
	S(semctl, set, 0, GETALL, values);
	for (int command = 2; command < 21; command++)
		if (command != SETALL)
			S(semctl, set, 0, command, status);
	S(semctl, set, 0, 0, NULL);

	long shared = need("shmget", S(shmget, 0, 8 * PAGE, 01600));
	char *at = (char *)need("shmat", S(shmat, shared, NULL, 0));
	if ((long)at > 0) {
		at[0] = 1;
		S(shmat, shared, at + 4 * PAGE, 040000 /* remap */);
		S(shmctl, shared, 2, status);
		S(shmctl, shared, 11, NULL);
		S(shmctl, shared, 14, status);
		S(shmctl, shared, 0, NULL);
		S(shmdt, at);
	}

	struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 64};
	long mq = need("mq_open", S(mq_open, "queue", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &attributes));
	handle(SIGUSR1, note, 0);
	struct {
		u64 value;
		int signal, notify;
		int pad[12];
	} event = {1, SIGUSR1, 0};
	need("mq_notify", S(mq_notify, mq, &event));
	for (int i = 0; i < 5; i++)
		S(mq_timedsend, mq, "message", 7, i * 3 % 5, NULL);
	expect("notified", notified == SIGUSR1);
	uint priority;
	char buffer[64];
	expect("mq_receive", S(mq_timedreceive, mq, buffer, 64, &priority, &time) == 7);
	S(mq_getsetattr, mq, NULL, &attributes);
	S(mq_unlink, "queue");
}

void group_keyrings(void)
{
	char buffer[256];
	long ring = need("session", S(keyctl, KEYCTL_JOIN_SESSION_KEYRING, "workload"));
	long key = need("add_key", S(add_key, "user", "name", "secret", 6, ring));
	S(add_key, "user", "name", "changed", 7, ring);
	S(add_key, "logon", "a:b", "secret", 6, ring);
	S(add_key, "big_key", "large", buffer, sizeof(buffer), ring);
	long inner = S(add_key, "keyring", "inner", NULL, 0, ring);
	static const char *const types[] = {"asymmetric", "encrypted", "trusted", "dns_resolver", "wrong"};
	for (ulong i = 0; i < LEN(types); i++)
		S(add_key, types[i], "x", "\x30\x82\x01", 3, ring);
	expect("read", S(keyctl, KEYCTL_READ, key, buffer, sizeof(buffer)) == 7);
	S(keyctl, KEYCTL_DESCRIBE, key, buffer, sizeof(buffer));
	S(keyctl, KEYCTL_DESCRIBE, ring, buffer, sizeof(buffer));
	S(keyctl, KEYCTL_READ, ring, buffer, sizeof(buffer));
	S(keyctl, KEYCTL_UPDATE, key, "new", 3);
	S(keyctl, KEYCTL_LINK, key, inner);
	S(keyctl, KEYCTL_LINK, ring, inner);
	S(keyctl, KEYCTL_SEARCH, ring, "user", "name", 0);
	S(keyctl, KEYCTL_UNLINK, key, inner);
	S(keyctl, KEYCTL_MOVE, key, ring, inner, 0);
	S(keyctl, KEYCTL_SETPERM, key, 0x3f3f0000);
	S(keyctl, KEYCTL_CHOWN, key, 1, 1);
	S(keyctl, KEYCTL_SET_TIMEOUT, key, 1);
	S(keyctl, KEYCTL_GET_SECURITY, key, buffer, sizeof(buffer));
	S(keyctl, KEYCTL_GET_PERSISTENT, -1, ring);
	S(keyctl, KEYCTL_CAPABILITIES, buffer, sizeof(buffer));
	S(keyctl, KEYCTL_RESTRICT_KEYRING, inner, NULL, NULL);
	for (int special = -1; special > -9; special--)
		S(keyctl, KEYCTL_GET_KEYRING_ID, special, 1);
	/* A program of user space is asked, and there is none. */
	S(request_key, "user", "missing", "info", ring);
	S(keyctl, KEYCTL_REVOKE, key);
	S(keyctl, KEYCTL_READ, key, buffer, sizeof(buffer));
	S(keyctl, KEYCTL_INVALIDATE, inner);
	S(keyctl, KEYCTL_CLEAR, ring);
	sleep_ms(20);
}

void group_system(void)
{
	static char buffer[PAGE];
	need("uname", S(uname, buffer));
	need("sysinfo", S(sysinfo, buffer));
	S(sethostname, "workload", 8);
	S(setdomainname, "none", 4);
	for (int what = 2; what < 11; what++)
		if (what < 4 || what > 7)
			S(syslog, what == 2 ? 9 : what, buffer, sizeof(buffer) - 1);
	S(syslog, 3, buffer, sizeof(buffer));
	S(syslog, 8, NULL, 1);
	S(acct, "/try/accounting");
	S(mknodat, AT_FDCWD, "/try/accounting", S_IFREG | 0600, 0);
	S(acct, "/try/accounting");
	wait_for(S(fork) ?: (leave(0), 0));
	S(acct, NULL);
	S(sysfs, 3);
	S(sysfs, 2, 1, buffer);
	S(sysfs, 1, "tmpfs");
	S(lookup_dcookie, 0, buffer, 100);
	S(init_module, buffer, 100, "");
	S(finit_module, open_file("/init", O_RDONLY), "", 0);
	S(delete_module, "none", 0);
	S(kexec_load, 0, 0, NULL, 0);
	S(kexec_file_load, open_file("/init", O_RDONLY), -1, 2, "x", 0);
	S(reboot, 0xfee1dead, 672274793, 0x89abcdef, NULL);
	S(reboot, 0xfee1dead, 672274793, 0, NULL);

	/* Backtraces, tables and statistics, which go into the log. */
	static const char *const keys[] = {"h", "l", "m", "p", "q", "t", "w", "d", "k", "s", "9", "z"};
	for (ulong i = 0; i < LEN(keys); i++)
		write_file("/proc/sysrq-trigger", keys[i]);
	S(syslog, 8, NULL, 1);
	/* All tasks are frozen, without waiting, and go on: nothing would wake a computer that sleeps. */
	if (write_file("/sys/module/suspend/parameters/pm_test_delay", "0") > 0 &&
	    write_file("/sys/power/pm_test", "freezer") > 0)
		write_file("/sys/power/state", "freeze");
	write_file("/sys/power/disk", "platform");
	write_file("/sys/module/printk/parameters/time", "Y");
	write_file("/sys/devices/system/cpu/cpu0/online", "0");
	write_file("/sys/bus/clockevents/none", "1");
	write_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "none");
	write_file("/sys/kernel/uevent_helper", "/init");
	write_file("/sys/devices/virtual/mem/null/uevent", "change");
	write_file("/sys/kernel/uevent_helper", "");
}

/* Numbers that would end more than their own process, or leave something behind. */
static int is_left_out(int number)
{
	return number == __NR_reboot || number == __NR_vhangup || number == __NR_acct;
}

static char *valid;
static long file, socket;

static void call_wrongly(int number)
{
	ulong page = (ulong)valid;
	const ulong all[][6] = {
		{0}, {-1UL, -1UL, -1UL, -1UL, -1UL, -1UL},
		{0xffff888000000000, 0xffff888000000000, 0xffff888000000000, 0xffff888000000000,
		 0xffff888000000000, 0xffff888000000000},
		{page, page, page, page, page, page},
		{file, page, 64, page, 64, 0},
		{socket, page, 64, 0, page, 64},
		{file, 0x8000000000000000, 64, 8, 16, 0},
		{(ulong) "/try/bad", page, 64, page, 64, 0},
		{AT_FDCWD, (ulong) "/try/bad", page, 64, 0, 0},
		/* The last bytes of a page without another one behind it. */
		{file, page + PAGE - 4, 64, page + PAGE - 4, 64, 0},
		{page + PAGE - 4, page + PAGE - 4, page + PAGE - 4, page + PAGE - 4, 1, 1},
	};
	for (ulong i = 0; i < LEN(all); i++)
		syscall6(number, all[i][0], all[i][1], all[i][2], all[i][3], all[i][4], all[i][5]);
}

void group_bad_arguments(void)
{
	valid = map(2 * PAGE);
	S(munmap, valid + PAGE, PAGE);
	file = open_file("/try/bad", O_RDWR | O_CREAT);
	int pair[2];
	S(socketpair, 1, 2 | 04000, 0, pair);
	socket = pair[0];
	for (int number = 0; number < 475; number++) {
		if (is_left_out(number))
			continue;
		long pid = S(fork);
		if (pid == 0) {
			/* Nothing that it starts outlives it. */
			S(prctl, 1 /* PR_SET_PDEATHSIG */, SIGKILL);
			S(setsid);
			/* The console is not written to. */
			S(close_range, 0, 2, 0);
			if (number != __NR_fork && number != __NR_vfork && number != __NR_clone)
				call_wrongly(number);
			leave(0);
		}
		wait_within(pid, 4);
		S(kill, -pid, SIGKILL);
	}
	S(umount2, "/try/bad", 2);
}

/* Reads the first bytes of each file below a folder, and what a directory has, down to a depth. At most
 * `most` files of a folder are read: many have hundreds that are alike. */
static void read_below(const char *path, int depth, int most, int writes)
{
	char names[2048], buffer[2048], below[256];
	long fd = open_file(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK), got;
	int files = 0, folders = 0;
	if (fd < 0 || length(path) > 180)
		return;
	while ((got = S(getdents64, fd, names, sizeof(names))) > 0) {
		for (long at = 0; at < got; at += *(u16 *)(names + at + 16)) {
			const char *name = names + at + 19;
			int type = names[at + 18];
			if (name[0] == '.' || length(name) > 60 || contains(name, "pipe") ||
			    equal(name, "kmsg") || equal(name, "kcore") || equal(name, "kpagecount") ||
			    equal(name, "sysrq-trigger") || equal(name, "panic") ||
			    contains(name, "panic_on"))
				continue;
			append(append(append(below, path), "/"), name);
			if (type == 4) {
				if (depth && folders++ < most)
					read_below(below, depth - 1, most, writes);
			} else if (type == 10) {
				S(readlink, below, buffer, sizeof(buffer));
			} else if (files++ < most) {
				long size = read_file(below, buffer, sizeof(buffer));
				/* Numbers are set to what they are. */
				if (writes && size > 0 && size < 40)
					write_file(below, buffer);
			}
		}
	}
	S(close, fd);
}

void group_proc(void)
{
	read_below("/proc/sys", 4, 60, 1);
	read_below("/proc/self", 3, 70, 0);
	read_below("/proc/1", 1, 70, 0);
	read_below("/proc/2", 0, 70, 0);
	read_below("/proc", 0, 70, 0);
	static const char *const folders[] = {"net", "irq", "tty", "fs", "bus", "driver", "sysvipc",
		"pressure", "acpi", "dynamic_debug"};
	char path[64];
	for (ulong i = 0; i < LEN(folders); i++) {
		append(append(path, "/proc/"), folders[i]);
		read_below(path, 2, 40, 0);
	}
	/* The stacks of all tasks, as the kernel unwinds them. */
	static char buffer[PAGE];
	for (int pid = 1; pid < 200; pid++) {
		append(append_number(append(path, "/proc/"), pid), "/stack");
		read_file(path, buffer, sizeof(buffer));
	}
	need("stack", read_file("/proc/1/stack", buffer, sizeof(buffer)));
	write_file("/proc/self/comm", "renamed");
	write_file("/proc/self/oom_score_adj", "5");
	write_file("/proc/self/coredump_filter", "0x7f");
	write_file("/proc/self/timerslack_ns", "1000");
	write_file("/proc/self/attr/current", "none");
	write_file("/proc/self/autogroup", "1");
	write_file("/proc/self/timens_offsets", "x");
	long fd = open_file("/proc/kcore", O_RDONLY);
	S(read, fd, buffer, sizeof(buffer));
	S(close, fd);
	fd = open_file("/proc/self/pagemap", O_RDONLY);
	S(pread64, fd, buffer, 512, 0x400 * 8);
	fd = open_file("/proc/self/mem", O_RDWR);
	S(pread64, fd, buffer, 64, valid);
	S(pread64, fd, buffer, 64, 8);
	/* Events of pressure. */
	fd = open_file("/proc/pressure/memory", O_RDWR | O_NONBLOCK);
	S(write, fd, "some 150000 1000000", 20);
}

void group_sysfs(void)
{
	static const char *const folders[] = {"kernel", "module", "fs", "class", "power", "firmware",
		"devices/system", "devices/virtual", "devices/platform", "devices/pnp0", "devices/software",
		"devices/breakpoint", "hypervisor", "bus/event_source"};
	char path[64];
	for (ulong i = 0; i < LEN(folders); i++) {
		append(append(path, "/sys/"), folders[i]);
		read_below(path, 3, 12, 0);
	}
	read_below("/sys/kernel/slab", 1, 3, 0);
	read_below("/sys/kernel/debug", 2, 30, 0);
	read_below("/sys/kernel/security", 2, 30, 0);
}
