/* libdw of elfutils, used by eu-stack and `perf report`: `--unwinder cmd:libdw`. */
#include "protocol.h"
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

/* The process is a recording, so any number will do. */
enum { PID = 1, FRAMES_MAX = 1 << 16 };

static int no_elf(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                  char **file_name, Elf **elf) {
    (void)module, (void)user, (void)name, (void)base, (void)file_name, (void)elf;
    return -1;
}

static int no_debug_file(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                         const char *file, const char *link, GElf_Word crc, char **found) {
    (void)module, (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc;
    (void)found;
    return -1;
}

static pid_t next_thread(Dwfl *dwfl, void *argument, void **thread) {
    (void)dwfl;
    if (*thread) return 0;
    *thread = argument;
    return PID;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *argument, void **thread) {
    (void)dwfl, (void)tid;
    *thread = argument;
    return true;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *word, void *argument) {
    (void)dwfl;
    return read_word(argument, address, word);
}

static bool set_registers(Dwfl_Thread *thread, void *argument) {
    const struct stack *stack = argument;
    for (int i = 0; i < REGISTERS; i++) {
        if (stack->known[i] && !dwfl_thread_state_registers(thread, i, 1, &stack->registers[i])) {
            return false;
        }
    }
    return stack->known[RIP] && stack->known[RSP];
}

struct walk {
    const struct stack *stack;
    int frames;
};

static int one_frame(Dwfl_Frame *state, void *argument) {
    struct walk *walk = argument;
    Dwarf_Addr pc;
    Dwarf_Word sp = 0;
    if (!dwfl_frame_pc(state, &pc, NULL)) return DWARF_CB_ABORT;
    if (dwfl_frame_reg(state, RSP, &sp) != 0) sp = 0;
    /* libdw reports a caller at 0 for a root that no table marks. */
    if (pc == 0 || ++walk->frames > FRAMES_MAX) return DWARF_CB_ABORT;
    frame(walk->stack, pc, sp, 0);
    return DWARF_CB_OK;
}

static Dwfl *attach(struct stack *stack) {
    static const Dwfl_Callbacks callbacks = {.find_elf = no_elf, .find_debuginfo = no_debug_file};
    static const Dwfl_Thread_Callbacks thread_callbacks = {
        .next_thread = next_thread,
        .get_thread = get_thread,
        .memory_read = read_memory,
        .set_initial_registers = set_registers,
    };
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (!dwfl) return NULL;
    Dwfl_Module *first = NULL;
    dwfl_report_begin(dwfl);
    for (size_t i = 0; i < stack->image_count; i++) {
        const struct image *image = &stack->images[i];
        bool again = false;
        for (size_t before = 0; before < i && !again; before++) {
            const struct image *other = &stack->images[before];
            again = image->path && other->path && strcmp(image->path, other->path) == 0 &&
                    image->bias == other->bias;
        }
        if (!image->path || again) continue;
        /* The names must differ if one file is mapped twice. */
        char name[64];
        snprintf(name, sizeof name, "image %zu", i);
        Dwfl_Module *module = dwfl_report_elf(dwfl, name, image->path, -1, image->bias, true);
        if (!module) fprintf(stderr, "%s: %s\n", image->path, dwfl_errmsg(-1));
        first = first ? first : module;
    }
    dwfl_report_end(dwfl, NULL, NULL);
    GElf_Addr bias;
    Elf *elf = first ? dwfl_module_getelf(first, &bias) : NULL;
    if (!elf || !dwfl_attach_state(dwfl, elf, PID, &thread_callbacks, stack)) {
        dwfl_end(dwfl);
        return NULL;
    }
    return dwfl;
}

int main(void) {
    static struct stack stack;
    Dwfl *dwfl = NULL;
    while (next_stack(&stack)) {
        if (stack.images_changed || !dwfl) {
            if (dwfl) dwfl_end(dwfl);
            dwfl = attach(&stack);
        }
        struct walk walk = {.stack = &stack};
        const char *reason = "US101";
        if (dwfl) {
            int result = dwfl_getthread_frames(dwfl, PID, one_frame, &walk);
            bool at_root = result == 0 || (result == DWARF_CB_ABORT && walk.frames <= FRAMES_MAX);
            reason = at_root ? "US001" : "US103";
        }
        end(reason);
    }
    return 0;
}
