/* Executes a program instruction by instruction on this machine's processor, and writes what is true
   at the instructions of the program's own file: the registers, the stack, and of the function that
   runs there the CFA, the return address and the registers at its entry. They come from calls and
   returns that were seen, never from a table.

   step OUTPUT PROGRAM [ARGUMENT..]

   A record is, in 8-byte words: kind, address, rax to r15 in the order of DWARF, the CFA, the return
   address, the same registers at entry, the address and the length of the stack, and the stack.
   Kind 0 is the state before an instruction; kind 1 that of a caller while a function that it called
   runs, with the address of the call's last byte, where an unwinder looks up its row. */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEPTH_MAX = 4096, VISITS_MAX = 24, FIRST_VISITS = 8, STACK_MAX = 16384, BELOW = 128 };
enum { STEPS_MAX = 50 * 1000 * 1000, RSP = 7 };

struct activation {
    uint64_t cfa, return_address, entry[16];
};
static struct activation stack[DEPTH_MAX];
static int depth;
static pid_t child;
static FILE *output;
static uint64_t low, high, bias, stack_top;

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void in_order(const struct user_regs_struct *r, uint64_t *to) {
    const uint64_t all[16] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp,
                              r->r8,  r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15};
    memcpy(to, all, sizeof all);
}

/* How many bytes could be read. */
static size_t read_memory(uint64_t address, void *to, size_t length) {
    struct iovec local = {to, length}, remote = {(void *)address, length};
    ssize_t got = process_vm_readv(child, &local, 1, &remote, 1, 0);
    return got < 0 ? 0 : (size_t)got;
}

/* Finds the range of the program's code, how far it was moved from its file's addresses, and the
   end of the stack. */
static void find_image(const char *path, int is_moved) {
    char name[64], line[512], real[4096];
    if (!realpath(path, real)) fail(path);
    snprintf(name, sizeof name, "/proc/%d/maps", child);
    FILE *maps = fopen(name, "r");
    if (!maps) fail(name);
    uint64_t first = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3) continue;
        if (strstr(line, "[stack]")) stack_top = to;
        if (!strstr(line, real)) continue;
        if (!first) first = from;
        if (mode[2] == 'x') {
            if (!low) low = from;
            high = to;
        }
    }
    fclose(maps);
    bias = is_moved ? first : 0;
}

/* Visits of an address so far; each kind has its own. */
static unsigned *visits[2];
static int is_wanted(int kind, uint64_t address) {
    if (address < low || address >= high) return 0;
    unsigned n = ++visits[kind][address - low];
    if (n <= FIRST_VISITS) return 1;
    /* Later ones less and less often. */
    return (n & (n - 1)) == 0 && n < 1u << VISITS_MAX;
}

/* Lets the program run to its entry, past the dynamic linker's work. */
static void run_to_entry(uint64_t entry) {
    struct user_regs_struct registers;
    int status;
    long word = ptrace(PTRACE_PEEKTEXT, child, entry, 0);
    if (ptrace(PTRACE_POKETEXT, child, entry, (word & ~0xffL) | 0xcc)) fail("breakpoint");
    if (ptrace(PTRACE_CONT, child, 0, 0) || waitpid(child, &status, 0) != child) fail("entry");
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
        fprintf(stderr, "step: the program's entry was not reached\n");
        exit(2);
    }
    if (ptrace(PTRACE_POKETEXT, child, entry, word)) fail("breakpoint");
    if (ptrace(PTRACE_GETREGS, child, 0, &registers)) fail("registers");
    registers.rip = entry;
    if (ptrace(PTRACE_SETREGS, child, 0, &registers)) fail("registers");
}

static void write_record(uint64_t kind, uint64_t address, const uint64_t *registers) {
    const struct activation *in = &stack[depth - 1];
    static unsigned char memory[STACK_MAX];
    uint64_t from = registers[RSP] - BELOW, to = in->cfa + 512;
    if (to > stack_top) to = stack_top;
    uint64_t length = to > from ? to - from : 0;
    if (length > STACK_MAX) length = STACK_MAX;
    length = read_memory(from, memory, length);
    const uint64_t head[2] = {kind, address - bias};
    const uint64_t where[2] = {from, length};
    fwrite(head, 8, 2, output);
    fwrite(registers, 8, 16, output);
    fwrite(&in->cfa, 8, 1, output);
    fwrite(&in->return_address, 8, 1, output);
    fwrite(in->entry, 8, 16, output);
    fwrite(where, 8, 2, output);
    fwrite(memory, 1, length, output);
}

int main(int count, char **arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: step OUTPUT PROGRAM [ARGUMENT..]\n");
        return 2;
    }
    Elf64_Ehdr header;
    FILE *file = fopen(arguments[2], "r");
    if (!file || fread(&header, sizeof header, 1, file) != 1) fail(arguments[2]);
    fclose(file);
    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        personality(ADDR_NO_RANDOMIZE);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) fail("ptrace");
        execv(arguments[2], arguments + 2);
        fail(arguments[2]);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) fail("waitpid");
    find_image(arguments[2], header.e_type == ET_DYN);
    run_to_entry(header.e_entry + bias);
    output = fopen(arguments[1], "w");
    if (!output) fail(arguments[1]);
    for (int kind = 0; kind < 2; kind++)
        if (!(visits[kind] = calloc(high - low + 1, sizeof **visits))) fail("calloc");

    struct user_regs_struct before, after;
    if (ptrace(PTRACE_GETREGS, child, 0, &before)) fail("registers");
    long step;
    uint64_t previous = 0;
    for (step = 0; step < STEPS_MAX; step++) {
        uint64_t registers[16];
        in_order(&before, registers);
        /* A function whose return address lies below rsp has returned, or was left; but one that
           runs on behind a `pop` of its return address keeps it elsewhere. */
        int runs_on = before.rip > previous && before.rip <= previous + 15;
        while (depth && stack[depth - 1].cfa - 8 < before.rsp) {
            const struct activation *top = &stack[depth - 1];
            if (runs_on && top->cfa == before.rsp && before.rip != top->return_address) break;
            depth--;
        }
        previous = before.rip;
        if (depth && is_wanted(0, before.rip)) write_record(0, before.rip, registers);
        if (ptrace(PTRACE_SINGLESTEP, child, 0, 0)) fail("step");
        if (waitpid(child, &status, 0) != child) fail("waitpid");
        if (WIFEXITED(status) || WIFSIGNALED(status)) break;
        if (WSTOPSIG(status) != SIGTRAP) {
            fprintf(stderr, "step: signal %d; programs with signals are not measured\n",
                    WSTOPSIG(status));
            return 2;
        }
        if (ptrace(PTRACE_GETREGS, child, 0, &after)) fail("registers");
        uint64_t word = 0;
        if (after.rsp == before.rsp - 8 && read_memory(after.rsp, &word, 8) == 8 &&
            word > before.rip + 1 && word <= before.rip + 15 && depth < DEPTH_MAX) {
            if (depth && is_wanted(1, word - 1)) write_record(1, word - 1, registers);
            struct activation *entered = &stack[depth++];
            entered->cfa = after.rsp + 8;
            entered->return_address = word;
            in_order(&after, entered->entry);
            entered->entry[RSP] = entered->cfa;
        }
        before = after;
    }
    if (fclose(output)) fail(arguments[1]);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "step: %s did not end with status 0\n", arguments[2]);
        return 2;
    }
    printf("%ld\n", step);
    return 0;
}
