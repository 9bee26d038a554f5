/* inotify: what is told, and in which order. */
#include "cases.h"

enum { ADD = 0x20000000, NEW = 0x10000000, ONCE = (int)0x80000000, ONLYDIR = 0x1000000, DONT_FOLLOW = 0x2000000 };
static long in, cookies[4];
static char events[4096];
static void say_events(void) {
    long n = SYS(read, in, events, sizeof events);
    V(n);
    for (long at = 0; at < n;) {
        int *event = (int *)(events + at);
        say("  "); say_number(event[0]); say(" "); say_number(event[1]); say(" ");
        /* Which of the cookies that were seen it is. */
        int which = 0;
        while (event[2] && which < 4 && cookies[which] && cookies[which] != event[2]) which++;
        if (event[2] && which < 4) cookies[which] = event[2];
        say_number(event[2] ? which + 1 : 0); say(" "); say_number(event[3]);
        if (event[3]) { say(" "); say(events + at + 16); }
        say("\n");
        at += 16 + event[3];
    }
    for (int i = 0; i < 4; i++) cookies[i] = 0;
}

static void cases(void) {
    T(inotify_init1, 1); T(inotify_init1, -1);
    in = SYS(inotify_init1, O_NONBLOCK);
    OK(inotify_init, 0);
    V(SYS(read, in, events, 100));
    EACH_FD(fd, T(inotify_add_watch, fd, "dir", 0xfff); T(inotify_rm_watch, fd, 1));
    EACH_WRONG(p, T(inotify_add_watch, in, p, 0xfff));
    T(inotify_add_watch, in, "dir", 0); T(inotify_add_watch, in, "dir", ADD | NEW | 2); T(inotify_add_watch, in, "file", ONLYDIR | 2);
    T(inotify_add_watch, in, "dir", 0xfff); T(inotify_add_watch, in, "dir", NEW | 2); T(inotify_add_watch, in, "dir", ADD | 2);
    T(inotify_rm_watch, in, 5); T(inotify_rm_watch, in, -1); T(inotify_rm_watch, in, 1); T(inotify_rm_watch, in, 1);
    say_events();
    T(inotify_add_watch, in, "dir", 0xfff); T(inotify_add_watch, in, "file", 0xfff); T(inotify_add_watch, in, "to-dir", ADD | 2);
    T(inotify_add_watch, in, "to-dir", DONT_FOLLOW | 0xfff);
    SYS(close, FD(DIR)); SYS(close, FD(RD)); SYS(close, FD(PATH));
    say_events();
    /* Files in the folder. */
    long fd = SYS(open, "dir/new", O_RDWR | O_CREAT, 0600);
    say_events();
    SYS(write, fd, "text", 4); SYS(write, fd, "text", 4); SYS(pread64, fd, events, 4, 0);
    say_events();
    SYS(ftruncate, fd, 2); SYS(fchmod, fd, 0640); SYS(close, fd);
    say_events();
    SYS(close, SYS(open, "dir/new", O_RDONLY)); SYS(close, SYS(open, "dir/new", O_WRONLY));
    say_events();
    SYS(truncate, "dir/new", 5); SYS(chmod, "dir/new", 0600); SYS(utimensat, -100, "dir/new", 0, 0);
    say_events();
    SYS(mkdir, "dir/inner", 0700); SYS(symlink, "x", "dir/link"); SYS(link, "dir/new", "dir/second"); SYS(mknod, "dir/fifo", 010600, 0);
    say_events();
    SYS(rename, "dir/new", "dir/renamed"); SYS(rename, "dir/renamed", "outside"); SYS(rename, "outside", "dir/back");
    say_events();
    SYS(rename, "dir/inner", "dir/folder"); SYS(rename, "dir/back", "dir/back"); SYS(rename, "dir/link", "dir/fifo");
    say_events();
    SYS(renameat2, -100, "dir/folder", -100, "dir/fifo", 2);
    say_events();
    SYS(unlink, "dir/second"); SYS(rmdir, "dir/fifo"); SYS(unlink, "dir/back"); SYS(unlink, "dir/missing");
    say_events();
    /* The file itself. */
    fd = SYS(open, "file", O_RDWR);
    SYS(write, fd, "x", 1); SYS(rename, "file", "moved"); SYS(link, "moved", "more"); SYS(chmod, "moved", 0600);
    say_events();
    SYS(unlink, "more"); SYS(unlink, "moved");
    say_events();
    SYS(close, fd);
    say_events();
    V(SYS(inotify_rm_watch, in, 3));
    /* Once, and the folder's end. */
    SYS(close, make("once", "x"));
    V(SYS(inotify_add_watch, in, "once", 2 | ONCE));
    fd = SYS(open, "once", O_WRONLY);
    SYS(write, fd, "a", 1); SYS(write, fd, "b", 1); SYS(close, fd);
    say_events();
    SYS(mkdir, "gone", 0700); V(SYS(inotify_add_watch, in, "gone", 0xfff)); SYS(rename, "gone", "still"); SYS(rmdir, "still");
    say_events();
    /* Small buffers, and how much there is. */
    fd = SYS(open, "dir/inside", O_RDONLY); SYS(close, fd);
    int size = 0;
    V(SYS(ioctl, in, 0x541b, &size)); V(size); V(SYS(read, in, events, 10)); V(SYS(read, in, events, 33)); V(SYS(read, in, events, 100));
    EACH_BAD(p, V(SYS(read, in, p, 100)));
    /* Waiting for what another process does. */
    struct { int fd; short events, ready; } poll = { in, 1, 0 };
    V(SYS(poll, &poll, 1, 0)); V(poll.ready);
    flush();
    long pid = SYS(fork, 0);
    if (pid == 0) { word time[2] = { 0, 10000000 }; SYS(nanosleep, time, 0); SYS(mkdir, "dir/late", 0700); SYS(exit_group, 0); }
    V(SYS(poll, &poll, 1, 10000)); V(poll.ready);
    say_events();
    SYS(wait4, pid, 0, 0, 0);
    SYS(fcntl, in, 4, 0);
    flush();
    pid = SYS(fork, 0);
    if (pid == 0) { word time[2] = { 0, 10000000 }; SYS(nanosleep, time, 0); SYS(rmdir, "dir/late"); SYS(exit_group, 0); }
    say_events();
    SYS(wait4, pid, 0, 0, 0);
    HIDE(STAT_PIPE); V(SYS(fstat, in, out.bytes));
    V(SYS(write, in, "x", 1));
}
