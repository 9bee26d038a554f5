/* For programs that trace others: requests, waiting for stops, and what a stop is. */
enum {
    TRACEME, PEEKTEXT, PEEKDATA, PEEKUSER, POKETEXT, POKEDATA, POKEUSER, CONT, KILL, STEP,
    GETREGS = 12, SETREGS, GETFPREGS, SETFPREGS, ATTACH, DETACH, CALLS = 24, SETOPTIONS = 0x4200,
    GETEVENTMSG, GETSIGINFO, SETSIGINFO, GETREGSET, SETREGSET, SEIZE, INTERRUPT, LISTEN,
    PEEKSIGINFO, GETSIGMASK, SETSIGMASK, GET_SYSCALL_INFO = 0x420e, GET_RSEQ
};
enum { SYSGOOD = 1, FORK = 2, VFORK = 4, CLONE = 8, EXEC = 16, VFORK_DONE = 32, EXIT = 64, EXITKILL = 1 << 20 };
enum { WALL = 0x40000000, NOHANG = 1, TRAP = 5, KILLED = 9, USR1 = 10, USR2 = 12, CHLD = 17, CONTINUE = 18, STOP = 19 };
enum { NONE_SUCH = 0x7fffffff };
/* Places in `struct user_regs_struct`. */
enum { R15, R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RAX, RCX, RDX, RSI, RDI, ORIG_RAX, RIP, CS, EFLAGS,
       RSP, SS, FS_BASE, GS_BASE, DS, ES, FS, GS, REGISTERS };

static long child;
static int status;
static word registers[REGISTERS];
static int info[32];

#define P(request, ...) SYS(ptrace, request, __VA_ARGS__)
#define R(request, ...) V(SYS(ptrace, request, __VA_ARGS__))

/* Waits for a stop or the end of a thread, and says what it was. */
static void stopped_of(long thread) {
    long found = SYS(wait4, thread, &status, WALL, 0);
    if (found != thread) { V(found); return; }
    report("status", status);
    if ((status & 0xff) != 0x7f) return;
    memset(info, 0, sizeof info);
    long asked = P(GETSIGINFO, thread, 0, info);
    if (asked != 0) { report("siginfo", asked); return; }
    report("si_signo", info[0]);
    report("si_code", info[2]);
}
static void stopped(void) { stopped_of(child); }
static void get(void) { SYS(ptrace, GETREGS, child, 0, registers); }
static void set(void) { V(SYS(ptrace, SETREGS, child, 0, registers)); }
/* The call in which the child has stopped. */
static void call(void) {
    get();
    report("orig_rax", registers[ORIG_RAX]);
    report("rax", registers[RAX]);
}
/* Starts a child that stops, and is traced from then on. */
static void start(void (*body)(void)) {
    flush();
    child = SYS(fork, 0);
    if (child == 0) {
        SYS(ptrace, TRACEME, 0, 0, 0);
        SYS(kill, SYS(getpid, 0), STOP);
        body();
        SYS(exit_group, 0);
    }
    say("start\n");
    stopped();
}
/* Starts a child that nobody traces. */
static void begin_other(void (*body)(void)) {
    flush();
    child = SYS(fork, 0);
    if (child == 0) {
        body();
        SYS(exit_group, 0);
    }
}
static void end_child(void) {
    SYS(kill, child, KILLED);
    do SYS(wait4, child, &status, WALL, 0); while ((status & 0xff) == 0x7f);
    V(status);
}
static void waits(void) { for (;;) SYS(pause, 0); }

static char text[8192], path[64];
static const char *of(const char *before, long number, const char *after) {
    char *at = path, digits[20], *first = digits + 20;
    while (*before) *at++ = *before++;
    do *--first = '0' + number % 10; while (number /= 10);
    while (first < digits + 20) *at++ = *first++;
    while ((*at++ = *after++)) {}
    return path;
}
/* What follows a name in /proc/PID/status: a letter or a number. */
static long field(long of_pid, const char *name) {
    memset(text, 0, sizeof text);
    long fd = SYS(open, of("/proc/", of_pid, "/status"), O_RDONLY), size = 0, more;
    while ((more = SYS(read, fd, text + size, sizeof text - 1 - size)) > 0) size += more;
    SYS(close, fd);
    for (const char *at = text; *at; at++)
        if ((at == text || at[-1] == '\n') && same(at, name, length(name))) {
            at += length(name);
            while (*at == '\t' || *at == ' ') at++;
            if (*at > '9') return *at;
            long value = 0;
            while (*at >= '0' && *at <= '9') value = 10 * value + *at++ - '0';
            return value;
        }
    return -1;
}
/* Waits until a child sleeps in a call. */
static void asleep(void) { while (field(child, "State:") != 'S') SYS(sched_yield, 0); }
