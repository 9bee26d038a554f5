/* Programs that are open while their names are given to others, or removed. */
#include "cases.h"
#include "program.h"

enum { CODE = 0x78, EMPTY = 0x1000 };
static long put(const char *name, int ends_with_77) {
    unsigned char bytes[sizeof program];
    memcpy(bytes, program, sizeof program);
    /* `push $77; pop %rdi`. */
    if (ends_with_77) { bytes[CODE] = 0x6a; bytes[CODE + 1] = 77; bytes[CODE + 2] = 0x5f; }
    long fd = SYS(open, name, O_RDWR | O_CREAT | O_TRUNC, 0755);
    SYS(write, fd, bytes, sizeof program);
    SYS(close, fd);
    return SYS(open, name, O_RDONLY);
}
static void runs(long fd) {
    int status = 0;
    flush();
    long child = SYS(fork, 0);
    if (child == 0) { V(SYS(execveat, fd, "", two, none, EMPTY)); flush(); SYS(exit_group, 99); }
    SYS(wait4, child, &status, 0, 0); V(status);
}

static void cases(void) {
    long old = put("old", 0), new = put("new", 1);
    runs(old); runs(new);
    V(SYS(rename, "new", "old")); runs(old); runs(new);
    V(SYS(unlink, "old")); runs(old); runs(new);
    /* A script is opened by the path of the descriptor. */
    long script = SYS(open, "script", O_RDWR | O_CREAT, 0755);
    SYS(write, script, "#!program\n", 10); SYS(close, script);
    SYS(close, put("program", 0));
    script = SYS(open, "script", O_RDONLY);
    runs(script);
    V(SYS(unlink, "script")); runs(script);
    V(SYS(chmod, "program", 0644)); runs(script);
}
