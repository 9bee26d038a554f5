/* Everything that a snapshot has to include: code that changes, memory that is mapped and unmapped,
 * files, pipes, a FIFO, a terminal, signals, timers, time, output, and finally another program. */
#include "start.h"
#include <fcntl.h>
#include <sys/mman.h>
#define P 4096
#define MAP(at, size, prot, flags) (char *)SYS(mmap, at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0)

static word state = 88172645463325252ul;
static word next(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
static volatile int alarms, faults;
static void on_alarm(int signal) { alarms += signal; }
static void on_fault(int signal, char *info, word *context) {
    (void)info;
    faults += signal;
    context[5 + 16] += 3;
}

static int generated(unsigned char *code, word value) {
    /* add $value, %eax; ret, after mov %edi, %eax */
    code[0] = 0x89; code[1] = 0xf8; code[2] = 0x83; code[3] = 0xc0; code[4] = (unsigned char)(value & 0x7f);
    code[5] = 0xc3;
    return ((int (*)(int))(void *)code)((int)value);
}

int run(word *stack) {
    if (stack[0] > 1) { number("again", length((char *)stack[2])); return 7; }
    unsigned char *code = (unsigned char *)MAP(0, 2 * P, 7, 0);
    char *area = MAP(0, 16 * P, 3, 0);
    char *heap = (char *)SYS(brk, 0);
    on_signal(14, on_alarm, SA_RESTART, 0);
    on_signal(11, on_fault, SA_SIGINFO, 0);
    struct { word interval[2], first[2]; } timer = { { 0, 7 }, { 0, 3 } };
    SYS(setitimer, 0, &timer, 0);
    int ends[2];
    SYS(pipe, ends);
    int pair[2];
    SYS(socketpair, 1, 1, 0, pair);
    long fd = SYS(open, "file", O_RDWR | O_CREAT, 0600), second = SYS(dup, fd);
    int no = 0;
    long master = SYS(open, "/dev/ptmx", O_RDWR | O_NONBLOCK);
    SYS(ioctl, master, 0x40045431 /* TIOCSPTLCK */, &no);
    long terminal = SYS(open, "/dev/pts/0", O_RDWR | O_NONBLOCK);
    SYS(mknod, "fifo", 0010600, 0);
    long reader = SYS(open, "fifo", O_RDONLY | O_NONBLOCK), writer = SYS(open, "fifo", O_WRONLY);
    word sum = 0;
    for (int round = 0; round < 40; round++) {
        word r = next();
        char *page = area + r % 16 * P, byte = 0;
        sum += generated(code + r % (P + P / 2), r >> 8);
        switch (r >> 32 & 15) {
        case 0: SYS(munmap, page, P); break;
        case 1: MAP(page, P, 3, MAP_FIXED); break;
        case 2: SYS(mprotect, page, P, 1); break;
        case 3: SYS(mprotect, page, P, 3); break;
        case 4: SYS(madvise, page, P, 4); break;
        case 5: SYS(brk, heap + r % (5 * P)); break;
        case 6: SYS(write, fd, page, 100); break;
        case 7: SYS(pwrite64, second, &r, 8, r % 3000); break;
        case 8: SYS(ftruncate, fd, r % 2000); break;
        case 9: SYS(write, ends[1], &r, 8); break;
        case 10: if (sum & 1) { SYS(write, ends[1], "x", 1); SYS(read, ends[0], &byte, 1); } break;
        case 11: SYS(rename, round & 1 ? "file" : "other", round & 1 ? "other" : "file"); break;
        case 12: SYS(kill, SYS(getpid, 0), 14); break;
        case 13: { word time[2] = { 0, 1000 }; SYS(nanosleep, time, 0); } break;
        case 14: SYS(getrandom, &byte, 1, 0); break;
        case 15: SYS(lseek, fd, 0, 0); SYS(read, second, &byte, 1); break;
        }
        if (round % 3 == 0) {
            unsigned char bytes[32];
            SYS(write, round & 1 ? terminal : master, &r, 5);
            for (long n = SYS(read, master, bytes, 32); n-- > 0;) sum = sum * 31 + bytes[n];
            for (long n = SYS(read, terminal, bytes, 32); n-- > 0;) sum = sum * 31 + bytes[n];
        }
        word status[18];
        SYS(fchmod, round & 1 ? ends[0] : pair[0], 0600 + round);
        SYS(fstat, round & 1 ? pair[0] : ends[1], status);
        sum = sum * 31 + ((unsigned *)status)[6];
        if (round % 4 == 0) {
            SYS(write, writer, &r, 3);
            if (round % 8 == 0) { SYS(close, writer); writer = SYS(open, "fifo", O_WRONLY); }
            SYS(read, reader, &byte, 1);
        }
        sum = sum * 31 + byte + SYS(lseek, second, 0, 1);
        /* Timers expire in the meantime; their signal stays pending. */
        word alarm = 1 << 13;
        SYS(rt_sigprocmask, 0, &alarm, 0, 8);
        for (int i = 0; i < 200; i++) sum += next();
        SYS(rt_sigprocmask, 1, &alarm, 0, 8);
        for (int i = 0; i < 200; i++) sum += next();
        /* mov %al, (%rdx); nop: three bytes; the store may fault. */
        __asm__ volatile("mov %%al, (%%rdx)\n nop" :: "a"(round), "d"(page) : "memory");
        if (round % 5 == 0) {
            word time[2];
            SYS(clock_gettime, 1, time);
            sum += time[1];
            number("sum", sum); number("alarms", alarms); number("faults", faults);
        }
    }
    long size = SYS(lseek, second, 0, 2);
    number("size", size);
    SYS(write, 2, "end\n", 4);
    char *args[] = { "again", "argument", 0 };
    SYS(execve, "/proc/self/exe", args, 0);
    return 1;
}
