/* Ends in the way that its first argument selects. */
#include "start.h"

static int deep(int n) {
    volatile char frame[1000];
    frame[n % 1000] = (char)n;
    return deep(n + 1) + frame[(n + 1) % 1000];
}
static void handler(int signal) { (void)signal; }

int run(word *stack) {
    char *how = (char *)stack[2];
    word stop = 0;
    switch (how[0]) {
    case 's': return deep(0);
    case 'n': *(volatile int *)stop = 1; break;
    case 'a': SYS(kill, SYS(getpid, 0), 6); break;
    case 'k': SYS(kill, SYS(getpid, 0), 9); break;
    case 'b': stop = 1 << 10; SYS(rt_sigprocmask, 0, &stop, 0, 8); *(volatile int *)0 = 1; break;
    case 'h': on_signal(11, handler, 0, 0); __asm__ volatile("xor %esp, %esp\n push %rax"); break;
    case 'r': __asm__ volatile("mov %0, %%rsp\n mov $15, %%eax\n syscall" :: "r"(stack + 1)); break;
    case 'o': {
        /* Its name is that of what execve was given: a link, a script. */
        char name[17] = "";
        SYS(prctl, 16 /* PR_GET_NAME */, name);
        SYS(write, 1, name, length(name)); SYS(write, 1, "\n", 1);
        SYS(exit, 300);
    } break;
    case 'p': { int e[2]; SYS(pipe, e); SYS(close, e[0]); SYS(write, e[1], "", 1); } break;
    case 'c': SYS(kill, SYS(getpid, 0), 17); break;
    case 'i': __asm__ volatile("ud2"); break;
    case 'g': __asm__ volatile("hlt"); break;
    case 'e': {
        char *args[] = { "again", "o", 0 };
        number("execve", SYS(execve, "none", args, 0));
        number("execve", SYS(execve, "/proc/self/exe", args, 0));
    } break;
    case 'l': {
        char *args[] = { "again", "o", 0 };
        SYS(symlink, "/proc/self/exe", "a-long-name-of-a-link");
        number("execve", SYS(execve, "./a-long-name-of-a-link", args, 0));
    } break;
    case '#': {
        /* The script's path is the argument that selects the end: its first letter is o. */
        char *args[] = { "again", 0 }, *script = "#!/proc/self/exe\n";
        long fd = SYS(open, "of-a-script", 0101, 0700);
        SYS(write, fd, script, length(script)); SYS(close, fd);
        number("execve", SYS(execve, "of-a-script", args, 0));
    } break;
    }
    return 5;
}
