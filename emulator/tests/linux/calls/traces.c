/* The requests of ptrace: who may trace whom, memory, registers, signals, options. */
#include "cases.h"
#include "thread.h"
#include "tracer.h"

static long own;
static word data[4] = { 0x1122334455667788, 0x99aabbccddeeff00, 3, 4 };
static volatile word shown;

static void who(void) {
    R(ATTACH, own, 0, 0); R(SEIZE, own, 0, 0); R(ATTACH, NONE_SUCH, 0, 0); R(CONT, NONE_SUCH, 0, 0);
    R(ATTACH, 0, 0, 0); R(ATTACH, -1, 0, 0); R(CONT, 0, 0, 0); R(KILL, NONE_SUCH, 0, 0);
    R(CONT, own, 0, 0); R(SEIZE, NONE_SUCH, 1, 0);
    begin_other(waits);
    asleep();
    R(CONT, child, 0, 0); R(PEEKDATA, child, data, &shown); R(KILL, child, 0, 0); R(INTERRUPT, child, 0, 0);
    R(SEIZE, child, 1, 0); R(SEIZE, child, 0, 1 << 8); R(SEIZE, child, 0, 1ul << 40);
    V(field(child, "TracerPid:"));
    R(SEIZE, child, 0, SYSGOOD);
    V(field(child, "TracerPid:") == own); V(field(child, "State:"));
    R(SEIZE, child, 0, 0); R(ATTACH, child, 0, 0);
    /* It has not stopped. */
    R(CONT, child, 0, 0); R(PEEKDATA, child, data, &shown); R(GETREGS, child, 0, registers); R(DETACH, child, 0, 0);
    R(SETOPTIONS, child, 0, 0); R(GETSIGINFO, child, 0, info); R(LISTEN, child, 0, 0); R(9999, child, 0, 0);
    R(INTERRUPT, child, 0, 0);
    stopped();
    V(field(child, "State:"));
    R(9999, child, 0, 0); R(0x4250, child, 0, 0);
    R(CONT, child, 0, 65); R(CONT, child, 0, -1); R(DETACH, child, 0, 65); R(CALLS, child, 0, 100); R(STEP, child, 0, 1ul << 32);
    R(DETACH, child, 0, 0);
    V(field(child, "TracerPid:")); R(DETACH, child, 0, 0);
    /* The namespaces are its own as they are its parent's. */
    word first[18], second[18];
    V(SYS(stat, of("/proc/", own, "/ns/mnt"), first)); V(SYS(stat, of("/proc/", child, "/ns/mnt"), second)); V(first[1] == second[1]);
    memset(text, 0, sizeof text); V(SYS(readlink, path, text, 64) > 6); V(same(text, "mnt:[", 5));
    V(SYS(stat, of("/proc/", child, "/ns/pid"), second)); V(first[1] != second[1]); V(SYS(lstat, path, second)); V((second[3] & 0xf000) == 0xa000);
    long ns = SYS(open, path, O_RDONLY); V(ns > 0); V(SYS(fstat, ns, first)); V((first[3] & 0xf000) == 0x8000); SYS(close, ns);
    /* One that has ended, and its thread. */
    SYS(kill, child, KILLED);
    SYS(waitid, 1, child, info, 0x01000004, 0);
    R(ATTACH, child, 0, 0); R(SEIZE, child, 0, 0); R(CONT, child, 0, 0);
    SYS(wait4, child, &status, 0, 0);
    R(ATTACH, child, 0, 0);
    
}

static void twice(void) {
    V(SYS(ptrace, TRACEME, 0, 0, 0));
    flush();
    SYS(exit_group, SYS(ptrace, TRACEME, 0, 0, 0) == -1);
}

static void memory(void) {
    start(waits);
    shown = 0; R(PEEKDATA, child, data, &shown); V(shown); R(PEEKTEXT, child, data + 1, &shown); V(shown);
    R(PEEKDATA, child, (char *)data + 3, &shown); V(shown);
    R(POKEDATA, child, data, 77); R(PEEKDATA, child, data, &shown); V(shown); V(data[0] != 77);
    R(POKETEXT, child, (char *)data + 5, -1); R(PEEKDATA, child, data, &shown); V(shown);
    /* What it may not write, or read, itself; a word over the end. */
    R(PEEKTEXT, child, (void *)memory, &shown); V(shown == *(word *)memory);
    R(POKETEXT, child, (void *)memory, 123); R(PEEKTEXT, child, (void *)memory, &shown); V(shown); V(*(word *)memory != 123);
    R(PEEKDATA, child, ro, &shown); R(POKEDATA, child, ro, 5); R(PEEKDATA, child, ro, &shown); V(shown);
    R(PEEKDATA, child, bad[2].at, &shown); R(POKEDATA, child, bad[2].at, 6); R(PEEKDATA, child, bad[2].at, &shown); V(shown);
    for (int i = 0; i < COUNT(bad); i++) if (i != 2) { R(PEEKDATA, child, bad[i].at, &shown); R(POKEDATA, child, bad[i].at, 1); }
    EACH_BAD(p, R(PEEKDATA, child, data, p));
    /* A shared mapping that may only be read. */
    end_child();
    char *page = (char *)SYS(mmap, 0, 4096, 1, 1, FD(RD), 0);
    start(waits);
    R(PEEKDATA, child, page, &shown); V(shown); R(POKEDATA, child, page, 1); V(page[0]);
    /* As a file. */
    long fd = SYS(open, of("/proc/", child, "/mem"), O_RDWR);
    V(fd > 0); OK(pread64, fd, &shown, 8, data + 1); V(shown);
    V(SYS(pwrite64, fd, "abcdefgh", 8, data)); R(PEEKDATA, child, data, &shown); V(shown);
    V(SYS(lseek, fd, data, 0) == (long)data); V(SYS(read, fd, &shown, 8)); V(shown); V(SYS(lseek, fd, 0, 1) == (long)data + 8);
    V(SYS(lseek, fd, -8, 1) == (long)data); V(SYS(write, fd, "ijkl", 4)); V(SYS(lseek, fd, 0, 1) == (long)data + 4); V(SYS(lseek, fd, 0, 2));
    T(pread64, fd, &shown, 8, 0); T(pread64, fd, &shown, 8, 4096); V(SYS(pread64, fd, &shown, 0, 4096));
    V(SYS(pread64, fd, out.bytes, 32, edge)); fill(); V(SYS(pread64, fd, &shown, 8, (char *)data + 8)); V(shown);
    V(SYS(pwrite64, fd, "x", 1, (void *)memory)); V(SYS(pwrite64, fd, "x", 1, page)); V(SYS(pwrite64, fd, "x", 1, 4096));
    struct { void *at; word size; } two[2] = { { (void *)&shown, 4 }, { out.bytes, 4 } };
    V(SYS(preadv, fd, two, 2, data, 0)); V(shown); fill();
    long only = SYS(open, path, O_RDONLY); V(only > 0); V(SYS(write, only, "x", 1)); V(SYS(pread64, only, &shown, 8, data)); SYS(close, only);
    /* It stays that of the program that has ended. */
    end_child();
    V(SYS(pread64, fd, &shown, 8, data)); V(SYS(pwrite64, fd, "x", 1, data)); SYS(close, fd);
    /* Other ways to the memory. */
    start(waits);
    struct { const void *at; word size; } here = { (void *)&shown, 8 }, there = { data, 8 };
    V(SYS(process_vm_readv, child, &here, 1, &there, 1, 0)); V(shown);
    shown = 99; V(SYS(process_vm_writev, child, &here, 1, &there, 1, 0)); shown = 0; R(PEEKDATA, child, data, &shown); V(shown);
    there.at = ro; V(SYS(process_vm_writev, child, &here, 1, &there, 1, 0));
    fd = SYS(open, of("/proc/", child, "/maps"), O_RDONLY); V(SYS(read, fd, text, 100) > 50); SYS(close, fd);
    end_child();
}

/* Sets registers and stops; then says what they are. */
extern char loop_start[], loop_end[];
static void loops(void) {
    __asm__ volatile("mov $0x1001, %%rax; mov $0x1002, %%rbx; mov $0x1003, %%rcx; mov $0x1004, %%rdx; mov $0x1005, %%rsi; mov $0x1006, %%rdi;"
                     "mov $0x1008, %%r8; mov $0x1009, %%r9; mov $0x100a, %%r10; mov $0x100b, %%r11; mov $0x100c, %%r12;"
                     "mov $0x100d, %%r13; mov $0x100e, %%r14; mov $0x100f, %%r15; pxor %%xmm1, %%xmm1; cvtsi2sd %%rbx, %%xmm1; fld1; std;"
                     "loop_start: int3; loop_end: cld; mov %%rbx, %%rdi; mov $231, %%eax; syscall"
                     ::: "memory", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15");
}
static void registers_of_it(void) {
    start(loops);
    R(CONT, child, 0, 0);
    stopped();
    get();
    for (int i = 0; i < REGISTERS; i++)
        if (i != RIP && i != RSP && i != RBP && i != FS_BASE && i != GS_BASE && i != EFLAGS && i != FS && i != DS && i != ES && i != GS) V(registers[i]);
    V(registers[RIP] - (word)loop_end); V(registers[EFLAGS] & 0xfd5);
    for (int i = 0; i < 30 * 8; i += 8) { word one = 0; R(PEEKUSER, child, i, &one); if (i < REGISTERS * 8) V(one == registers[i / 8]); }
    EACH_BAD(p, R(GETREGS, child, 0, p); R(SETREGS, child, 0, p); R(GETFPREGS, child, 0, p); R(SETFPREGS, child, 0, p));
    shown = 0; R(PEEKUSER, child, 1, &shown); R(PEEKUSER, child, 4, &shown); R(PEEKUSER, child, 928, &shown); R(PEEKUSER, child, 920, &shown); R(PEEKUSER, child, -8, &shown);
    R(POKEUSER, child, 1, 0); R(POKEUSER, child, 928, 0); R(POKEUSER, child, 216, 0); R(POKEUSER, child, 840, 0); R(POKEUSER, child, -8, 0);
    /* Registers that nobody may have. */
    for (int i = 0; i < 3; i++) { R(POKEUSER, child, CS * 8, i); R(POKEUSER, child, SS * 8, i); R(POKEUSER, child, DS * 8, i + 8); }
    R(POKEUSER, child, FS_BASE * 8, 1ul << 47); R(POKEUSER, child, GS_BASE * 8, 1ul << 63); R(POKEUSER, child, CS * 8, 0x33); R(POKEUSER, child, SS * 8, 0x2b);
    R(POKEUSER, child, GS_BASE * 8, 0x1234000); R(PEEKUSER, child, GS_BASE * 8, &shown); V(shown); R(POKEUSER, child, GS_BASE * 8, 0);
    R(POKEUSER, child, EFLAGS * 8, -1); R(PEEKUSER, child, EFLAGS * 8, &shown); V(shown & 0x3effff); R(POKEUSER, child, EFLAGS * 8, 0x202); R(PEEKUSER, child, EFLAGS * 8, &shown); V(shown);
    /* Debug registers: those in which nothing is. */
    for (int i = 0; i < 8; i++) { shown = 1; R(PEEKUSER, child, 848 + 8 * i, &shown); V(shown); }
    R(POKEUSER, child, 848 + 32, 0); R(POKEUSER, child, 848 + 40, 0); R(POKEUSER, child, 848 + 48, 0); R(POKEUSER, child, 848 + 56, 0); R(PEEKUSER, child, 848 + 48, &shown); V(shown);
    /* Sets. */
    word set_of[2048]; struct { void *at; word size; } io = { set_of, sizeof set_of };
    R(GETREGSET, child, 1, &io); V(io.size); V(same(set_of, registers, 80));
    io.size = 24; R(GETREGSET, child, 1, &io); V(io.size); io.size = 20; R(GETREGSET, child, 1, &io); V(io.size);
    io.size = sizeof set_of; R(GETREGSET, child, 2, &io); V(io.size); V((int)set_of[0] & 0xffff); V(((int *)set_of)[6]); V(set_of[22]); V(set_of[23]);
    io.size = sizeof set_of; R(GETREGSET, child, 0x202, &io); V(io.size >= 576); V((set_of[58] & 3) == 3); V((set_of[64] & ~7ul) == 0); V(set_of[65]); V(set_of[22]);
    io.size = sizeof set_of; R(GETREGSET, child, 3, &io); R(GETREGSET, child, 0, &io); R(GETREGSET, child, 0x99999, &io); R(SETREGSET, child, 3, &io);
    EACH_BAD(p, R(GETREGSET, child, 1, p); R(SETREGSET, child, 1, p));
    io.at = bad[1].at; io.size = 216; R(GETREGSET, child, 1, &io); R(SETREGSET, child, 1, &io);
    /* Floating point: the same comes back; a wrong MXCSR does not. */
    word float_[64]; R(GETFPREGS, child, 0, float_); float_[22] = 0x4045000000000000; R(SETFPREGS, child, 0, float_);
    memset(float_, 0, sizeof float_); R(GETFPREGS, child, 0, float_); V(float_[22]); float_[3] |= 0xffffffff; R(SETFPREGS, child, 0, float_);
    io.at = set_of; io.size = sizeof set_of; R(GETREGSET, child, 0x202, &io); set_of[22] = 0x4059000000000000; R(SETREGSET, child, 0x202, &io); R(GETFPREGS, child, 0, float_); V(float_[22]);
    /* Only a whole one, whose size the processor says. */
    io.size = 576; R(SETREGSET, child, 0x202, &io); io.size = sizeof set_of; R(GETREGSET, child, 0x202, &io);
    set_of[65] = 1; R(SETREGSET, child, 0x202, &io); set_of[65] = 0; set_of[64] |= 1ul << 60; R(SETREGSET, child, 0x202, &io);
    io.size = 512; R(GETREGSET, child, 2, &io); io.size = 8; R(GETREGSET, child, 2, &io); V(io.size);
    /* Goes on with another rbx, elsewhere. */
    get(); registers[RBX] = 42; registers[RIP] = (word)loop_end; set(); io.at = registers + R15; io.size = 8; registers[0] = 5; R(SETREGSET, child, 1, &io); R(PEEKUSER, child, 0, &shown); V(shown);
    R(CONT, child, 0, 0);
    stopped();
}

static void sends(void) {
    word set = 1ul << (USR1 - 1) | 1ul << (USR2 - 1) | 1ul << 39;
    SYS(rt_sigprocmask, 0, &set, 0, 8);
    long self = SYS(getpid, 0);
    SYS(tgkill, self, self, USR1);
    SYS(kill, self, USR2);
    SYS(kill, self, 40); SYS(kill, self, 40);
    __asm__ volatile("int3");
    set = 0; SYS(rt_sigprocmask, 2, &set, 0, 8);
}
static void signals_of_it(void) {
    start(sends);
    R(GETSIGINFO, child, 0, info); V(info[0]); V(info[2]); V(info[4] == child);
    EACH_BAD(p, R(GETSIGINFO, child, 0, p); R(SETSIGINFO, child, 0, p); R(GETSIGMASK, child, 8, p); R(SETSIGMASK, child, 8, p); R(PEEKSIGINFO, child, p, text); R(GETEVENTMSG, child, 0, p));
    R(CONT, child, 0, 0);
    stopped();
    word mask = 0;
    R(GETSIGMASK, child, 8, &mask); V(mask); R(GETSIGMASK, child, 4, &mask); R(SETSIGMASK, child, 16, &mask);
    struct { word from; unsigned flags; int count; } which = { 0, 0, 10 };
    int many[4][32] = { 0 };
    which.count = 4; R(PEEKSIGINFO, child, &which, many); V(many[0][0]); V(many[0][2]);
    which.flags = 1; R(PEEKSIGINFO, child, &which, many); for (int i = 0; i < 3; i++) { V(many[i][0]); V(many[i][2]); }
    which.from = 2; R(PEEKSIGINFO, child, &which, many); V(many[0][0]); which.from = 9; R(PEEKSIGINFO, child, &which, many);
    which.flags = 2; R(PEEKSIGINFO, child, &which, many); which.flags = 0; which.count = -1; R(PEEKSIGINFO, child, &which, many); which.count = 0; R(PEEKSIGINFO, child, &which, many);
    which.from = 0; which.count = 1; R(PEEKSIGINFO, child, &which, bad[1].at);
    /* All signals; those that cannot be blocked are not. */
    word all = -1; R(SETSIGMASK, child, 8, &all); R(GETSIGMASK, child, 8, &mask); V(mask); V(field(child, "SigBlk:") > 0);
    R(GETEVENTMSG, child, 0, &mask);
    R(SETOPTIONS, child, 0, 0x100); R(SETOPTIONS, child, 0, 1ul << 33); R(SETOPTIONS, child, 0, 0xff); R(SETOPTIONS, child, 0, EXITKILL); R(21, child, 0, SYSGOOD);
    word rseq[3] = { 9, 9, 9 }; R(GET_RSEQ, child, 24, rseq); V(rseq[0]); V(rseq[1]); V(rseq[2]); R(GET_RSEQ, child, 4, rseq); R(GET_RSEQ, child, 24, bad[1].at);
    char call_info[96]; memset(call_info, 0, sizeof call_info); R(GET_SYSCALL_INFO, child, 96, call_info); V(call_info[0]); V(*(unsigned *)(call_info + 4)); R(GET_SYSCALL_INFO, child, 0, 0); R(GET_SYSCALL_INFO, child, 8, bad[1].at);
    mask = 0; R(SETSIGMASK, child, 8, &mask);
    R(CONT, child, 0, 0);
    stopped(); V(info[0]);
    /* Another signal with that information; then none, and those that wait. */
    R(CONT, child, 0, 0); stopped(); R(CONT, child, 0, 0); stopped();
    info[2] = -77; R(SETSIGINFO, child, 0, info); R(GETSIGINFO, child, 0, info); V(info[2]);
    R(CONT, child, 0, 0);
    stopped();
    R(CONT, child, 0, USR2);
    stopped();
}

static void cases(void) {
    /* A filter may forbid it, and old kernels lack some requests. */
    if (arguments > 2) {
        word all[12];
        begin_other(waits);
        long done = SYS(ptrace, SEIZE, child, 0, 0) | SYS(ptrace, INTERRUPT, child, 0, 0);
        if (done == 0) SYS(wait4, child, &status, WALL, 0);
        done |= SYS(ptrace, GETREGS, child, 0, registers);
        int lacks = done != 0 || SYS(ptrace, GET_SYSCALL_INFO, child, 96, all) < 0 || SYS(ptrace, GET_RSEQ, child, 24, all) < 0;
        SYS(kill, child, KILLED);
        SYS(exit_group, lacks);
    }
    own = SYS(getpid, 0);
    SYS(setpgid, 0, 0);
    flush();
    void (*const parts[])(void) = { twice, who, memory, registers_of_it, signals_of_it };
    for (int i = 0; i < COUNT(parts); i++) {
        flush();
        int ended = 0;
        long part = SYS(fork, 0);
        if (part == 0) {
            own = SYS(getpid, 0);
            parts[i]();
            flush();
            SYS(exit_group, 0);
        }
        do SYS(wait4, part, &ended, WALL, 0); while ((ended & 0xff) == 0x7f && SYS(ptrace, CONT, part, 0, 0) == 0);
        V(ended);
    }
}
