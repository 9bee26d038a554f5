/* Pipes, everything that waits for several files, terminals, devices, and the two interfaces of
 * asynchronous input and output. */
#include "workload.h"
#include <asm/termbits.h>
#include <linux/aio_abi.h>
#include <linux/eventpoll.h>
#include <linux/io_uring.h>

struct poll_fd {
	int fd;
	short events, revents;
};

void group_pipes(void)
{
	static char buffer[70000];
	int pipe[2];
	need("pipe", S(pipe2, pipe, 0));
	long pid = S(fork);
	if (pid == 0) {
		/* The other one has to wait for room, and this one for data. */
		S(close, pipe[1]);
		while (S(read, pipe[0], buffer, 5000) > 0)
			;
		leave(0);
	}
	S(close, pipe[0]);
	sleep_ms(1);
	need("write", S(write, pipe[1], buffer, sizeof(buffer)));
	S(fcntl, pipe[1], 1031 /* F_SETPIPE_SZ */, 131072);
	S(fcntl, pipe[1], 1032 /* F_GETPIPE_SZ */);
	S(write, pipe[1], buffer, 100);
	S(close, pipe[1]);
	expect("reader", wait_within(pid, 200) == 0);

	/* Packets; an end that is missing; a signal for it. */
	need("pipe", S(pipe2, pipe, 040000 /* O_DIRECT */ | O_NONBLOCK));
	S(write, pipe[1], "abc", 3);
	S(write, pipe[1], "de", 2);
	S(read, pipe[0], buffer, 2);
	S(read, pipe[0], buffer, 10);
	expect("empty", S(read, pipe[0], buffer, 1) == -EAGAIN);
	S(close, pipe[0]);
	ignore(SIGPIPE);
	expect("closed", S(write, pipe[1], "x", 1) == -EPIPE);

	/* A named one. */
	need("mknod", S(mknod, "/try/fifo", S_IFIFO | 0600, 0));
	pid = S(fork);
	if (pid == 0) {
		long fd = open_file("/try/fifo", O_WRONLY);
		S(write, fd, "x", 1);
		leave(0);
	}
	long fd = need("open", open_file("/try/fifo", O_RDONLY));
	need("read", S(read, fd, buffer, 1));
	expect("writer", wait_within(pid, 100) == 0);
	S(close, fd);
	expect("no reader", open_file("/try/fifo", O_WRONLY | O_NONBLOCK) == -ENXIO);
}

void group_polling(void)
{
	int pipe[2];
	u64 value = 3;
	need("pipe", S(pipe2, pipe, O_NONBLOCK));
	long event = need("eventfd", S(eventfd2, 0, O_NONBLOCK | 1 /* semaphore */));
	long timer = need("timerfd", S(timerfd_create, 1, O_NONBLOCK));
	struct __kernel_itimerspec soon = {{0, 1000000}, {0, 500000}};
	need("timerfd", S(timerfd_settime, timer, 0, &soon, NULL));
	S(timerfd_gettime, timer, &soon);
	u64 mask = 1UL << (SIGUSR1 - 1);
	S(rt_sigprocmask, SIG_BLOCK, &mask, NULL, 8);
	long signal = need("signalfd", S(signalfd4, -1, &mask, 8, O_NONBLOCK));
	long epoll = need("epoll", S(epoll_create1, 0));
	long outer = need("epoll", S(epoll_create1, O_CLOEXEC));

	long all[] = {pipe[0], pipe[1], event, timer, signal};
	static const u32 how[] = {EPOLLIN, EPOLLOUT | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN,
				  EPOLLIN | EPOLLEXCLUSIVE};
	for (ulong i = 0; i < LEN(all); i++) {
		struct epoll_event one = {how[i], i};
		need("epoll_ctl", S(epoll_ctl, epoll, EPOLL_CTL_ADD, all[i], &one));
	}
	struct epoll_event got[8], one = {EPOLLIN, 9};
	need("epoll_ctl", S(epoll_ctl, outer, EPOLL_CTL_ADD, epoll, &one));
	S(epoll_ctl, epoll, EPOLL_CTL_ADD, outer, &one);
	need("epoll_wait", S(epoll_wait, epoll, got, 8, 0));
	S(write, pipe[1], "x", 1);
	S(write, event, &value, 8);
	S(kill, S(getpid), SIGUSR1);
	sleep_ms(2);
	expect("epoll_wait", S(epoll_pwait, outer, got, 8, 10, NULL, 8) == 1);
	expect("epoll_wait", S(epoll_wait, epoll, got, 8, 10) >= 4);
	struct __kernel_timespec time = {0, 1000000};
	S(epoll_pwait2, epoll, got, 2, &time, NULL, 8);
	one.events = EPOLLIN | EPOLLET;
	S(epoll_ctl, epoll, EPOLL_CTL_MOD, event, &one);
	S(epoll_ctl, epoll, EPOLL_CTL_DEL, pipe[1], NULL);

	struct poll_fd polled[] = {{pipe[0], POLLIN}, {event, POLLIN}, {timer, POLLIN}, {77, POLLIN}};
	expect("poll", S(poll, polled, 4, 10) >= 3);
	S(ppoll, polled, 1, &time, &mask, 8);
	u64 set[16] = {1UL << pipe[0] | 1UL << event};
	need("select", S(select, 16, set, NULL, NULL, NULL));
	struct __kernel_timespec short_time = {0, 100000};
	struct {
		const u64 *mask;
		ulong size;
	} with_mask = {&mask, 8};
	S(pselect6, 16, NULL, set, NULL, &short_time, &with_mask);
	char buffer[256];
	S(read, timer, buffer, 8);
	S(read, event, buffer, 8);
	S(read, signal, buffer, 128);
	S(read, pipe[0], buffer, 8);
	/* A sleeper is woken by what another writes. */
	long pid = S(fork);
	if (pid == 0) {
		sleep_ms(2);
		S(write, pipe[1], "y", 1);
		leave(0);
	}
	polled[0].revents = 0;
	expect("poll", S(poll, polled, 1, 100) == 1);
	wait_within(pid, 100);
	/* Without a process that asks: a signal is sent. */
	ignore(SIGIO);
	S(fcntl, pipe[0], F_SETOWN, S(getpid));
	S(fcntl, pipe[0], F_SETFL, O_NONBLOCK | FASYNC);
	S(write, pipe[1], "z", 1);
}

void group_terminals(void)
{
	char buffer[256], path[32];
	long master = need("ptmx", open_file("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK));
	int number = 0, unlock = 0;
	need("TIOCGPTN", S(ioctl, master, 0x80045430, &number));
	need("TIOCSPTLCK", S(ioctl, master, 0x40045431, &unlock));
	append_number(append(path, "/dev/pts/"), number);
	long pid = S(fork);
	if (pid == 0) {
		S(setsid);
		long slave = need("slave", open_file(path, O_RDWR));
		S(ioctl, slave, 0x540e /* TIOCSCTTY */, 0);
		struct termios old;
		S(ioctl, slave, 0x5401 /* TCGETS */, &old);
		S(write, slave, "out\tline\n", 9);
		S(read, slave, buffer, 100);
		struct termios raw = old;
		raw.c_lflag = 0;
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 1;
		S(ioctl, slave, 0x5403 /* TCSETSW */, &raw);
		S(write, slave, "ready", 5);
		S(read, slave, buffer, 100);
		S(ioctl, slave, 0x5402, &old);
		struct {
			u16 rows, columns, x, y;
		} size = {24, 80};
		S(ioctl, slave, 0x5414, &size);
		S(ioctl, slave, 0x5413, &size);
		S(ioctl, slave, 0x540b /* TCFLSH */, 2);
		S(ioctl, slave, 0x5409 /* TCSBRK */, 1);
		S(vhangup);
		leave(0);
	}
	/* Edited, echoed, and ended by ^C in the end. */
	sleep_ms(1);
	S(write, master, "typeed\177\177d line\025again\r", 21);
	sleep_ms(2);
	S(write, master, "raw", 3);
	sleep_ms(2);
	need("read", S(read, master, buffer, sizeof(buffer)));
	int packet = 1;
	S(ioctl, master, 0x5420 /* TIOCPKT */, &packet);
	S(write, master, "\003\032\034", 3);
	S(read, master, buffer, sizeof(buffer));
	wait_within(pid, 100);
	S(close, master);
	/* The console. */
	struct termios console;
	S(ioctl, 1, 0x5401, &console);
	S(ioctl, 1, 0x5402, &console);
	u32 serial[32];
	S(ioctl, 1, 0x541e /* TIOCGSERIAL */, serial);
	S(ioctl, 1, 0x5415 /* TIOCMGET */, serial);
}

void group_devices(void)
{
	static char buffer[PAGE];
	static const char *const all[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
		"/dev/urandom", "/dev/kmsg", "/dev/mem", "/dev/port", "/dev/console", "/dev/tty",
		"/dev/tty0", "/dev/rtc0", "/dev/snapshot", "/dev/hpet", "/dev/nvram", "/dev/loop0",
		"/dev/fuse", "/dev/userfaultfd", "/dev/cpu_dma_latency", "/dev/autofs",
		"/dev/udmabuf", "/dev/vcs", "/dev/uinput", "/dev/watchdog"};
	/* Otherwise the first reader waits a second, and busily, until there is enough chance. */
	struct {
		int bits, size;
		char bytes[32];
	} chance = {256, 32};
	long random = open_file("/dev/random", O_RDWR);
	S(ioctl, random, 0x40085203 /* RNDADDENTROPY */, &chance);
	S(close, random);
	for (ulong i = 0; i < LEN(all); i++) {
		long fd = open_file(all[i], O_RDWR | O_NONBLOCK);
		if (fd < 0)
			fd = open_file(all[i], O_RDONLY | O_NONBLOCK);
		S(read, fd, buffer, 200);
		struct poll_fd polled = {fd, POLLIN | POLLOUT};
		S(poll, &polled, 1, 0);
		S(lseek, fd, 0, 0);
		if (!equal(all[i], "/dev/mem") && !equal(all[i], "/dev/port"))
			if (!equal(all[i], "/dev/console") && !equal(all[i], "/dev/watchdog"))
				S(write, fd, "4\n", 2);
		void *at = (void *)S(mmap, NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
		if ((long)at > 0 && !equal(all[i], "/dev/mem"))
			S(munmap, at, PAGE);
		S(ioctl, fd, 0x12345678, buffer);
		/* The clock of the computer, and the sources of random numbers. */
		S(ioctl, fd, 0x80247009, buffer);
		S(ioctl, fd, 0x80045200, buffer);
		S(close, fd);
	}
	need("getrandom", S(getrandom, buffer, 300, 0));
	S(getrandom, buffer, 16, 1);
	S(getrandom, buffer, 16, 4);
	long fd = open_file("/dev/kmsg", O_WRONLY);
	S(write, fd, "<6>workload: a message\n", 23);
}

static long ring, *const nothing = NULL;
static char *submissions, *completions;
static struct io_uring_sqe *entries;
static struct io_uring_params parameters;

static struct io_uring_sqe *next_entry(u8 opcode, long fd, const void *address, u32 size, ulong offset)
{
	volatile u32 *tail = (u32 *)(submissions + parameters.sq_off.tail);
	u32 index = *tail & (parameters.sq_entries - 1);
	struct io_uring_sqe *entry = &entries[index];
	memset(entry, 0, sizeof(*entry));
	entry->opcode = opcode;
	entry->fd = fd;
	entry->addr = (ulong)address;
	entry->len = size;
	entry->off = offset;
	entry->user_data = opcode;
	((u32 *)(submissions + parameters.sq_off.array))[index] = index;
	*tail += 1;
	return entry;
}

static long submit(u32 count, u32 wanted)
{
	struct __kernel_timespec limit = {0, 20000000};
	struct io_uring_getevents_arg arg = {.ts = (ulong)&limit};
	long done = S(io_uring_enter, ring, count, wanted, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
		      &arg, sizeof(arg));
	/* Everything that came is taken. */
	volatile u32 *head = (u32 *)(completions + parameters.cq_off.head);
	*head = *(volatile u32 *)(completions + parameters.cq_off.tail);
	return done;
}

void group_io_uring(void)
{
	static char buffer[2 * PAGE];
	parameters.flags = IORING_SETUP_CLAMP;
	ring = need("io_uring_setup", S(io_uring_setup, 32, &parameters));
	if (ring < 0)
		return;
	submissions = (char *)S(mmap, NULL, 4 * PAGE, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	completions = submissions;
	entries = (void *)S(mmap, NULL, PAGE, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	need("mmap", (long)submissions);
	need("mmap", (long)entries);

	int pair[2], pipe[2];
	S(socketpair, 1, 1, 0, pair);
	S(pipe2, pipe, 0);
	long file = open_file("/try/ring", O_RDWR | O_CREAT);
	S(fcntl, file, F_SETFL, 0);
	struct iovec parts[2] = {{buffer, 100}, {buffer + 100, 200}};
	struct __kernel_timespec time = {0, 1000000};
	struct epoll_event event = {EPOLLIN, 0};

	next_entry(IORING_OP_NOP, -1, nothing, 0, 0);
	next_entry(IORING_OP_WRITE, file, buffer, PAGE, 0)->flags = IOSQE_IO_LINK;
	next_entry(IORING_OP_FSYNC, file, nothing, 0, 0)->flags = IOSQE_IO_LINK;
	next_entry(IORING_OP_READ, file, buffer, 100, 0);
	next_entry(IORING_OP_WRITEV, file, parts, 2, 100);
	next_entry(IORING_OP_READV, file, parts, 2, 0)->flags = IOSQE_ASYNC;
	need("submit", submit(6, 6));

	next_entry(IORING_OP_POLL_ADD, pipe[0], nothing, 0, 0)->poll32_events = POLLIN;
	next_entry(IORING_OP_RECV, pair[1], buffer, 50, 0);
	next_entry(IORING_OP_SEND, pair[0], "message", 7, 0);
	next_entry(IORING_OP_WRITE, pipe[1], "x", 1, 0);
	next_entry(IORING_OP_TIMEOUT, -1, &time, 1, 0);
	need("submit", submit(5, 4));

	next_entry(IORING_OP_OPENAT, AT_FDCWD, "/try/ring", 0644, 0);
	next_entry(IORING_OP_STATX, AT_FDCWD, "/try/ring", 0xfff, (ulong)buffer);
	next_entry(IORING_OP_FALLOCATE, file, (void *)8192L, 0, 0);
	next_entry(IORING_OP_FADVISE, file, nothing, PAGE, 0);
	next_entry(IORING_OP_MADVISE, -1, buffer, PAGE, 0)->fadvise_advice = 4;
	struct io_uring_sqe *entry = next_entry(IORING_OP_SPLICE, pipe[1], nothing, 100, -1UL);
	entry->splice_off_in = 0;
	entry->splice_fd_in = file;
	next_entry(IORING_OP_EPOLL_CTL, S(epoll_create1, 0), &event, EPOLL_CTL_ADD, pipe[0]);
	next_entry(IORING_OP_RENAMEAT, AT_FDCWD, "/try/ring", (u32)AT_FDCWD, (ulong)"/try/ring2");
	next_entry(IORING_OP_UNLINKAT, AT_FDCWD, "/try/ring2", 0, 0);
	next_entry(IORING_OP_MKDIRAT, AT_FDCWD, "/try/ring3", 0755, 0);
	next_entry(IORING_OP_POLL_REMOVE, -1, (void *)99L, 0, 0);
	next_entry(IORING_OP_ASYNC_CANCEL, -1, (void *)99L, 0, 0);
	next_entry(IORING_OP_SHUTDOWN, pair[0], nothing, 1, 0);
	need("submit", submit(13, 13));

	/* What is registered, and read by it. */
	struct iovec whole = {buffer, sizeof(buffer)};
	S(io_uring_register, ring, IORING_REGISTER_BUFFERS, &whole, 1);
	int files[2] = {file, pair[0]};
	S(io_uring_register, ring, IORING_REGISTER_FILES, files, 2);
	next_entry(IORING_OP_READ_FIXED, 0, buffer, 100, 0)->flags = IOSQE_FIXED_FILE;
	next_entry(IORING_OP_WRITE_FIXED, 0, buffer, 100, 0)->flags = IOSQE_FIXED_FILE;
	struct io_uring_sqe *link = next_entry(IORING_OP_READ, pair[1], buffer, 10, 0);
	link->flags = IOSQE_IO_LINK;
	next_entry(IORING_OP_LINK_TIMEOUT, -1, &time, 1, 0);
	submit(4, 4);
	long event_fd = S(eventfd2, 0, 0);
	S(io_uring_register, ring, IORING_REGISTER_EVENTFD, &event_fd, 1);
	static u8 probe[16 + 8 * 64];
	S(io_uring_register, ring, IORING_REGISTER_PROBE, probe, 64);
	S(io_uring_register, ring, IORING_UNREGISTER_FILES, NULL, 0);
	S(io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);

	/* A thread of the kernel that takes entries by itself. */
	struct io_uring_params polled = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1};
	long second = S(io_uring_setup, 4, &polled);
	sleep_ms(5);
	S(io_uring_enter, second, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
	S(close, second);
	S(close, ring);
	sleep_ms(5);
}

void group_aio(void)
{
	static char buffer[PAGE];
	aio_context_t context = 0;
	need("io_setup", S(io_setup, 8, &context));
	long file = open_file("/try/aio", O_RDWR | O_CREAT);
	long event = S(eventfd2, 0, 0);
	int pipe[2];
	S(pipe2, pipe, 0);
	struct iocb write = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file,
		.aio_buf = (ulong)buffer, .aio_nbytes = PAGE, .aio_flags = IOCB_FLAG_RESFD,
		.aio_resfd = event};
	struct iocb sync = {.aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = file};
	struct iocb poll = {.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = pipe[0], .aio_buf = POLLIN};
	struct iocb *all[] = {&write, &sync, &poll};
	need("io_submit", S(io_submit, context, 3, all));
	S(write, pipe[1], "x", 1);
	struct io_event events[4];
	struct __kernel_timespec time = {0, 10000000};
	need("io_getevents", S(io_getevents, context, 1, 4, events, &time));
	S(io_cancel, context, &poll, events);
	S(io_pgetevents, context, 0, 4, events, &time, NULL);
	need("io_destroy", S(io_destroy, context));
}
