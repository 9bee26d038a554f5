/* Sockets: Unix ones, and TCP and UDP on the loopback interface. */
#include "cases.h"

struct fd { int fd; short events, revents; };
struct un { unsigned short family; char path[108]; };
struct in { unsigned short family, port; unsigned char ip[4], zero[8]; };
struct in6 { unsigned short family, port; unsigned flow; unsigned char ip[16]; unsigned scope; };
struct vec { void *base; word size; };
struct msg { void *name; word name_size; struct vec *vec; word count; void *control; word control_size; word flags; };
struct mmsg { struct msg msg; word length; };
enum { UNIX = 1, INET = 2, INET6 = 10, STREAM = 1, DGRAM = 2, SEQ = 5, NONBLOCK = O_NONBLOCK, CLOEXEC = O_CLOEXEC };
enum { PEEK = 2, TRUNC_ = 0x20, DONTWAIT = 0x40, WAITALL = 0x100, NOSIGNAL = 0x4000 };
#define PORT(n) (unsigned short)((n) >> 8 | (n) << 8)

static int pipes;
static void piped(int signal) { pipes++; }
static int events(int fd) {
    struct fd one = { fd, (short)0x23ff, 0 };
    SYS(poll, &one, 1, 0);
    return one.revents;
}
static int option(int fd, int level, int name) {
    int value = -77, size = 4;
    long result = SYS(getsockopt, fd, level, name, &value, &size);
    return result < 0 ? result : value;
}
static int set(int fd, int level, int name, int value) { return SYS(setsockopt, fd, level, name, &value, 4); }
static struct un un(const char *path, int size) {
    struct un name = { UNIX };
    memcpy(name.path, path, size);
    return name;
}
static void name_of(int fd) {
    out.ints[127] = 128;
    T(getsockname, fd, out.bytes, &out.ints[127]);
    out.ints[127] = 128;
    T(getpeername, fd, out.bytes, &out.ints[127]);
}

static void making(void) {
    int ends[2];
    for (int family = 0; family < 3; family++) for (int kind = 0; kind < 12; kind++)
        for (int protocol = 0; protocol < 18; protocol += protocol ? protocol == 6 ? 11 : 5 : 1) if (family != 2 || kind != 3 && kind != 10) {
            long fd = SYS(socket, family, kind, protocol);
            V(family * 10000 + kind * 100 + protocol); V(fd < 0 ? fd : 0);
            if (fd >= 0) SYS(close, fd);
            if (kind != 3 && kind != 10) T(socketpair, family, kind, protocol, ends);
            if (family == 1) { SYS(close, ends[0]); SYS(close, ends[1]); }
        }
    T(socket, UNIX, STREAM | 1 << 30, 0); T(socket, -1, STREAM, 0); T(socket, 99, STREAM, 0); T(socket, UNIX, STREAM, -1);
    EACH_BAD(p, T(socketpair, UNIX, STREAM, 0, p));
    SYS(socketpair, UNIX, STREAM | NONBLOCK | CLOEXEC, 0, ends);
    V(SYS(fcntl, ends[0], 1, 0)); V(SYS(fcntl, ends[0], 3, 0));
    EACH_FD(fd, T(bind, fd, out.bytes, 16); T(listen, fd, 1); T(accept, fd, 0, 0); T(accept4, fd, 0, 0, 0); T(connect, fd, out.bytes, 16);
            T(getsockname, fd, out.bytes, out.bytes); T(getpeername, fd, out.bytes, out.bytes); T(shutdown, fd, 0);
            T(setsockopt, fd, 1, 2, out.bytes, 4); T(getsockopt, fd, 1, 2, out.bytes, out.bytes);
            T(sendto, fd, out.bytes, 1, 0, 0, 0); T(recvfrom, fd, out.bytes, 1, 0, 0, 0);
            T(sendmsg, fd, out.bytes, 0); T(recvmsg, fd, out.bytes, 0); T(sendmmsg, fd, out.bytes, 1, 0); T(recvmmsg, fd, out.bytes, 1, 0, 0));
    T(lseek, ends[0], 0, 0); T(pread64, ends[0], out.bytes, 1, 0); T(ftruncate, ends[0], 0); T(fsync, ends[0]);
    unsigned stat[36]; SYS(fstat, ends[0], stat); V(stat[6]);
    SYS(close, ends[0]); SYS(close, ends[1]);
}

static void pairs(int kind) {
    int a[2];
    V(kind);
    T(socketpair, UNIX, kind | NONBLOCK, 0, a);
    name_of(a[0]);
    V(events(a[0])); T(read, a[0], out.bytes, 8); T(read, a[0], out.bytes, 0);
    T(write, a[0], "abc", 3); T(write, a[0], "defg", 4); V(events(a[1]));
    T(ioctl, a[1], 0x541b, out.bytes);
    T(recvfrom, a[1], out.bytes, 2, PEEK, 0, 0); T(recvfrom, a[1], out.bytes, 2, 0, 0, 0); T(recvfrom, a[1], out.bytes, 2, TRUNC_, 0, 0);
    T(recvfrom, a[1], out.bytes, 16, WAITALL | DONTWAIT, 0, 0); T(recvfrom, a[1], out.bytes, 16, DONTWAIT, 0, 0);
    T(write, a[0], "x", 1); T(write, a[0], "", 0); T(write, a[0], "y", 1);
    struct vec vec[2] = { { out.bytes, 3 }, { out.bytes + 8, 3 } };
    T(readv, a[1], vec, 2); T(readv, a[1], vec, 2); T(readv, a[1], vec, 2);
    vec[0].base = "one"; vec[1].base = "two";
    T(writev, a[1], vec, 2); T(read, a[0], out.bytes, 5); T(read, a[0], out.bytes, 5);
    EACH_BAD(p, T(write, a[0], p, 1)); T(write, a[0], "z", 1); T(recvfrom, a[1], ro, 1, 0, 0, 0); V(events(a[1])); T(read, a[1], out.bytes, 1);
    T(sendto, a[0], "x", 1, 0, out.bytes, 200); T(sendto, a[0], "x", 1, 0, out.bytes, -1);
    /* Half closed. */
    T(shutdown, a[0], 3); T(shutdown, a[0], -1);
    T(shutdown, a[0], 1); V(events(a[0])); V(events(a[1]));
    T(write, a[0], "x", 1); V(pipes); T(sendto, a[0], "x", 1, NOSIGNAL, 0, 0); V(pipes);
    if (kind != DGRAM) T(read, a[1], out.bytes, 1);
    T(write, a[1], "back", 4); T(read, a[0], out.bytes, 9);
    T(shutdown, a[0], 0); V(events(a[0])); V(events(a[1])); T(write, a[1], "x", 1); V(pipes); if (kind != DGRAM) T(read, a[0], out.bytes, 9);
    SYS(close, a[1]); V(events(a[0])); SYS(close, a[0]);
    /* Closed, with and without unread data. */
    SYS(socketpair, UNIX, kind | NONBLOCK, 0, a);
    T(write, a[1], "last", 4); SYS(close, a[1]); V(events(a[0])); T(read, a[0], out.bytes, 9); T(read, a[0], out.bytes, 9);
    T(write, a[0], "x", 1); V(pipes); V(events(a[0])); T(write, a[0], "x", 1); T(getpeername, a[0], out.bytes, &(int){ 0 }); SYS(close, a[0]);
    SYS(socketpair, UNIX, kind | NONBLOCK, 0, a);
    T(write, a[0], "unread", 6); SYS(close, a[1]); V(events(a[0])); V(option(a[0], 1, 4)); V(option(a[0], 1, 4)); T(read, a[0], out.bytes, 9); SYS(close, a[0]);
    SYS(socketpair, UNIX, kind | NONBLOCK, 0, a);
    T(write, a[0], "unread", 6); SYS(close, a[1]); T(read, a[0], out.bytes, 9); T(read, a[0], out.bytes, 9); SYS(close, a[0]);
    /* A full buffer. */
    SYS(socketpair, UNIX, kind | NONBLOCK, 0, a);
    int count = 0;
    while (SYS(write, a[0], out.bytes, 512) == 512) count++;
    T(write, a[0], out.bytes, 512); V(count > 8); if (kind != DGRAM) V(events(a[0]));
    for (int i = 0; i < count; i++) SYS(read, a[1], out.bytes, 512);
    fill(); V(events(a[0])); V(events(a[1]));
    if (kind != STREAM) T(write, a[0], edge - 4096 * 0, 1 << 20);
    SYS(close, a[0]); SYS(close, a[1]);
}

static void options(int family, int kind) {
    V(family * 100 + kind);
    int fd = SYS(socket, family, kind, 0);
    static const int names[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 30, 38, 39 };
    for (int i = 0; i < COUNT(names); i++) { V(names[i]); V(option(fd, 1, names[i])); }
    for (int i = 0; i < COUNT(names); i++) if (names[i] != 1 && names[i] != 16 && (names[i] != 15 || family == INET)) { V(names[i]); V(set(fd, 1, names[i], 5)); V(option(fd, 1, names[i])); }
    V(set(fd, 1, 7, 100000)); V(option(fd, 1, 7)); V(set(fd, 1, 8, 100000)); V(option(fd, 1, 8)); V(set(fd, 1, 7, 1 << 30)); V(option(fd, 1, 7) > 0);
    V(set(fd, 1, 999, 1)); V(option(fd, 1, 999)); V(set(fd, 77, 1, 1)); V(option(fd, 77, 1));
    int linger[2] = { 7, 5 }; long time[2] = { 1, 500000 }, odd[2] = { 1, 1000000 }, minus[2] = { -1, 0 };
    T(setsockopt, fd, 1, 13, linger, 8); T(setsockopt, fd, 1, 13, linger, 4); out.ints[127] = 8; T(getsockopt, fd, 1, 13, out.bytes, &out.ints[127]);
    T(setsockopt, fd, 1, 20, time, 16); T(setsockopt, fd, 1, 20, time, 8); T(setsockopt, fd, 1, 21, odd, 16);
    out.ints[127] = 16; T(getsockopt, fd, 1, 20, out.bytes, &out.ints[127]);
    T(setsockopt, fd, 1, 20, minus, 16);
    out.ints[127] = 2; T(getsockopt, fd, 1, 3, out.bytes, &out.ints[127]); out.ints[127] = -1; T(getsockopt, fd, 1, 3, out.bytes, &out.ints[127]);
    T(setsockopt, fd, 1, 2, out.bytes, 3); T(setsockopt, fd, 1, 2, out.bytes, -1);
    EACH_BAD(p, T(setsockopt, fd, 1, 2, p, 4); T(getsockopt, fd, 1, 3, p, out.bytes + 500); T(getsockopt, fd, 1, 3, out.bytes, p));
    if (family == INET && kind == STREAM) for (int name = 1; name < 8; name++) if (name != 2) { V(name); V(option(fd, 6, name)); V(set(fd, 6, name, 3)); V(option(fd, 6, name)); V(set(fd, 6, name, 0)); }
    if (family == INET) for (int name = 1; name < 3; name++) { V(option(fd, 0, name)); V(set(fd, 0, name, 8)); V(option(fd, 0, name)); V(set(fd, 0, name, 256)); }
    V(events(fd));
    SYS(close, fd);
}

static void named(int kind) {
    V(kind);
    struct un path = un("sock", 5), hidden_ = un("\0unwind", 7), other = un("file", 5), missing = un("no/such", 8), client = un("client", 7);
    int s = SYS(socket, UNIX, kind | NONBLOCK, 0), c = SYS(socket, UNIX, kind | NONBLOCK, 0);
    T(listen, s, 5); T(bind, s, &path, 1); T(bind, s, &path, 111); T(bind, s, &missing, 110); T(bind, s, &other, 110); T(bind, s, &(struct in){ INET }, 16);
    EACH_BAD(p, T(bind, s, p, 16); T(connect, s, p, 16));
    T(connect, c, &path, 110); T(connect, c, &other, 110); T(connect, c, &missing, 110); T(connect, c, &hidden_, 9); T(connect, c, &path, 2); T(connect, c, &path, 1); T(connect, c, &(struct in){ INET }, 16);
    T(bind, s, &path, 110); T(bind, s, &path, 110); name_of(s);
    unsigned stat[36]; SYS(stat, "sock", stat); V(stat[6]); T(open, "sock", O_RDONLY); T(access, "sock", 6);
    T(bind, c, &path, 110);
    T(connect, c, &path, 110);
    T(accept, s, 0, 0);
    if (kind != DGRAM) {
        T(getpeername, c, out.bytes, &(int){ 16 });
        T(listen, s, 0); T(listen, s, 1); V(option(s, 1, 30)); V(events(s)); T(connect, s, &path, 110); T(read, s, out.bytes, 1); T(write, s, "x", 1);
        T(accept4, s, 0, 0, 1);
        T(bind, c, &client, 110);
        T(connect, c, &path, 110); V(events(s)); V(events(c)); T(connect, c, &path, 110); T(write, c, "early", 5);
        name_of(c);
        int more = SYS(socket, UNIX, kind | NONBLOCK, 0), full = SYS(socket, UNIX, kind | NONBLOCK, 0);
        T(connect, more, &path, 110); T(connect, full, &path, 110);
        out.ints[127] = 110;
        int a = SYS(accept4, s, out.bytes, &out.ints[127], NONBLOCK); V(a > 0); say_out(); say("\n");
        name_of(a); T(read, a, out.bytes, 9);
        int who[3], size = 12;
        T(getsockopt, a, 1, 17, who, &size); V(size); V(who[0] == SYS(getpid, 0)); V(who[1] == SYS(getuid, 0)); V(who[2] == SYS(getgid, 0));
        int b = SYS(accept, s, 0, 0); V(b > 0); V(SYS(fcntl, b, 3, 0)); T(connect, full, &path, 110);
        SYS(close, more); V(events(b)); T(read, b, out.bytes, 1);
        SYS(close, s); V(events(full)); T(read, full, out.bytes, 1); T(write, a, "still", 5); T(read, c, out.bytes, 9);
        SYS(close, a); V(events(c)); SYS(close, b); SYS(close, full); SYS(unlink, "client");
    } else {
        T(write, c, "anonymous", 9); out.ints[127] = 110; T(recvfrom, s, out.bytes, 20, 0, out.bytes + 64, &out.ints[127]);
        T(bind, c, &client, 110); T(write, c, "named", 5); out.ints[127] = 110; T(recvfrom, s, out.bytes, 20, 0, out.bytes + 64, &out.ints[127]);
        T(sendto, s, "answer", 6, 0, &client, 110); T(read, c, out.bytes, 3); T(read, c, out.bytes, 3);
        T(sendto, s, "x", 1, 0, &missing, 110); T(sendto, s, "x", 1, 0, &other, 110); T(sendto, s, "x", 1, 0, 0, 0); T(write, s, "x", 1);
        int third = SYS(socket, UNIX, kind | NONBLOCK, 0);
        T(sendto, third, "x", 1, 0, &client, 110); T(connect, third, &client, 110);
        int count = 0; while (SYS(sendto, third, "x", 1, 0, &path, 110) == 1) count++;
        V(count); SYS(close, third);
        T(connect, c, &(struct un){ 0 }, 110); T(write, c, "x", 1);
        T(connect, c, &path, 110); SYS(close, s); T(write, c, "x", 1); T(write, c, "x", 1); SYS(unlink, "client");
    }
    SYS(close, c);
    c = SYS(socket, UNIX, kind | NONBLOCK, 0); T(connect, c, &path, 110); SYS(unlink, "sock"); T(connect, c, &path, 110);
    /* Abstract. */
    s = SYS(socket, UNIX, kind | NONBLOCK, 0);
    T(bind, s, &hidden_, 9); T(bind, c, &hidden_, 9); name_of(s);
    if (kind != DGRAM) T(listen, s, 1);
    T(connect, c, &hidden_, 9); T(connect, c, &hidden_, 10); T(write, c, "x", 1); name_of(c);
    SYS(close, s); SYS(close, c);
}

struct control { word size; int level, kind; int data[4]; };
static void messages(int kind) {
    int a[2], b[2];
    V(kind);
    SYS(socketpair, UNIX, kind | NONBLOCK, 0, a); SYS(pipe, b);
    struct vec vec = { "data", 4 }, into = { out.bytes, 3 };
    struct control rights = { 16 + 8, 1, 1, { b[0], b[1] } }, got = { 0 };
    struct msg msg = { 0, 0, &vec, 1, &rights, 24, 0 }, in = { 0, 0, &into, 1, &got, sizeof got, -1 };
    T(sendmsg, a[0], &msg, 0);
    if (kind == STREAM) T(write, a[0], "more", 4);
    T(recvmsg, a[1], &in, PEEK); V(in.flags); V(in.control_size); V(got.size); V(got.kind); SYS(close, got.data[0]); SYS(close, got.data[1]);
    in.control_size = sizeof got; into.size = 9;
    T(recvmsg, a[1], &in, 1 << 30); V(in.flags); V(in.control_size); V(got.size); V(SYS(fcntl, got.data[0], 1, 0));
    V(SYS(write, got.data[1], "through", 7)); T(read, b[0], out.bytes, 9); SYS(close, got.data[0]); SYS(close, got.data[1]);
    in.control_size = sizeof got; T(recvmsg, a[1], &in, 0); V(in.flags); V(in.control_size);
    /* No room for them. */
    T(sendmsg, a[0], &msg, 0); in.control_size = 20; T(recvmsg, a[1], &in, 0); V(in.flags); V(in.control_size); V(got.size); SYS(close, got.data[0]);
    T(sendmsg, a[0], &msg, 0); in.control_size = 16; T(recvmsg, a[1], &in, 0); V(in.flags); V(in.control_size);
    T(sendmsg, a[0], &msg, 0); in.control = 0; in.control_size = 0; T(recvmsg, a[1], &in, 0); V(in.flags);
    T(sendmsg, a[0], &msg, 0); T(read, a[1], out.bytes, 9);
    /* Descriptors that are closed meanwhile live on. */
    T(sendmsg, a[0], &msg, 0); SYS(close, b[0]); SYS(close, b[1]);
    in.control = &got; in.control_size = sizeof got; T(recvmsg, a[1], &in, 0);
    V(SYS(write, got.data[1], "alive", 5)); T(read, got.data[0], out.bytes, 9); SYS(close, got.data[1]); T(read, got.data[0], out.bytes, 9); SYS(close, got.data[0]);
    /* Wrong ones. */
    T(sendmsg, a[0], &msg, 0);
    rights.data[0] = FD(EV); rights.data[1] = FD(EV);
    rights.size = 15; T(sendmsg, a[0], &msg, 0); rights.size = 25; T(sendmsg, a[0], &msg, 0); rights.size = 24; rights.kind = 9; T(sendmsg, a[0], &msg, 0); rights.kind = 1;
    msg.control_size = 1ul << 32; T(sendmsg, a[0], &msg, 0); msg.control_size = 1ul << 20; T(sendmsg, a[0], &msg, 0); msg.control_size = 24; msg.control = (void *)4096; T(sendmsg, a[0], &msg, 0);
    msg.control = 0; msg.control_size = 0; msg.count = 1025; T(sendmsg, a[0], &msg, 0); T(recvmsg, a[0], &msg, 0); msg.count = 1;
    msg.name = "x"; msg.name_size = -1; T(sendmsg, a[0], &msg, 0); msg.name = 0; msg.name_size = 0;
    EACH_BAD(p, T(sendmsg, a[0], p, 0); T(recvmsg, a[1], p, DONTWAIT); T(sendmmsg, a[0], p, 1, 0); T(recvmmsg, a[1], p, 1, DONTWAIT, 0));
    /* Credentials. */
    V(set(a[1], 1, 16, 1)); T(write, a[0], "who", 3);
    in.control_size = sizeof got; T(recvmsg, a[1], &in, 0); V(in.flags); V(in.control_size); V(got.size); V(got.kind); V(got.data[0] == SYS(getpid, 0)); V(got.data[1] == SYS(getuid, 0)); V(got.data[2] == SYS(getgid, 0));
    struct control who = { 28, 1, 2, { SYS(getpid, 0), SYS(getuid, 0), SYS(getgid, 0) } };
    msg.control = &who; msg.control_size = 28; T(sendmsg, a[0], &msg, 0); in.control_size = 20; T(recvmsg, a[1], &in, 0); V(in.flags); V(in.control_size);
    who.size = 24; T(sendmsg, a[0], &msg, 0);
    /* Several at once. */
    struct mmsg many[3] = { { { 0, 0, &vec, 1 } }, { { 0, 0, &vec, 1 } }, { { 0, 0, &(struct vec){ (void *)4096, 1 }, 1 } } };
    V(set(a[1], 1, 16, 0));
    if (kind != STREAM) { T(sendmmsg, a[0], many, 3, 0); V(many[0].length); V(many[1].length);
        struct mmsg all[3] = { { { 0, 0, &into, 1 } }, { { 0, 0, &into, 1 } }, { { 0, 0, &into, 1 } } };
        T(recvmmsg, a[1], all, 3, 0, 0); V(all[1].length); T(recvmmsg, a[1], all, 3, 0, 0); }
    SYS(close, a[0]); SYS(close, a[1]);
}

static struct in in4(int last, int port) { return (struct in){ INET, PORT(port), { 127, 0, 0, last } }; }
static int port_of(int fd) {
    struct in name; int size = 16;
    SYS(getsockname, fd, &name, &size);
    return PORT(name.port);
}
static void tcp(void) {
    struct in any = { INET }, here = in4(1, 0), closed = in4(1, 1), bytes = here, far = { INET, 0, { 8, 8, 8, 8 } };
    int s = SYS(socket, INET, STREAM | NONBLOCK, 0), c = SYS(socket, INET, STREAM, 0), d = SYS(socket, INET, STREAM | NONBLOCK, 0);
    name_of(s); T(read, s, out.bytes, 1); T(write, s, "x", 1); V(pipes); T(accept, s, 0, 0); T(shutdown, d, 1); SYS(close, d); d = SYS(socket, INET, STREAM | NONBLOCK, 0);
    T(bind, s, &here, 15); T(bind, s, &far, 16); T(bind, s, &(struct un){ UNIX }, 16);
    T(bind, s, &here, 16); T(bind, s, &here, 16); V(port_of(s) > 1023);
    T(connect, c, &closed, 16); T(connect, c, &closed, 15); V(events(s)); T(listen, s, 5); V(events(s)); T(listen, s, 2); T(accept, s, 0, 0); T(connect, s, &here, 16);
    here.port = PORT(port_of(s));
    T(bind, c, &here, 16); any.port = here.port; T(bind, d, &any, 16);
    T(connect, c, &here, 16); T(connect, c, &here, 16); V(events(s));
    T(connect, d, &here, 16); V(events(d)); V(option(d, 1, 4)); T(connect, d, &here, 16); T(connect, d, &here, 16);
    struct in name; int size = 16;
    int a = SYS(accept4, s, &name, &size, NONBLOCK), b = SYS(accept, s, 0, 0);
    V(a > 0); V(size); V(name.family); V(name.ip[0]); V(name.port == PORT(port_of(c))); V(port_of(a) == port_of(s)); V(SYS(fcntl, b, 3, 0)); V(option(a, 1, 3));
    V(set(a, 6, 1, 1)); V(set(c, 6, 1, 1)); V(events(a)); V(events(c));
    T(write, c, "hello ", 6); T(write, c, "world", 5); V(events(a)); T(ioctl, a, 0x541b, out.bytes); T(recvfrom, a, out.bytes, 3, PEEK, 0, 0); T(recvfrom, a, out.bytes, 20, WAITALL, 0, 0); T(read, a, out.bytes, 9);
    out.ints[127] = 16; T(write, a, "back", 4); T(recvfrom, c, out.bytes, 9, 0, out.bytes + 64, &out.ints[127]);
    T(sendto, c, "to", 2, 0, &closed, 16); T(read, a, out.bytes, 9); T(recvfrom, c, 0, 0, DONTWAIT, 0, 0);
    T(write, c, "cut off", 7); T(recvfrom, a, 0, 3, TRUNC_, 0, 0); T(read, a, out.bytes, 9);
    V(option(a, 6, 11) & 255);
    /* Half closed. */
    T(shutdown, c, 1); V(events(a)); V(events(c)); T(read, a, out.bytes, 9); T(write, c, "x", 1); V(pipes); T(write, a, "late", 4); T(read, c, out.bytes, 9); V(option(a, 6, 11) & 255);
    SYS(close, a); V(events(c)); T(read, c, out.bytes, 9); SYS(close, c);
    /* Closed: the first write is answered with a reset. */
    SYS(close, b); V(events(d)); T(read, d, out.bytes, 9); T(write, d, "x", 1); V(events(d)); T(write, d, "x", 1); V(pipes); T(write, d, "x", 1); V(pipes); T(read, d, out.bytes, 9); T(getpeername, d, out.bytes, &size); SYS(close, d);
    /* Unread data: a reset. */
    c = SYS(socket, INET, STREAM | NONBLOCK, 0); T(connect, c, &here, 16); b = SYS(accept, s, 0, 0);
    T(write, c, "unread", 6); T(write, b, "read", 4); SYS(close, b); V(events(c)); T(read, c, out.bytes, 2); T(read, c, out.bytes, 9); T(read, c, out.bytes, 9); V(option(c, 1, 4)); V(events(c)); T(write, c, "x", 1); SYS(close, c);
    /* Closed before it is accepted. */
    c = SYS(socket, INET, STREAM, 0); T(connect, c, &here, 16); T(write, c, "gone", 4); SYS(close, c); b = SYS(accept, s, 0, 0); V(b > 0); T(read, b, out.bytes, 9); T(read, b, out.bytes, 9); SYS(close, b);
    c = SYS(socket, INET, STREAM, 0); T(connect, c, &here, 16); SYS(close, s); V(events(c)); T(read, c, out.bytes, 9); SYS(close, c);
    c = SYS(socket, INET, STREAM | NONBLOCK, 0); T(connect, c, &here, 16); V(events(c)); V(option(c, 1, 4)); V(option(c, 1, 4)); SYS(close, c);
    /* The same port again. */
    s = SYS(socket, INET, STREAM, 0); d = SYS(socket, INET, STREAM, 0);
    any.port = here.port; V(set(s, 1, 2, 1)); T(bind, s, &any, 16); V(PORT(port_of(s)) == any.port); T(bind, d, &here, 16); V(set(d, 1, 2, 1)); T(bind, d, &here, 16); T(listen, s, 1); T(listen, d, 1);
    c = SYS(socket, INET, STREAM, 0); T(bind, c, &any, 16); SYS(close, c); SYS(close, s); SYS(close, d);
    s = SYS(socket, INET, STREAM, 0); c = SYS(socket, INET, STREAM, 0);
    T(listen, s, 1); V(port_of(s) > 1023); bytes.port = PORT(port_of(s)); bytes.ip[0] = 0; bytes.ip[3] = 0; T(connect, c, &bytes, 16); V(SYS(accept, s, 0, 0) > 0); SYS(close, s); SYS(close, c);
}

static void udp(void) {
    struct in here = in4(1, 0), any = { INET }, name, there = in4(2, 0);
    int s = SYS(socket, INET, DGRAM | NONBLOCK, 0), c = SYS(socket, INET, DGRAM | NONBLOCK, 0), size = 16;
    V(events(s)); T(read, s, out.bytes, 9); T(write, s, "x", 1); T(shutdown, s, 0); T(listen, s, 1);
    T(bind, s, &here, 16); here.port = PORT(port_of(s)); T(bind, c, &here, 16);
    T(sendto, c, "x", 1, 0, &any, 16); T(sendto, c, "x", 1, 0, &here, 15); T(sendto, c, "x", 1, 0, &(struct un){ UNIX }, 16);
    T(sendto, c, "one", 3, 0, &here, 16); T(sendto, c, "two", 3, 0, &here, 16); T(sendto, c, "", 0, 0, &here, 16); V(events(s)); V(port_of(c) > 1023);
    T(recvfrom, s, out.bytes, 2, PEEK, 0, 0); T(recvfrom, s, out.bytes, 2, TRUNC_, &name, &size); V(size); V(name.family); V(name.ip[0]); V(name.port == PORT(port_of(c)));
    T(ioctl, s, 0x541b, out.bytes); T(read, s, out.bytes, 9); T(read, s, out.bytes, 9); T(read, s, out.bytes, 9);
    T(sendto, s, "answer", 6, 0, &name, 16); T(read, c, out.bytes, 9);
    T(connect, c, &here, 16); T(write, c, "connected", 9); T(read, s, out.bytes, 9); V(port_of(c) == PORT(name.port)); T(getpeername, c, out.bytes, &(int){ 2 });
    there.port = here.port; T(sendto, c, "x", 1, 0, &there, 16); T(read, c, out.bytes, 9);
    /* From others it gets nothing. */
    int d = SYS(socket, INET, DGRAM | NONBLOCK, 0); T(sendto, d, "other", 5, 0, &name, 16); T(read, c, out.bytes, 9);
    T(write, c, out.bytes, 65508);
    SYS(close, s); T(write, c, "x", 1); V(events(c)); T(write, c, "x", 1); T(write, c, "x", 1); T(read, c, out.bytes, 9); T(read, c, out.bytes, 9);
    T(connect, c, &(struct in){ 0 }, 16); T(write, c, "x", 1); T(getpeername, c, out.bytes, &size); T(shutdown, c, 1);
    SYS(close, c); SYS(close, d);
    s = SYS(socket, INET, DGRAM, 0); d = SYS(socket, INET, DGRAM, 0); V(set(s, 1, 2, 1)); V(set(d, 1, 2, 1)); T(bind, s, &here, 16); T(bind, d, &here, 16); SYS(close, s); SYS(close, d);
}

/* Another process on the other side, that waits and is waited for. */
static void processes(void) {
    struct un path = un("\0between", 8);
    int s = SYS(socket, UNIX, STREAM, 0), status;
    T(bind, s, &path, 10); T(listen, s, 1);
    long child = SYS(fork, 0);
    static char big[3 << 18];
    if (child == 0) {
        int c = SYS(socket, UNIX, STREAM, 0);
        SYS(connect, c, &path, 10);
        long sent = SYS(write, c, big, sizeof big);
        SYS(shutdown, c, 1);
        long got = SYS(recvfrom, c, big, 10, WAITALL, 0, 0);
        SYS(exit_group, (sent == sizeof big) + 2 * (got == 10));
    }
    int a = SYS(accept, s, 0, 0);
    long sum = 0, some;
    while ((some = SYS(read, a, big, 3000)) > 0) sum += some;
    V(sum == sizeof big); V(some);
    for (int i = 0; i < 5; i++) SYS(write, a, "ab", 2);
    SYS(wait4, child, &status, 0, 0); V(status);
    SYS(close, a);
    /* A time-out, and a signal. */
    a = SYS(socket, UNIX, STREAM, 0); long time[4] = { 0, 20000, 0, 10000 };
    T(connect, a, &path, 10); T(setsockopt, a, 1, 20, time, 16); T(read, a, out.bytes, 1);
    on_signal(14, piped, 0, 0); time[1] = 0; time[0] = 9; T(setsockopt, a, 1, 20, time, 16); time[0] = 0;
    T(setitimer, 0, time, 0); T(read, a, out.bytes, 1); on_signal(14, piped, SA_RESTART, 0);
    SYS(close, a); SYS(close, s);
}

/* A signal when something comes. */
static int told;
static void tell(int signal) { told++; }
static void owners(void) {
    int a[2], on = 1, off = 0, own = SYS(getpid, 0);
    on_signal(29, tell, SA_RESTART, 0); on_signal(10, tell, SA_RESTART, 0);
    for (int kind = 0; kind < 2; kind++) {
        if (kind) SYS(socketpair, UNIX, STREAM, 0, a); else SYS(pipe, a);
        T(fcntl, a[0], 9, 0); T(fcntl, a[0], 8, 0x7fffffff); T(fcntl, a[0], 8, -0x7ffffff); V(SYS(fcntl, a[0], 8, own)); V(SYS(fcntl, a[0], 9, 0) == own);
        T(fcntl, a[0], 11, 0); T(fcntl, a[0], 10, 65); T(fcntl, a[0], 10, -1);
        SYS(write, a[1], "x", 1); V(told);
        if (kind) T(ioctl, a[0], 0x5452, &on); else V(SYS(fcntl, a[0], 4, 0x2000));
        V(SYS(fcntl, a[0], 3, 0)); SYS(read, a[0], out.bytes, 1); fill(); V(told);
        SYS(write, a[1], "x", 1); V(told); SYS(write, a[1], "x", 1); V(told);
        T(fcntl, a[0], 10, 10); T(fcntl, a[0], 11, 0); SYS(write, a[1], "x", 1); V(told); T(fcntl, a[0], 8, 0); SYS(write, a[1], "x", 1); V(told);
        T(fcntl, a[0], 4, 0); V(SYS(fcntl, a[0], 3, 0)); if (kind) T(ioctl, a[0], 0x5452, &off);
        SYS(close, a[0]); SYS(close, a[1]);
    }
}

/* Buffers of any size need a privilege, which no other user than root has. */
static void forced(void) {
    int status;
    flush();
    long child = SYS(fork, 0);
    if (child == 0) {
        SYS(setresuid, 65534, 65534, 65534);
        int fd = SYS(socket, UNIX, STREAM, 0);
        V(set(fd, 1, 32, 1 << 20)); V(set(fd, 1, 33, 1 << 20)); V(set(fd, 1, 7, 4096)); V(set(fd, 1, 8, 4096));
        flush(); SYS(exit_group, 0);
    }
    SYS(wait4, child, &status, 0, 0); V(status);
}

static void cases(void) {
    on_signal(13, piped, SA_RESTART, 0);
    making();
    pairs(STREAM); pairs(DGRAM); pairs(SEQ);
    options(UNIX, STREAM); options(UNIX, DGRAM); options(INET, STREAM); options(INET, DGRAM);
    named(STREAM); named(DGRAM); named(SEQ);
    messages(STREAM); messages(DGRAM); messages(SEQ);
    tcp(); udp();
    owners();
    processes();
    forced();
}
