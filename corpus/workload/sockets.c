/* Sockets: of this computer, of the internet over the loopback interface, and of the kernel (netlink). */
#include "workload.h"
#include <linux/filter.h>
#include <linux/genetlink.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/tcp.h>

enum { UNIX = 1, INET = 2, INET6 = 10, NETLINK = 16, PACKET = 17 };
enum { STREAM = 1, DGRAM = 2, RAW = 3, SEQPACKET = 5, NONBLOCK = 04000 };
#define LOOPBACK 0x0100007f
#define SWAP16(port) ((u16)((port) >> 8 | (port) << 8))

struct message {
	void *name;
	u32 name_size;
	struct iovec *parts;
	ulong part_count;
	void *control;
	ulong control_size;
	int flags;
};

struct control {
	ulong size;
	int level, type;
	int data[4];
};

static long set(long fd, int level, int option, int value)
{
	return S(setsockopt, fd, level, option, &value, 4);
}

/* Options of a level that are read, and set to what they were. */
static void options(long fd, int level, int count)
{
	char buffer[256];
	for (int option = 0; option < count; option++) {
		int size = sizeof(buffer);
		if (S(getsockopt, fd, level, option, buffer, &size) >= 0)
			S(setsockopt, fd, level, option, buffer, size);
	}
}

struct unix_name {
	u16 family;
	char path[32];
};

void group_unix_sockets(void)
{
	static char buffer[40000];
	int pair[2], dgram[2], packets[2];
	need("socketpair", S(socketpair, UNIX, STREAM, 0, pair));
	need("socketpair", S(socketpair, UNIX, DGRAM | NONBLOCK, 0, dgram));
	need("socketpair", S(socketpair, UNIX, SEQPACKET, 0, packets));
	S(write, dgram[0], "a datagram", 10);
	S(read, dgram[1], buffer, 5);
	S(write, packets[0], "a packet", 8);
	S(recvfrom, packets[1], buffer, 4, 2 /* peek */, NULL, NULL);
	S(read, packets[1], buffer, 4);
	while (S(write, dgram[0], buffer, 3000) > 0)
		;
	while (S(read, dgram[1], buffer, 3000) > 0)
		;

	/* Files and identities that are sent along. */
	set(pair[1], 1, 16 /* SO_PASSCRED */, 1);
	struct iovec part = {buffer, 10};
	struct control control = {24, 1, 1 /* SCM_RIGHTS */, {dgram[0], dgram[1]}};
	struct message message = {.parts = &part, .part_count = 1, .control = &control,
		.control_size = 24};
	need("sendmsg", S(sendmsg, pair[0], &message, 0));
	static char received[256];
	message.control = received;
	message.control_size = sizeof(received);
	need("recvmsg", S(recvmsg, pair[1], &message, 0));
	struct {
		struct message message;
		u32 size;
	} several[2] = {{message, 0}, {message, 0}};
	several[0].message.control = several[1].message.control = NULL;
	several[0].message.control_size = several[1].message.control_size = 0;
	S(sendmmsg, pair[0], several, 2, 0);
	struct __kernel_timespec time = {0, 1000000};
	S(recvmmsg, pair[1], several, 2, 0x40, &time);
	/* A socket in flight in itself: only the collector of garbage frees it. */
	control.data[0] = pair[0];
	control.data[1] = pair[1];
	message.control = &control;
	message.control_size = 24;
	S(sendmsg, pair[0], &message, 0);
	S(close, pair[0]);
	S(close, pair[1]);
	S(socketpair, UNIX, STREAM, 0, pair);
	options(pair[0], 1, 80);

	/* A name in the file system, one without, and one that is full. */
	struct unix_name name = {UNIX, "/try/socket"}, abstract = {UNIX, "\0abstract"};
	long server = S(socket, UNIX, STREAM, 0);
	need("bind", S(bind, server, &name, 20));
	need("listen", S(listen, server, 1));
	long pid = S(fork);
	if (pid == 0) {
		long client = S(socket, UNIX, STREAM, 0);
		need("connect", S(connect, client, &name, 20));
		S(sendto, client, "hello", 5, 0x4000, NULL, 0);
		S(read, client, buffer, 10);
		leave(0);
	}
	int size = sizeof(name);
	long client = need("accept", S(accept4, server, &name, &size, 0));
	S(read, client, buffer, 5);
	S(write, client, "bye", 3);
	S(shutdown, client, 2);
	expect("client", wait_within(pid, 100) == 0);
	S(getsockname, server, &name, &size);
	S(getpeername, client, &name, &size);
	S(ioctl, client, SIOCOUTQ, buffer);
	long other = S(socket, UNIX, DGRAM, 0);
	need("bind", S(bind, other, &abstract, 11));
	S(sendto, dgram[0], "x", 1, 0, &abstract, 11);
	S(connect, other, &abstract, 11);
	S(connect, other, &name, 20);
	S(unlink, "/try/socket");
}

struct interface {
	char name[16];
	union {
		short flags;
		struct sockaddr_in address;
		int index;
		char room[24];
	};
};

static void interface_up(void)
{
	struct interface lo = {.name = "lo"};
	long fd = need("socket", S(socket, INET, DGRAM, 0));
	S(ioctl, fd, SIOCGIFFLAGS, &lo);
	lo.flags |= 1;
	need("SIOCSIFFLAGS", S(ioctl, fd, SIOCSIFFLAGS, &lo));
	lo.address = (struct sockaddr_in){INET, 0, {LOOPBACK}};
	S(ioctl, fd, SIOCSIFADDR, &lo);
	static const u16 asked[] = {SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFINDEX, SIOCGIFHWADDR,
		SIOCGIFTXQLEN, SIOCGIFBRDADDR, SIOCETHTOOL, SIOCGARP, SIOCADDRT};
	for (ulong i = 0; i < LEN(asked); i++)
		S(ioctl, fd, asked[i], &lo);
	struct {
		int size;
		void *to;
	} list = {200, map(PAGE)};
	S(ioctl, fd, SIOCGIFCONF, &list);
	S(close, fd);
}

static void stream_of(int family, void *address, int size, int times)
{
	static char buffer[60000];
	long server = need("socket", S(socket, family, STREAM, 0));
	set(server, 1, 2 /* SO_REUSEADDR */, 1);
	need("bind", S(bind, server, address, size));
	need("listen", S(listen, server, 4));
	long pid = S(fork);
	if (pid == 0) {
		for (int i = 0; i < times; i++) {
			long client = S(socket, family, STREAM, 0);
			set(client, 6, TCP_NODELAY, 1);
			if (need("connect", S(connect, client, address, size)) < 0)
				leave(1);
			S(write, client, buffer, sizeof(buffer));
			S(sendto, client, "!", 1, 1 /* urgent */, NULL, 0);
			S(shutdown, client, 1);
			while (S(read, client, buffer, sizeof(buffer)) > 0)
				;
			S(close, client);
		}
		leave(0);
	}
	for (int i = 0; i < times; i++) {
		long client = need("accept", S(accept, server, NULL, NULL));
		set(client, 6, TCP_CORK, 1);
		set(client, 1, 9 /* SO_KEEPALIVE */, 1);
		while (S(recvfrom, client, buffer, 9000, 0, NULL, NULL) > 0)
			;
		S(write, client, buffer, 10000);
		set(client, 6, TCP_CORK, 0);
		options(client, 6, 40);
		options(client, 1, 80);
		options(client, family == INET ? 0 : 41, 80);
		long file = open_file("/init", O_RDONLY);
		S(sendfile, client, file, NULL, 20000);
		S(close, file);
		S(close, client);
	}
	expect("client", wait_within(pid, 1000) == 0);
	S(close, server);
	/* Nobody listens. */
	long client = S(socket, family, STREAM, 0);
	expect("refused", S(connect, client, address, size) == -ECONNREFUSED);
	S(close, client);
}

void group_inet_sockets(void)
{
	static char buffer[9000];
	interface_up();
	struct sockaddr_in address = {INET, SWAP16(7777), {LOOPBACK}};
	struct sockaddr_in6 address6 = {INET6, SWAP16(7778)};
	address6.sin6_addr.in6_u.u6_addr8[15] = 1;
	stream_of(INET, &address, sizeof(address), 2);
	long six = S(socket, INET6, STREAM, 0);
	if (six >= 0)
		stream_of(INET6, &address6, sizeof(address6), 1);

	/* Datagrams: in parts, to several, connected, and to nobody. */
	long one = S(socket, INET, DGRAM | NONBLOCK, 0), two = S(socket, INET, DGRAM | NONBLOCK, 0);
	need("bind", S(bind, one, &address, sizeof(address)));
	set(one, 0, 8 /* IP_PKTINFO */, 1);
	set(one, 1, 29 /* SO_TIMESTAMP */, 1);
	set(two, 1, 6 /* SO_BROADCAST */, 1);
	need("sendto", S(sendto, two, buffer, 8000, 0, &address, sizeof(address)));
	int size = sizeof(address);
	sleep_ms(1);
	expect("recvfrom", S(recvfrom, one, buffer, sizeof(buffer), 0, &address, &size) == 8000);
	address = (struct sockaddr_in){INET, SWAP16(7779), {LOOPBACK}};
	S(connect, two, &address, sizeof(address));
	S(write, two, "x", 1);
	S(write, two, "x", 1);
	set(two, 0, 11 /* IP_RECVERR */, 1);
	S(recvfrom, two, buffer, 100, 0x2000, NULL, NULL);
	struct {
		u32 group, interface;
	} member = {0x010000e0 + 0x01000000, LOOPBACK};
	S(setsockopt, one, 0, 35 /* IP_ADD_MEMBERSHIP */, &member, 8);
	S(setsockopt, one, 0, 36, &member, 8);
	options(one, 0, 60);
	options(one, 17, 110);

	/* A filter of packets, and an echo of the kernel. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 20, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0xffff),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog filter = {LEN(code), code};
	need("filter", S(setsockopt, one, 1, 26 /* SO_ATTACH_FILTER */, &filter, sizeof(filter)));
	address = (struct sockaddr_in){INET, SWAP16(7777), {LOOPBACK}};
	S(sendto, S(socket, INET, DGRAM, 0), "abc", 3, 0, &address, sizeof(address));
	long raw = need("socket", S(socket, INET, RAW | NONBLOCK, 1 /* ICMP */));
	static const u8 echo[8] = {8, 0, 0xf7, 0xff};
	need("echo", S(sendto, raw, echo, 8, 0, &address, sizeof(address)));
	sleep_ms(1);
	expect("echo", S(read, raw, buffer, 100) > 0);
	long ping = S(socket, INET, DGRAM, 1);
	S(sendto, ping, echo, 8, 0, &address, sizeof(address));

	/* What goes over an interface, as others see it. */
	long packets = S(socket, PACKET, RAW | NONBLOCK, SWAP16(3));
	S(setsockopt, packets, 1, 26, &filter, sizeof(filter));
	S(sendto, S(socket, INET, DGRAM, 0), "abcdefgh", 8, 0, &address, sizeof(address));
	S(read, packets, buffer, 100);
	for (int family = 0; family < 46; family++)
		S(close, S(socket, family, family % 2 ? STREAM : DGRAM, 0));
}

static long ask(long fd, int type, int flags, const void *body, int size)
{
	static char answer[16384];
	struct {
		struct nlmsghdr header;
		char body[256];
	} request = {{sizeof(struct nlmsghdr) + size, type, NLM_F_REQUEST | flags, 1, 0}};
	memcpy(request.body, body, size);
	S(sendto, fd, &request, request.header.nlmsg_len, 0, NULL, 0);
	/* Up to the end of the list, or the error. */
	long got = S(recvfrom, fd, answer, sizeof(answer), 0, NULL, NULL);
	for (long more = got; more > 0;)
		more = S(recvfrom, fd, answer, sizeof(answer), 0, NULL, NULL);
	return got;
}

void group_netlink(void)
{
	long fd = need("socket", S(socket, NETLINK, RAW | NONBLOCK, 0));
	struct {
		u16 family, pad;
		u32 pid, groups;
	} name = {NETLINK, 0, 0, 1};
	need("bind", S(bind, fd, &name, sizeof(name)));
	static const struct rtgenmsg all = {0};
	static const u16 dumped[] = {RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE, RTM_GETNEIGH, RTM_GETRULE,
		RTM_GETQDISC, RTM_GETTCLASS, RTM_GETNEIGHTBL, RTM_GETNETCONF, RTM_GETNSID, RTM_GETSTATS};
	static char zeros[64];
	for (ulong i = 0; i < LEN(dumped); i++) {
		need("dump", ask(fd, dumped[i], NLM_F_DUMP, &all, sizeof(all)));
		zeros[0] = INET;
		ask(fd, dumped[i], NLM_F_DUMP, zeros, 32);
	}
	/* An address, a route, and a link that come and go. */
	struct {
		struct ifaddrmsg header;
		struct rtattr attribute;
		u32 address;
	} address = {{INET, 8, 0, 0, 1}, {8, IFA_LOCAL}, 0x0200007f};
	ask(fd, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE, &address, sizeof(address));
	struct {
		struct rtmsg header;
		struct rtattr destination;
		u32 to;
		struct rtattr out;
		u32 interface;
	} route = {{INET, 24, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_LINK, RTN_UNICAST, 0},
		   {8, RTA_DST}, 0x0000000a, {8, RTA_OIF}, 1};
	ask(fd, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE, &route, sizeof(route));
	route.header.rtm_dst_len = 32;
	ask(fd, RTM_GETROUTE, 0, &route, sizeof(route));
	ask(fd, RTM_DELADDR, NLM_F_ACK, &address, sizeof(address));
	struct {
		struct ifinfomsg header;
		struct rtattr mtu;
		u32 value;
	} link = {{.ifi_index = 1}, {8, IFLA_MTU}, 9000};
	ask(fd, RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link));
	ask(fd, RTM_SETLINK, NLM_F_ACK, &link, sizeof(link));

	/* The families of messages that subsystems have. */
	long generic = S(socket, NETLINK, RAW | NONBLOCK, 16);
	struct genlmsghdr families = {CTRL_CMD_GETFAMILY, 1};
	ask(generic, GENL_ID_CTRL, NLM_F_DUMP, &families, sizeof(families));
	for (int protocol = 0; protocol < 24; protocol++) {
		long other = S(socket, NETLINK, RAW | NONBLOCK, protocol);
		name.groups = 0;
		S(bind, other, &name, sizeof(name));
		if (other >= 0 && protocol != 16)
			ask(other, 20, NLM_F_DUMP, zeros, 56);
		options(other, 270, 14);
		S(close, other);
	}
}
