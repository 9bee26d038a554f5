/* System call cases: each prints the call, its result, and what it wrote to `out`.
 *
 * The same program runs on Linux and in the machine, and every line must be the same. So a case
 * has one error at a time (kernels differ in what they check first), uses only flags that every
 * kernel since 5.10 knows or that no kernel will ever know, and ignores what depends on a file
 * system, a limit or a user. What remains is hidden by name below.
 */
#include "../start.h"
#include <linux/fcntl.h>
#include <linux/stat.h>

/* All fields that may differ, and why. */
struct field { int at, size; const char *why; };
#define NONE { 0, 0, 0 }
static const struct field PIPE_FDS[] = { NONE };
static const struct field STAT[] = {
    { 0, 8, "st_dev: which file system the test runs on" },
    { 8, 8, "st_ino: file systems number their inodes" },
    { 16, 8, "st_nlink: some file systems do not count the links of directories" },
    { 48, 8, "st_size: that of a directory is up to the file system" },
    { 56, 16, "st_blksize, st_blocks: up to the file system" },
    { 72, 48, "st_atime, st_mtime, st_ctime: the machine's time is virtual" }, NONE };
/* Fewer fields of a regular file differ. */
static const struct field STAT_FILE[] = {
    { 0, 8, "st_dev" }, { 8, 8, "st_ino" }, { 56, 16, "st_blksize, st_blocks" },
    { 72, 48, "st_atime, st_mtime, st_ctime" }, NONE };
static const struct field STAT_PIPE[] = {
    { 0, 8, "st_dev" }, { 8, 8, "st_ino" }, { 28, 8, "st_uid, st_gid: those of the file system's maker" },
    { 56, 16, "st_blksize, st_blocks" }, { 72, 48, "st_atime, st_mtime, st_ctime" }, NONE };
static const struct field STATX[] = {
    { 0, 4, "stx_mask: newer kernels say more" }, { 4, 4, "stx_blksize" },
    { 8, 8, "stx_attributes: up to the file system" }, { 32, 8, "stx_ino" },
    { 48, 8, "stx_blocks" }, { 56, 8, "stx_attributes_mask" },
    { 64, 64, "stx_atime, stx_btime, stx_ctime, stx_mtime" }, { 136, 8, "stx_dev" },
    { 144, 112, "newer fields" }, NONE };
static const struct field STATFS[] = { { 0, 120, "all of it: it describes the file system" }, NONE };
static const struct field UTSNAME[] = {
    { 65, 65, "nodename" }, { 130, 65, "release" }, { 195, 65, "version" },
    { 325, 65, "domainname" }, NONE };
static const struct field TIME[] = { { 0, 16, "the machine's time is virtual" }, NONE };
static const struct field WORD[] = { { 0, 8, "an address, a number or a time of this process" }, NONE };
static const struct field SYSINFO[] = { { 0, 112, "memory, load, processes" }, NONE };
static const struct field RUSAGE[] = { { 0, 144, "times and counts" }, NONE };
static const struct field SIGINFO[] = { { 16, 8, "si_pid, si_uid" }, NONE };
static const struct field ITIMER[] = { { 16, 16, "time left" }, NONE };
static const struct field RANDOM[] = { { 0, 512, "random" }, NONE };
static const struct field TMS[] = { { 0, 32, "times" }, NONE };
static const struct field NAME[] = { { 0, 16, "the name of the program" }, NONE };
static const struct field *const all_fields[] = {
    PIPE_FDS, STAT, STAT_FILE, STAT_PIPE, STATX, STATFS, UTSNAME, TIME, WORD, SYSINFO, RUSAGE,
    SIGINFO, ITIMER, RANDOM, TMS, NAME };

#define OUT 512
#define FILL 0x5a5a5a5a5a5a5a5aul
static union { word words[OUT / 8]; unsigned char bytes[OUT]; int ints[OUT / 4]; } out
    __attribute__((aligned(4096)));
static const struct field *hidden;
static const char *about = "";

static char line[4096];
static int used;
static void flush(void) { SYS(write, 1, line, used); used = 0; }
static void say(const char *text) {
    size_t n = length(text);
    if (used + n > sizeof line) flush();
    memcpy(line + used, text, n);
    used += n;
}
static void say_number(long value) {
    char buffer[24], *at = buffer + sizeof buffer;
    word left = value < 0 ? -(word)value : (word)value;
    *--at = 0;
    do *--at = '0' + left % 10; while (left /= 10);
    if (value < 0) *--at = '-';
    say(at);
}
static void fill(void) { for (int i = 0; i < OUT / 8; i++) out.words[i] = FILL; }
static void say_out(void) {
    for (const struct field *f = hidden; f && f->why; f++)
        for (int i = 0; i < f->size; i += 8) {
            /* Whether a hidden field was written is still visible: for a word, since one byte
             * may equal the filler by chance. */
            int written = 0;
            for (int at = f->at + i; at < f->at + f->size && at < f->at + i + 8 && at < OUT; at++) {
                written |= out.bytes[at] != 0x5a;
                out.bytes[at] = 0x5a;
            }
            if (written) say(" *");
        }
    int any = 0;
    for (int i = 0; i < OUT / 8; i++) any |= out.words[i] != FILL;
    if (!any) return;
    int first = 0, last = OUT - 1;
    while (out.bytes[first] == 0x5a) first++;
    while (out.bytes[last] == 0x5a) last--;
    say(" out+"); say_number(first); say(" ");
    for (int i = first; i <= last; i++) {
        char hex[3] = { "0123456789abcdef"[out.bytes[i] >> 4], "0123456789abcdef"[out.bytes[i] & 15], 0 };
        say(hex);
    }
    fill();
}
static void report(const char *what, long result) {
    say(about); say(what); say(" = "); say_number(result);
    say_out();
    say("\n");
    hidden = 0;
}
/* A call whose result is the same everywhere. */
#define T(name, ...) report(#name " " #__VA_ARGS__, SYS(name, __VA_ARGS__))
/* A call whose result may be any number that is not an error. */
#define OK(name, ...) do { long r_ = SYS(name, __VA_ARGS__); \
    report(#name " " #__VA_ARGS__, r_ < 0 && r_ > -4096 ? r_ : 0); } while (0)
/* A computed number. */
#define V(...) report(#__VA_ARGS__, (long)(__VA_ARGS__))
#define HIDE(fields) (hidden = fields)

/* Invalid addresses, and `edge`: 16 bytes before unmapped memory. */
static char *edge, *ro;
static struct { const char *name; char *at; } bad[] = {
    { "null ", 0 }, { "low ", (char *)4096 }, { "none ", 0 }, { "high ", (char *)0x8000000000000000 },
    { "kernel ", (char *)0xffffffff80001000 }, { "last ", (char *)-8 } };
#define COUNT(array) (int)(sizeof array / sizeof *array)
#define EACH_BAD(p, ...) for (int i_ = 0; i_ < COUNT(bad); i_++) { \
    char *p = bad[i_].at; about = bad[i_].name; __VA_ARGS__; about = ""; }
#define EACH_BAD_BUT_NULL(p, ...) for (int i_ = 1; i_ < COUNT(bad); i_++) { \
    char *p = bad[i_].at; about = bad[i_].name; __VA_ARGS__; about = ""; }

/* One descriptor of each kind. */
enum { RD, WR, RW, APPEND, PATH, DIR, PR, PW, NUL, ZERO, EV, MEM, KINDS };
static struct { const char *name; int fd; } kinds[KINDS + 3] = {
    { "rd ", 0 }, { "wr ", 0 }, { "rw ", 0 }, { "append ", 0 }, { "path ", 0 }, { "dir ", 0 },
    { "pr ", 0 }, { "pw ", 0 }, { "null ", 0 }, { "zero ", 0 }, { "event ", 0 }, { "mem ", 0 },
    { "closed ", 90 }, { "minus ", -1 }, { "far ", 0x7fffffff } };
#define FD(kind) kinds[kind].fd
/* `fd` names the descriptor. */
#define EACH_FD(fd, ...) for (int i_ = 0; i_ < KINDS + 3; i_++) { \
    long fd = kinds[i_].fd; about = kinds[i_].name; __VA_ARGS__; about = ""; }
/* Numbers that are not open files. */
#define EACH_CLOSED(fd, ...) for (int i_ = KINDS; i_ < KINDS + 3; i_++) { \
    long fd = kinds[i_].fd; about = kinds[i_].name; __VA_ARGS__; about = ""; }

/* Names. */
static char long_name[257], long_path[4200];
static struct { const char *name, *path; } wrong[] = {
    { "missing ", "missing" }, { "below ", "missing/x" }, { "in-file ", "file/x" }, { "empty ", "" },
    { "slash ", "file/" }, { "loop ", "loop" }, { "dangling ", "dangling" },
    { "name ", long_name }, { "path ", long_path }, { "null ", 0 }, { "low ", (char *)4096 },
    { "high ", (char *)0x8000000000000000 }, { "kernel ", (char *)0xffffffff80001000 } };
#define EACH_WRONG(p, ...) for (int i_ = 0; i_ < COUNT(wrong); i_++) { \
    const char *p = wrong[i_].path; about = wrong[i_].name; __VA_ARGS__; about = ""; }

static long make(const char *name, const char *text) {
    long fd = SYS(open, name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    SYS(write, fd, text, length(text));
    return fd;
}
static void prepare(void) {
    fill();
    memset(long_name, 'n', 256);
    memset(long_path, '/', 4198);
    char *pages = (char *)SYS(mmap, 0, 3 * 4096, 3, 0x22, -1, 0);
    SYS(mprotect, pages + 4096, 4096, 0);
    SYS(mprotect, pages + 8192, 4096, 1);
    edge = pages + 4096 - 16;
    bad[2].at = pages + 4096;
    ro = pages + 8192;
    SYS(umask, 022);
    /* Nothing inherited from the parent. */
    for (int fd = 3; fd < 256; fd++) SYS(close, fd);
    long limits[2] = { 0, 0 };
    SYS(prlimit64, 0, 7, 0, limits);
    limits[0] = 100;
    SYS(prlimit64, 0, 7, limits, 0);
    SYS(mkdir, "dir", 0755);
    SYS(close, make("dir/inside", "inside"));
    SYS(symlink, "file", "link");
    SYS(symlink, "nowhere", "dangling");
    SYS(symlink, "loop", "loop");
    SYS(symlink, "dir", "to-dir");
    SYS(close, make("file", "0123456789abcdef"));
    FD(RD) = SYS(open, "file", O_RDONLY);
    FD(WR) = SYS(open, "write", O_WRONLY | O_CREAT, 0644);
    FD(RW) = make("both", "0123456789abcdef");
    FD(APPEND) = SYS(open, "append", O_RDWR | O_CREAT | O_APPEND, 0644);
    FD(PATH) = SYS(open, "file", 010000000);
    FD(DIR) = SYS(open, "dir", O_RDONLY | O_DIRECTORY);
    int ends[2];
    SYS(pipe2, ends, O_NONBLOCK);
    FD(PR) = ends[0], FD(PW) = ends[1];
    FD(NUL) = SYS(open, "/dev/null", O_RDWR);
    FD(ZERO) = SYS(open, "/dev/zero", O_RDWR);
    FD(EV) = SYS(eventfd2, 0, O_NONBLOCK);
    FD(MEM) = SYS(memfd_create, "mem", 0);
    for (int i = 0; i < KINDS; i++) { say(kinds[i].name); V(FD(i) - FD(0)); }
}
static void cases(void);
/* The number of arguments, including the name. */
static word arguments;
int run(word *stack) {
    arguments = stack[0];
    for (int i = 0; i < COUNT(all_fields); i++) hidden = all_fields[i];
    hidden = 0;
    prepare();
    cases();
    flush();
    return 0;
}
