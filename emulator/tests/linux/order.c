/* What `execve` checks first: before Linux 6.8 it read the arguments before it opened the file. */
#include "start.h"

int run(word *stack) {
    char *bad = (char *)8, *none[] = { 0 };
    (void)stack;
    SYS(close, SYS(open, "plain", 0102, 0644));
    SYS(close, SYS(open, "odd", 0102, 0755));
    number("missing", SYS(execve, "missing", bad, none));
    number("missing", SYS(execve, "missing", none, bad));
    number("plain", SYS(execve, "plain", bad, none));
    number("folder", SYS(execve, ".", bad, none));
    number("odd", SYS(execve, "odd", bad, none));
    number("odd", SYS(execve, "odd", none, bad));
    number("flags", SYS(execveat, -100, "missing", bad, none, 2));
    number("missing", SYS(execveat, -100, "missing", bad, none, 0));
    number("closed", SYS(execveat, 90, "", bad, none, 0x1000));
    number("plain", SYS(execveat, -100, "plain", bad, none, 0));
    number("odd", SYS(execveat, -100, "odd", bad, none, 0));
    return 0;
}
