/* One stack, written to a file from inside the program that owns it.
 *
 * SNAPSHOT(path) stores the registers as of the capture's return, the bytes of
 * the stack from the captured rsp to the end of the [stack] mapping, and /proc/self/maps.
 *
 * Layout, little-endian: "UWSNAP1\0", 17 u64 registers in DWARF order (rax rdx rcx rbx rsi rdi
 * rbp rsp r8..r15 rip), u64 stack length, u64 maps length, the stack bytes, the maps text. */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SNAPSHOT_RSP = 7, SNAPSHOT_RIP = 16, SNAPSHOT_REGS = 17 };

/* Stores the caller's registers: rsp as after the return, rip as the return address. */
void snapshot_capture(uint64_t regs[SNAPSHOT_REGS]);
__asm__(
    ".text\n"
    ".type snapshot_capture, @function\n"
    "snapshot_capture:\n"
    "  .cfi_startproc\n"
    "  mov %rax, 0(%rdi)\n"
    "  mov %rdx, 8(%rdi)\n"
    "  mov %rcx, 16(%rdi)\n"
    "  mov %rbx, 24(%rdi)\n"
    "  mov %rsi, 32(%rdi)\n"
    "  mov %rdi, 40(%rdi)\n"
    "  mov %rbp, 48(%rdi)\n"
    "  lea 8(%rsp), %rax\n"
    "  mov %rax, 56(%rdi)\n"
    "  mov %r8, 64(%rdi)\n"
    "  mov %r9, 72(%rdi)\n"
    "  mov %r10, 80(%rdi)\n"
    "  mov %r11, 88(%rdi)\n"
    "  mov %r12, 96(%rdi)\n"
    "  mov %r13, 104(%rdi)\n"
    "  mov %r14, 112(%rdi)\n"
    "  mov %r15, 120(%rdi)\n"
    "  mov (%rsp), %rax\n"
    "  mov %rax, 128(%rdi)\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".size snapshot_capture, . - snapshot_capture\n");

static void snapshot_fail(const char *what) {
    perror(what);
    exit(1);
}

/* Writes what snapshot_capture stored. The caller's frame is still live, so the bytes are too. */
__attribute__((noinline)) static void snapshot_write(const char *path, const uint64_t *regs) {
    static char maps[1 << 16];
    FILE *in = fopen("/proc/self/maps", "r");
    if (!in) snapshot_fail("/proc/self/maps");
    uint64_t maps_len = fread(maps, 1, sizeof maps - 1, in);
    fclose(in);
    char *name = strstr(maps, "[stack]");
    if (!name) snapshot_fail("no [stack] in /proc/self/maps");
    while (name > maps && name[-1] != '\n') name--;
    uint64_t low, end;
    if (sscanf(name, "%lx-%lx", &low, &end) != 2) snapshot_fail("[stack] line");
    uint64_t sp = regs[SNAPSHOT_RSP], stack_len = end - sp;
    FILE *out = fopen(path, "wb");
    if (!out) snapshot_fail(path);
    fwrite("UWSNAP1", 1, 8, out);
    fwrite(regs, 8, SNAPSHOT_REGS, out);
    fwrite(&stack_len, 8, 1, out);
    fwrite(&maps_len, 8, 1, out);
    fwrite((const void *)sp, 1, stack_len, out);
    fwrite(maps, 1, maps_len, out);
    if (fclose(out)) snapshot_fail(path);
}

#define SNAPSHOT(path)                       \
    do {                                     \
        static uint64_t regs[SNAPSHOT_REGS]; \
        snapshot_capture(regs);              \
        snapshot_write(path, regs);          \
    } while (0)
#endif
