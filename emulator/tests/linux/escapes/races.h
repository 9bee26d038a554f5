/* Races: one thread or process of the machine, or a process outside, changes names while another
 * one looks them up. */

enum { ROUNDS = 100 };
static volatile int stop_;
static long saw_;

/* Exchanges a folder and a link that leads out, over and over. */
static void exchanges(word id) {
    while (!stop_) SYS(renameat2, CWD, "door", CWD, "door-link", 2);
    SYS(exit, id - id);
}
/* Moves the working folder up and down. */
static void moves(word id) {
    while (!stop_) {
        SYS(rename, "tree/a/b", "tree/b");
        SYS(rename, "tree/b", "tree/a/b");
    }
    SYS(exit, id - id);
}
/* Looks a secret up in every way. */
static long looks(const char *path, const char *up) {
    long seen = 0;
    for (int i = 0; i < ROUNDS; i++) {
        seen |= LEAKS(path) == 1;
        seen |= LEAKS(up) == 1;
        if (i % 16 == 0) SYS(sched_yield, 0);
    }
    return seen;
}

/* Everything that can be done through a folder that the host exchanges for a link to outside. */
static void swapped(void) {
    static char path[64] = "swap/inner";
    long seen = 0, opened = 0;
    for (int i = 0; i < 2000; i++) {
        long f;
        switch (i % 20) {
        case 0: put("swap/inner", RW); break;
        case 1: put("swap/secret", RW | TRUNC); break;
        case 2: put("swap/made", RW | CREAT); break;
        case 3: SYS(unlink, "swap/secret"); break;
        case 4: SYS(rename, "swap/secret", "stolen"); break;
        case 5: SYS(link, "swap/secret", "stolen-too"); break;
        case 6: SYS(chmod, "swap/secret", 0777); break;
        case 7: SYS(truncate, "swap/secret", 0); break;
        case 8: SYS(mkdir, "swap/folder", 0777); break;
        case 9: SYS(symlink, "x", "swap/link"); break;
        case 10: SYS(utimensat, CWD, "swap/secret", 0, 0); break;
        case 11: SYS(rmdir, "swap/keep"); break;
        case 12: SYS(chmod, "swap", 0700); break;
        case 13: SYS(rename, "swap/inner", "swap/renamed"); SYS(rename, "swap/renamed", "swap/inner"); break;
        case 14: seen |= SYS(readlink, "swap/only-outside", text_[7], 100) > 0; break;
        case 15: f = SYS(open, "swap/fifo", RW | NONBLOCK); opened |= f >= 0; SYS(close, f); break;
        case 16: SYS(execve, "swap/secret", alone, 0); break;
        case 17: f = SYS(open, "swap", DIRECTORY); seen |= leaks(SYS(openat, f, "secret", 0)) == 1; SYS(close, f); break;
        case 18: SYS(chown, "swap/secret", 1, 1); SYS(lchown, "swap/secret", 1, 1);
            SYS(chown, "swap", 1, 1); SYS(chown, "file", 1, 1); SYS(lchown, "file", 1, 1); break;
        default: seen |= LEAKS("swap/secret") == 1;
        }
        seen |= LEAKS(path) == 1;
        /* The file itself is exchanged for a link to the secret, or for a FIFO. */
        seen |= LEAKS("file") == 1;
        f = SYS(open, "blink", RW);
        opened |= f >= 0 && SYS(lseek, f, 0, 1) < 0;
        SYS(close, f);
    }
    T("the host exchanges a folder for a link", seen, r == 0);
    T("the host exchanges a file for a FIFO", opened, r == 0);
}

static void races(void) {
    T("a link that leads out", SYS(symlink, outside, "door-link"), r == 0);
    T("a folder beside it", SYS(mkdir, "door", 0777), r == 0);
    T("a tree", SYS(mkdir, "tree", 0777) | SYS(mkdir, "tree/a", 0777) | SYS(mkdir, "tree/a/b", 0777), r == 0);
    const char *deep = "tree/a/b/../../../../../outside/secret";
    T("a thread", thread(0, exchanges), r > 0);
    T("a thread exchanges a folder for a link", looks("door/secret", "door/../../outside/secret"), !rooted || r == 0);
    stop_ = 1;
    join_thread(0);
    stop_ = 0;
    T("a thread", thread(1, moves), r > 0);
    T("a thread moves a folder during `..`", looks(deep, "tree/b/../../../../outside/secret"), !rooted || r == 0);
    stop_ = 1;
    join_thread(1);
    stop_ = 0;
    T("a process exchanges a folder for a link", ({
        long other = SYS(fork, 0);
        if (other == 0) exchanges(0);
        long seen = looks("door/secret", "door-link/secret");
        SYS(kill, other, 9);
        SYS(wait4, other, 0, 0, 0);
        seen; }), !rooted || r == 0);
    T("a process moves the folder in which another one works", ({
        long other = SYS(fork, 0);
        if (other == 0) moves(0);
        SYS(chdir, "tree/a/b");
        long seen = looks("../../../../outside/secret", "../../../../../outside/secret");
        SYS(kill, other, 9);
        SYS(wait4, other, 0, 0, 0);
        SYS(chdir, box);
        seen; }), !rooted || r == 0);
    T("a descriptor of a folder that another process moves", ({
        long f = SYS(open, "tree/a/b", DIRECTORY);
        if (f < 0) f = SYS(open, "tree/b", DIRECTORY);
        long other = SYS(fork, 0), seen = 0;
        if (other == 0) moves(0);
        for (int i = 0; i < ROUNDS; i++) seen |= leaks(SYS(openat, f, "../../../../outside/secret", 0)) == 1;
        SYS(kill, other, 9);
        SYS(wait4, other, 0, 0, 0);
        seen; }), !rooted || r == 0);
    if (rooted) swapped();
}
