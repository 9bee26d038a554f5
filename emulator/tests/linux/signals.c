/* Signals: frames, masks, stacks, timers. */
#include "start.h"
#define P 4096

static int order[32], orders;
static word frame_rip, frame_flags;
static struct { word start; int flags, pad; word size; } stack_in_frame;
static void *trampoline;
static int number_in, code_in, on_alternate;
static word alternate[8 * P / 8];

static void told(int signal, char *info, word *context) {
    number_in = signal;
    code_in = *(int *)(info + 8);
    frame_rip = context[5 + 16];
    frame_flags = context[5 + 17];
    memcpy(&stack_in_frame, context + 2, sizeof stack_in_frame);
    trampoline = (void *)context[-1];
    order[orders++] = signal;
    on_alternate = (char *)&signal > (char *)alternate && (char *)&signal < (char *)alternate + sizeof alternate;
    /* The part of the frame that is the same on all processors. */
    char *fpu = (char *)context[5 + 23];
    number("aligned", ((word)context - 8 + 8) % 16 + (word)fpu % 64);
    number("cs ss", context[5 + 18] & 0xffff);
    number("ss", context[5 + 18] >> 48);
    number("uc flags", context[0]);
    number("magic", *(unsigned *)(fpu + 464));
    number("magic2", *(unsigned *)(fpu + *(unsigned *)(fpu + 468) - 4));
    number("fcw", *(unsigned short *)fpu);
    number("mxcsr", *(unsigned *)(fpu + 24));
    number("mask", context[5 + 32]);
    word blocked = 0;
    SYS(rt_sigprocmask, 0, 0, &blocked, 8);
    number("blocked", blocked);
}
static void show(const char *what) {
    print(what);
    number(" signal", number_in);
    number(" code", code_in);
    number(" alternate", on_alternate);
    number(" ss_flags", stack_in_frame.flags);
    number(" ss_size", stack_in_frame.size);
    number(" restorer", trampoline == (void *)restorer);
    number_in = code_in = 0;
}
static void brief(int signal) { order[orders++] = signal; }
static void nested(int signal) {
    order[orders++] = signal;
    if (orders < 4) SYS(kill, SYS(getpid, 0), signal);
    order[orders++] = -signal;
}
static void skip_two(int signal, char *info, word *context) {
    number_in = signal;
    code_in = *(int *)(info + 8);
    number("at instruction", *(word *)(info + 16) == context[5 + 16]);
    number("trap", context[5 + 20]);
    number("bytes", *(unsigned short *)context[5 + 16]);
    context[5 + 16] += 2;
}
static void simply(int signal, char *info, word *context) {
    number_in = signal;
    code_in = *(int *)(info + 8);
    number("trap", context[5 + 20]);
    context[5 + 13] = 4711;
}
static void all(const char *what) {
    print(what);
    for (int i = 0; i < orders; i++) number("", order[i]);
    orders = 0;
}

static word mxcsr_in, top_in;
static void clobber(int signal) {
    unsigned other = 0x9fc0;
    unsigned short environment[14];
    order[orders++] = signal;
    __asm__ volatile("stmxcsr %0\n fnstenv %1" : "=m"(mxcsr_in), "=m"(environment));
    top_in = environment[2] + environment[4] * 0x10000ul;
    __asm__ volatile("ldmxcsr %0\n fninit\n fldz\n fldz\n pcmpeqd %%xmm3, %%xmm3\n pcmpeqd %%xmm15, %%xmm15"
                     :: "m"(other) : "memory");
}

int run(word *stack) {
    (void)stack;
    int pid = SYS(getpid, 0);
    number("old", on_signal(10, told, SA_SIGINFO, 1 << 4));
    number("kill 9", on_signal(9, told, 0, 0));
    number("kill 65", SYS(kill, pid, 65));
    SYS(kill, pid, 10);
    show("plain");
    struct { void *start; int flags, pad; word size; } new = { alternate, 0, 0, sizeof alternate }, old;
    new.size = 100;
    number("small", SYS(sigaltstack, &new, 0));
    new.size = sizeof alternate;
    number("sigaltstack", SYS(sigaltstack, &new, &old));
    number("was", old.flags);
    SYS(kill, pid, 10);
    show("not on it");
    on_signal(10, told, SA_SIGINFO | SA_ONSTACK | SA_RESETHAND, 0);
    SYS(tgkill, pid, pid, 10);
    show("on it");
    struct action now;
    SYS(rt_sigaction, 10, 0, &now, 8);
    number("reset", (word)now.handler);

    /* Pending signals are taken in the order of their numbers; the handler of the first one runs last. */
    on_signal(10, brief, 0, 0);
    on_signal(12, brief, 0, 0);
    on_signal(34, brief, 0, 0);
    word set = 1ul << 9 | 1ul << 11 | 1ul << 33, pending;
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    SYS(kill, pid, 34); SYS(kill, pid, 12); SYS(kill, pid, 10); SYS(kill, pid, 12); SYS(kill, pid, 34);
    SYS(rt_sigpending, &pending, 8);
    number("pending", pending);
    all("none yet");
    SYS(rt_sigprocmask, 1, &set, 0, 8);
    all("all");
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    SYS(kill, pid, 12);
    word none = 0;
    number("suspend", SYS(rt_sigsuspend, &none, 8));
    all("suspended");
    SYS(rt_sigprocmask, 0, 0, &pending, 8);
    number("still", pending);
    SYS(kill, pid, 34);
    char info[128];
    number("wait", SYS(rt_sigtimedwait, &set, info, 0, 8) + *(int *)info);
    SYS(rt_sigprocmask, 1, &set, 0, 8);
    on_signal(12, nested, 0, 0);
    SYS(kill, pid, 12);
    all("deferred");
    on_signal(12, nested, SA_NODEFER, 0);
    SYS(kill, pid, 12);
    all("nested");
    on_signal(12, (void *)1, 0, 0);
    SYS(kill, pid, 12);

    /* Exceptions. */
    on_signal(8, skip_two, SA_SIGINFO, 0);
    on_signal(4, skip_two, SA_SIGINFO, 0);
    on_signal(5, simply, SA_SIGINFO, 0);
    on_signal(11, skip_two, SA_SIGINFO, 0);
    __asm__ volatile("xor %%ecx, %%ecx\n div %%ecx" ::: "eax", "ecx", "edx");
    number("divide", number_in * 1000 + code_in);
    __asm__ volatile("ud2");
    number("invalid", number_in * 1000 + code_in);
    word result = 1;
    __asm__ volatile("int3" : "+a"(result));
    number("breakpoint", number_in * 1000 + code_in);
    number("changed", result);
    __asm__ volatile("int $0x99");
    number("interrupt", number_in * 1000 + code_in);
    __asm__ volatile("hlt; nop");
    number("privileged", number_in * 1000 + code_in);

    /* The red zone and all registers are preserved. */
    on_signal(10, brief, 0, 0);
    word before = 0x1122334455667788, sum;
    __asm__ volatile(
        "push %%rbp\n sub $512, %%rsp\n mov %1, -128(%%rsp)\n mov %1, -8(%%rsp)\n"
        "mov $3, %%ebx\n mov $5, %%ebp\n mov $7, %%r12d\n mov $11, %%r13d\n mov $13, %%r14d\n"
        "mov $17, %%r15d\n mov $19, %%r8d\n mov $23, %%r9d\n mov $29, %%r10d\n"
        "mov $62, %%eax\n mov %2, %%edi\n mov $10, %%esi\n mov $31, %%edx\n stc\n syscall\n"
        "setc %%al\n movzx %%al, %%eax\n"
        "add %%rbx, %%rax\n add %%rbp, %%rax\n add %%r12, %%rax\n add %%r13, %%rax\n"
        "add %%r14, %%rax\n add %%r15, %%rax\n add %%r8, %%rax\n add %%r9, %%rax\n"
        "add %%r10, %%rax\n add %%rdx, %%rax\n add %%rsi, %%rax\n"
        "add -128(%%rsp), %%rax\n sub -8(%%rsp), %%rax\n add $512, %%rsp\n pop %%rbp\n"
        : "=&a"(sum) : "S"(before), "d"(pid)
        : "rbx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rcx", "rdi", "memory", "cc");
    number("sum", sum);
    orders = 0;

    /* So is the floating-point state; the handler starts with a fresh one. */
    on_signal(10, clobber, 0, 0);
    word low = 0x0123456789abcdef, high = 0xfedcba9876543210, xmm[2], st[2] = { 0, 0 };
    unsigned up = 0x5fa0, mxcsr = 0;
    __asm__ volatile(
        "ldmxcsr %5\n fninit\n fldpi\n fld1\n movq %6, %%xmm3\n movq %7, %%xmm15\n"
        "mov $62, %%eax\n mov $10, %%esi\n syscall\n"
        "stmxcsr %3\n fstpl %2\n fstpl 8+%2\n movq %%xmm3, %0\n movq %%xmm15, %1\n"
        : "=&m"(xmm[0]), "=&m"(xmm[1]), "=&m"(st), "=&m"(mxcsr)
        : "D"(pid), "m"(up), "m"(low), "m"(high)
        : "rax", "rcx", "rsi", "r11", "memory");
    number("in the handler", mxcsr_in);
    number("top and tags", top_in);
    number("xmm3", xmm[0] == low);
    number("xmm15", xmm[1] == high);
    number("mxcsr", mxcsr);
    number("one", st[0]);
    number("pi", st[1]);
    orders = 0;

    /* Timers. */
    on_signal(14, brief, 0, 0);
    word timer[4] = { 0, 0, 0, 20000 };
    number("setitimer", SYS(setitimer, 0, timer, 0));
    number("pause", SYS(pause, 0));
    number("left", (SYS(getitimer, 0, timer), timer[3]));
    timer[3] = 20000;
    SYS(setitimer, 0, timer, 0);
    word long_time[2] = { 5, 0 }, rest[2] = { 0, 0 };
    number("sleep", SYS(nanosleep, long_time, rest));
    number("rest", rest[0]);
    int ends[2];
    char byte;
    SYS(pipe, ends);
    SYS(setitimer, 0, timer, 0);
    number("read", SYS(read, ends[0], &byte, 1));
    SYS(setitimer, 0, timer, 0);
    struct { int fd; short wanted, got; } polled = { ends[0], 1, 0 };
    number("poll", SYS(poll, &polled, 1, -1));
    all("alarms");
    word soon[2] = { 0, 1000 };
    number("poll", SYS(ppoll, 0, 0, soon, 0));
    int id;
    struct { word value; int signo, notify; word pad[6]; } event = { 0x77, 34, 0, { 0 } };
    number("timer", SYS(timer_create, 1, &event, &id));
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    word spec[4] = { 0, 0, 0, 1000 };
    number("settime", SYS(timer_settime, id, 0, spec, 0));
    number("wait", SYS(rt_sigtimedwait, &set, info, 0, 8));
    number("code", *(int *)(info + 8));
    number("value", *(word *)(info + 24));
    return 0;
}
