/* What /proc says of memory, threads and the system, names of threads, and the sizes of pipes. */
#include "cases.h"
#include "thread.h"

enum { P = 4096 };
static char text[1 << 16];
static long filled;
static long read_text(const char *path) {
    memset(text, 0, filled);
    filled = 0;
    long fd = SYS(open, path, O_RDONLY), size = 0, more;
    if (fd < 0) return fd;
    while ((more = SYS(read, fd, text + size, sizeof text - 1 - size)) > 0) size += more;
    SYS(close, fd);
    filled = size;
    return size;
}
static int is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
static const char *find(const char *at, const char *what) {
    for (size_t n = length(what); *at; at++) if (*at == *what && same(at, what, n)) return at;
    return 0;
}
/* The number behind the first `name` at or behind `at`; -1 if there is none. */
static long after(const char *at, const char *name) {
    if (!at || !(at = find(at, name))) return -1;
    long value = 0;
    for (at += length(name); is_space(*at); at++) {}
    while (*at >= '0' && *at <= '9') value = 10 * value + *at++ - '0';
    return value;
}
static int is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
static word hex(const char **at) {
    word value = 0;
    for (; is_hex(**at); ++*at) value = 16 * value + (**at <= '9' ? **at - '0' : **at - 'a' + 10);
    return value;
}
/* The lines that begin with an address, and the sizes of their ranges, KiB. */
static long lines, kibibytes;
static void sum_ranges(void) {
    lines = kibibytes = 0;
    for (const char *at = text; *at; at++) {
        if ((at == text || at[-1] == '\n') && is_hex(*at)) {
            const char *digits = at;
            word start = hex(&digits);
            if (*digits++ != '-') continue;
            kibibytes += (hex(&digits) - start) / 1024;
            lines++;
        }
    }
}
static long sum_of(const char *name) {
    long sum = 0;
    for (const char *at = text; (at = find(at, name)); at++)
        if (at > text && at[-1] == '\n') sum += after(at, name);
    return sum;
}
/* The block of the area that starts at an address. */
static const char *block_of(const void *start) {
    for (const char *at = text; *at; at++) {
        if ((at == text || at[-1] == '\n') && is_hex(*at)) {
            const char *digits = at;
            if (hex(&digits) == (word)start && *digits == '-') return at;
        }
    }
    return 0;
}

static void memory(void) {
    static const char *const fields[] = {
        "Size:", "KernelPageSize:", "MMUPageSize:", "Rss:", "Pss:", "Shared_Clean:", "Shared_Dirty:", "Private_Clean:", "Private_Dirty:",
        "Referenced:", "Anonymous:", "LazyFree:", "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:",
        "Swap:", "SwapPss:", "Locked:", "THPeligible:", "VmFlags:" };
    /* Between pages without access, so that it is an area of its own. */
    char *all = (char *)SYS(mmap, 0, 6 * P, 0, 0x22, -1, 0), *area = all + P;
    SYS(mprotect, area, 4 * P, 3);
    for (int i = 0; i < 3; i++) area[i * P] = 1;
    V(read_text("/proc/self/smaps") > 0);
    const char *block = block_of(area), *last = block;
    V(block != 0);
    for (int i = 0; i < COUNT(fields); i++) {
        const char *at = find(last, fields[i]);
        say(fields[i]); V(at != 0 && at >= last);
        if (at) last = at;
    }
    V(after(block, "Size:")); V(after(block, "KernelPageSize:")); V(after(block, "MMUPageSize:")); V(after(block, "Rss:") + after(block, "Swap:"));
    V(after(block, "Pss:") == after(block, "Rss:")); V(after(block, "Private_Dirty:") == after(block, "Rss:")); V(after(block, "Anonymous:") == after(block, "Rss:"));
    V(after(block, "Shared_Clean:")); V(after(block, "Shared_Dirty:")); V(after(block, "Private_Clean:")); V(after(block, "Locked:")); V(after(block, "Shared_Hugetlb:"));
    const char *flags = find(block, "VmFlags:"), *end = find(flags, "\n");
    static const char *const some[] = { " rd", " wr", " ex", " sh", " mr", " mw", " me", " gd" };
    for (int i = 0; i < COUNT(some); i++) { const char *at = find(flags, some[i]); say(some[i]); V(at && at < end); }
    const char *none = block_of(all);
    V(none != 0); V(after(none, "Size:")); V(after(none, "Rss:")); V(find(none, "---p") == find(none, " ") + 1);
    /* A file that is mapped shared, and privately. */
    char *shared = (char *)SYS(mmap, 0, 2 * P, 3, 1, FD(RW), 0), *private = (char *)SYS(mmap, 0, P, 3, 2, FD(RW), 0);
    SYS(ftruncate, FD(RW), 2 * P);
    shared[0] = 'x'; private[0] = 'y';
    read_text("/proc/self/smaps");
    block = block_of(shared);
    V(after(block, "Size:")); V(after(block, "Rss:") >= 4); V(after(block, "Anonymous:")); flags = find(block, "VmFlags:"); end = find(flags, "\n"); V(find(flags, " sh") && find(flags, " sh") < end);
    block = block_of(private);
    V(after(block, "Size:")); V(after(block, "Rss:") + after(block, "Swap:")); V(after(block, "Anonymous:") + after(block, "Swap:")); V(after(block, "Private_Dirty:") + after(block, "Swap:"));
    /* The same areas, and their sums. */
    long sizes = sum_of("Size:"); sum_ranges();
    long smaps_lines = lines, smaps_ranges = kibibytes;
    V(sizes == smaps_ranges);
    V(read_text("/proc/self/maps") > 0); sum_ranges();
    V(lines == smaps_lines); V(kibibytes == smaps_ranges);
    V(read_text("/proc/self/smaps_rollup") > 0); sum_ranges();
    V(lines); V(find(text, "[rollup]\n") != 0); V(find(text, " ---p 00000000 00:00 0 ") != 0); V(find(text, "VmFlags") == 0); V(find(text, "\nSize:") == 0);
    V(after(text, "\nRss:") >= 20); V(after(text, "\nAnonymous:") >= 16); V(after(text, "\nPss:") <= after(text, "\nRss:"));
    V(read_text("/proc/self/task/0/smaps"));
    SYS(munmap, shared, 2 * P); SYS(munmap, private, P); SYS(munmap, all, 6 * P);
}

static char path[64];
static const char *of(const char *before, long number, const char *after) {
    char *at = path, digits[20], *first = digits + 20;
    while (*before) *at++ = *before++;
    do *--first = '0' + number % 10; while (number /= 10);
    while (first < digits + 20) *at++ = *first++;
    while ((*at++ = *after++)) {}
    return path;
}
static void say_text(const char *path) {
    long size = read_text(path);
    if (size < 0) { V(size); return; }
    for (int i = 0; i < size; i++) if (text[i] == '\n') text[i] = '|';
    report(text, size);
}

static void names(void) {
    long idle = thread(), own = SYS(getpid, 0), status = 0;
    SYS(prctl, 15, "leader");
    say_text(of("/proc/self/task/", own, "/comm"));
    long fd = SYS(open, of("/proc/self/task/", idle, "/comm"), O_RDWR);
    V(fd >= 0); V(SYS(write, fd, "worker", 6)); V(SYS(read, fd, text, 64)); filled = 64; say_text(path);
    V(SYS(write, fd, "a name that is too long", 23)); say_text(path); V(SYS(write, fd, "nul\0behind", 10)); say_text(path); V(SYS(write, fd, "line\n", 5)); say_text(path); V(SYS(write, fd, "", 0)); say_text(path);
    V(SYS(pwrite64, fd, "at", 2, 1)); say_text(path); V(SYS(lseek, fd, 0, 0)); V(SYS(read, fd, text, 1)); V(text[0]); V(SYS(ftruncate, fd, 0));
    EACH_BAD(p, T(write, fd, p, 5));
    say_text("/proc/self/comm");
    SYS(close, fd);
    fd = SYS(open, "/proc/self/comm", O_WRONLY | O_TRUNC); V(fd >= 0); V(SYS(write, fd, "first", 5)); V(SYS(read, fd, text, 5)); SYS(prctl, 16, text); say(text); V(0); SYS(close, fd);
    say_text(of("/proc/self/task/", idle, "/comm"));
    /* The thread of another process. */
    flush();
    long child = SYS(fork, 0);
    if (child == 0) for (;;) SYS(pause, 0);
    fd = SYS(open, of("/proc/", child, "/comm"), O_RDWR); V(fd >= 0); V(SYS(write, fd, "other", 5)); say_text(path);
    SYS(kill, child, 9); SYS(wait4, child, &status, 0, 0); V(SYS(write, fd, "other", 5)); V(SYS(open, path, O_RDWR)); SYS(close, fd);
    V(SYS(open, "/proc/self/task/1/comm", O_RDWR));
    fill();
    HIDE(STAT); SYS(stat, "/proc/self/comm", out.bytes); V(out.ints[6]); fill();
}

static void of_system(void) {
    V(read_text("/proc/sys/net/core/somaxconn") > 1); V(after(text, "") > 0);
    V(read_text("/proc/sys/kernel/random/boot_id"));
    char first[40]; memcpy(first, text, 37);
    V(text[8]); V(text[13]); V(text[14]); V(text[18]); V(text[23]); V(text[36]);
    int digits = 0; for (int i = 0; i < 36; i++) digits += is_hex(text[i]);
    V(digits); read_text("/proc/sys/kernel/random/boot_id"); V(same(first, text, 37));
    V(read_text("/proc/sys/kernel/random/uuid")); V(text[14]); V(same(first, text, 37)); memcpy(first, text, 37); read_text("/proc/sys/kernel/random/uuid"); V(same(first, text, 37));
    V(read_text("/proc/sys/kernel/random/poolsize") > 0);
    V(read_text("/proc/sys/kernel/random/entropy_avail") > 0);
}

static void pipes(void) {
    int ends[2], status = 0;
    enum { SET = 1031, GET = 1032 };
    SYS(pipe2, ends, O_NONBLOCK);
    V(SYS(fcntl, ends[0], GET) > 0); V(SYS(fcntl, ends[0], GET) == SYS(fcntl, ends[1], GET));
    V(SYS(fcntl, ends[1], SET, 65536)); V(SYS(fcntl, ends[0], GET));
    V(SYS(fcntl, ends[0], SET, 1)); V(SYS(fcntl, ends[0], GET)); V(SYS(fcntl, ends[0], SET, 4097)); V(SYS(fcntl, ends[0], SET, 12289)); V(SYS(fcntl, ends[0], SET, 0)); V(SYS(fcntl, ends[0], SET, 0x80000001)); V(SYS(fcntl, ends[0], SET, -1)); V(SYS(fcntl, ends[0], SET, 1ul << 32));
    V(SYS(fcntl, ends[0], SET, 8192));
    /* What it holds. */
    static char bytes[1 << 16];
    V(SYS(write, ends[1], bytes, sizeof bytes)); V(SYS(write, ends[1], bytes, 1)); V(SYS(fcntl, ends[1], SET, 4096)); V(SYS(fcntl, ends[1], GET));
    V(SYS(fcntl, ends[1], SET, 16384)); V(SYS(write, ends[1], bytes, sizeof bytes)); V(SYS(read, ends[0], bytes, sizeof bytes)); V(SYS(fcntl, ends[1], SET, 4096)); V(SYS(write, ends[1], bytes, sizeof bytes)); V(SYS(read, ends[0], bytes, 4096));
    /* The next size waits for the reader. */
    V(SYS(fcntl, ends[1], SET, 8192));
    flush();
    long child = SYS(fork, 0);
    if (child == 0) {
        SYS(fcntl, ends[1], 4, O_WRONLY);
        SYS(exit_group, SYS(write, ends[1], bytes, 3 * P) == 3 * P);
    }
    struct { int fd; short events, revents; } one = { ends[0], 1, 0 };
    for (long sum = 0; sum < 3 * P;) { SYS(poll, &one, 1, -1); long n = SYS(read, ends[0], bytes, P); if (n > 0) sum += n; }
    SYS(wait4, child, &status, 0, 0); V(status);
    EACH_FD(fd, if (i_ != PR && i_ != PW) { V(SYS(fcntl, fd, GET)); V(SYS(fcntl, fd, SET, 4096)); });
    SYS(close, ends[0]); SYS(close, ends[1]);
    SYS(mknod, "fifo", 010600, 0);
    long fifo = SYS(open, "fifo", O_RDWR); V(SYS(fcntl, fifo, SET, 8192)); V(SYS(fcntl, fifo, GET)); SYS(close, fifo);
    /* Beyond the limit: with a capability, more than there ever is. */
    SYS(pipe, ends); if (SYS(getuid, 0)) V(SYS(fcntl, ends[0], SET, 1 << 30)); SYS(close, ends[0]); SYS(close, ends[1]);
}

static void cases(void) {
    memory();
    names();
    of_system();
    pipes();
    flush();
    SYS(exit_group, 0);
}
