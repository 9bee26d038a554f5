/* libunwind over its remote accessors, as perf uses it: `--unwinder cmd:libunwind`.
 *
 * libunwind finds tables through .eh_frame_hdr, and none in an image without one. */
#include "protocol.h"
#include <libunwind.h>

/* Not declared in a header, but called by unwinders of other processes, such as perf. */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t, unw_word_t, unw_dyn_info_t *,
                                              unw_proc_info_t *, int, void *);

/* .eh_frame_hdr with the encodings that every linker writes: a table of pairs of 32-bit offsets
 * from the section's start (LSB 5.0, "The .eh_frame_hdr section"). */
struct header {
    uint8_t version, frame_encoding, count_encoding, table_encoding;
    int32_t frame;
    uint32_t count;
};
enum { UDATA4 = 0x03, DATAREL_SDATA4 = 0x3b, FRAMES_MAX = 1 << 16 };

/* libunwind reads the personality routine's address from the image's data, which no recording has,
 * but does not use it: unknown words count as 0 while this is set. */
static bool in_table;

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info, int need,
                          void *argument) {
    const struct stack *stack = argument;
    for (size_t i = 0; i < stack->image_count; i++) {
        const struct image *image = &stack->images[i];
        const Elf64_Phdr *found = segment(image, PT_GNU_EH_FRAME, 0);
        if (ip < image->start || ip >= image->end || !found) continue;
        struct header header;
        if (found->p_filesz < sizeof header) continue;
        memcpy(&header, image->bytes + found->p_offset, sizeof header);
        uint64_t room = (found->p_filesz - sizeof header) / 8;
        if (header.count_encoding != UDATA4 || header.table_encoding != DATAREL_SDATA4 ||
            header.count > room) {
            continue;
        }
        unw_dyn_info_t table = {
            .start_ip = image->start,
            .end_ip = image->end,
            .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        };
        table.u.rti.segbase = found->p_vaddr + image->bias;
        table.u.rti.table_data = table.u.rti.segbase + sizeof header;
        table.u.rti.table_len = header.count;
        in_table = true;
        int result =
            UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, info, need, argument);
        in_table = false;
        return result;
    }
    return -UNW_ENOINFO;
}

static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *argument) {
    (void)space, (void)info, (void)argument;
}

static int dynamic_list(unw_addr_space_t space, unw_word_t *address, void *argument) {
    (void)space, (void)address, (void)argument;
    return -UNW_ENOINFO;
}

static int access_memory(unw_addr_space_t space, unw_word_t address, unw_word_t *word, int write,
                         void *argument) {
    (void)space;
    if (write) return -UNW_EINVAL;
    if (read_word(argument, address, word)) return 0;
    *word = 0;
    return in_table ? 0 : -UNW_EINVAL;
}

static int access_register(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value,
                           int write, void *argument) {
    const struct stack *stack = argument;
    (void)space;
    /* UNW_X86_64_RAX to UNW_X86_64_RIP are DWARF's numbers. */
    if (write || number < 0 || number >= REGISTERS || !stack->known[number]) return -UNW_EBADREG;
    *value = stack->registers[number];
    return 0;
}

static int access_float(unw_addr_space_t space, unw_regnum_t number, unw_fpreg_t *value, int write,
                        void *argument) {
    (void)space, (void)number, (void)value, (void)write, (void)argument;
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t space, unw_cursor_t *cursor, void *argument) {
    (void)space, (void)cursor, (void)argument;
    return -UNW_EINVAL;
}

static int name_of(unw_addr_space_t space, unw_word_t address, char *name, size_t length,
                   unw_word_t *offset, void *argument) {
    (void)space, (void)address, (void)name, (void)length, (void)offset, (void)argument;
    return -UNW_ENOINFO;
}

static const char *unwind(unw_addr_space_t space, struct stack *stack) {
    unw_cursor_t cursor;
    int result = unw_init_remote(&cursor, space, stack);
    for (int frames = 0; result >= 0 && frames < FRAMES_MAX; frames++) {
        unw_word_t pc, sp;
        unw_save_loc_t slot;
        if (unw_get_reg(&cursor, UNW_REG_IP, &pc) < 0) break;
        if (unw_get_reg(&cursor, UNW_REG_SP, &sp) < 0) sp = 0;
        bool saved = frames > 0 && unw_get_save_loc(&cursor, UNW_X86_64_RIP, &slot) == 0 &&
                     slot.type == UNW_SLT_MEMORY;
        /* libunwind reports a caller at 0 for a root that no table marks. */
        if (pc == 0) return "US001";
        frame(stack, pc, sp, saved ? slot.u.addr : 0);
        result = unw_step(&cursor);
        if (result == 0) return "US001";
    }
    return result == -UNW_ENOINFO ? "US103" : result < 0 ? "US202" : "US401";
}

int main(void) {
    static unw_accessors_t accessors = {
        .find_proc_info = find_proc_info,
        .put_unwind_info = put_unwind_info,
        .get_dyn_info_list_addr = dynamic_list,
        .access_mem = access_memory,
        .access_reg = access_register,
        .access_fpreg = access_float,
        .resume = resume,
        .get_proc_name = name_of,
    };
    static struct stack stack;
    unw_addr_space_t space = unw_create_addr_space(&accessors, 0);
    if (!space) {
        fprintf(stderr, "libunwind gives no address space\n");
        return 1;
    }
    unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
    while (next_stack(&stack)) {
        if (stack.images_changed) unw_flush_cache(space, 0, 0);
        end(unwind(space, &stack));
    }
    return 0;
}
