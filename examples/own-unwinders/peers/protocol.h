/* The protocol of `--unwinder cmd:` (docs/own-unwinders.md) for unwinders in C, with json-c. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip: the DWARF order. */
#define REGISTERS 17
static const char *const register_names[REGISTERS] = {
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
    "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip"};
enum { RSP = 7, RIP = 16 };

/* An executable mapping, and its image as an ELF file. */
struct image {
    uint64_t start, end, bias;
    char *path; /* of the file that unwind-sim wrote; NULL if there is none */
    const unsigned char *bytes;
    size_t size;
};

/* One stack to unwind. */
struct stack {
    uint64_t registers[REGISTERS];
    bool known[REGISTERS];
    uint64_t first_frame; /* report only frames whose rsp is above this; 0: report all */
    struct image *images;
    size_t image_count;
    char *image_text; /* the images as sent, to see whether they change */
    bool images_changed;
};

static uint64_t field(struct json_object *object, const char *name) {
    struct json_object *value;
    if (!json_object_object_get_ex(object, name, &value) || !value) return 0;
    return strtoull(json_object_get_string(value), NULL, 16);
}

/* The next line as JSON, or NULL at the end. */
static struct json_object *receive(void) {
    static char *line;
    static size_t capacity;
    ssize_t length = getline(&line, &capacity, stdin);
    if (length <= 0) return NULL;
    struct json_object *object = json_tokener_parse(line);
    if (!object) {
        fprintf(stderr, "not a line of JSON: %.100s\n", line);
        exit(1);
    }
    return object;
}

/* The answer to a request. Exits at the end of the input, since nobody is left to answer. */
static struct json_object *answer(void) {
    fflush(stdout);
    struct json_object *object = receive();
    if (!object) exit(1);
    return object;
}

/* The word at `address` of the recorded memory. */
static bool read_recorded(uint64_t address, uint64_t *word) {
    printf("{\"type\":\"read\",\"address\":\"%#" PRIx64 "\",\"length\":8}\n", address);
    struct json_object *object = answer(), *bytes;
    bool found = json_object_object_get_ex(object, "bytes", &bytes);
    if (found) {
        *word = __builtin_bswap64(strtoull(json_object_get_string(bytes), NULL, 16));
    }
    json_object_put(object);
    return found;
}

/* The image's program header of type `type` with number `index` among these. */
static const Elf64_Phdr *segment(const struct image *image, uint32_t type, int index) {
    if (!image->bytes) return NULL;
    const Elf64_Ehdr *header = (const void *)image->bytes;
    const Elf64_Phdr *segments = (const void *)(image->bytes + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == type && index-- == 0) return &segments[i];
    }
    return NULL;
}

/* The bytes of an image at the process' `address`, and how many there are. */
static const unsigned char *image_bytes(const struct stack *stack, uint64_t address, size_t *left) {
    for (size_t i = 0; i < stack->image_count; i++) {
        const struct image *image = &stack->images[i];
        uint64_t at = address - image->bias;
        const Elf64_Phdr *load;
        for (int n = 0; (load = segment(image, PT_LOAD, n)); n++) {
            if (at >= load->p_vaddr && at - load->p_vaddr < load->p_filesz) {
                *left = load->p_filesz - (at - load->p_vaddr);
                return image->bytes + load->p_offset + (at - load->p_vaddr);
            }
        }
    }
    return NULL;
}

/* The word at `address`, from an image or from the recorded memory. */
static inline bool read_word(const struct stack *stack, uint64_t address, uint64_t *word) {
    size_t left;
    const unsigned char *bytes = image_bytes(stack, address, &left);
    if (!bytes) return read_recorded(address, word);
    *word = 0;
    memcpy(word, bytes, left < 8 ? left : 8);
    return true;
}

static void open_image(struct image *image, size_t index) {
    printf("{\"type\":\"image\",\"index\":%zu}\n", index);
    struct json_object *object = answer(), *path;
    struct stat status;
    if (json_object_object_get_ex(object, "path", &path)) {
        image->path = strdup(json_object_get_string(path));
        int file = open(image->path, O_RDONLY);
        if (file >= 0 && fstat(file, &status) == 0) {
            void *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
            if (bytes != MAP_FAILED) {
                image->bytes = bytes;
                image->size = status.st_size;
            }
        }
        if (file >= 0) close(file);
    }
    json_object_put(object);
}

static void forget_images(struct stack *stack) {
    for (size_t i = 0; i < stack->image_count; i++) {
        struct image *image = &stack->images[i];
        if (image->bytes) munmap((void *)image->bytes, image->size);
        free(image->path);
    }
    free(stack->images);
    free(stack->image_text);
    stack->images = NULL;
    stack->image_count = 0;
}

/* Waits for the next stack. Images are kept if they are the same as for the previous stack. */
static bool next_stack(struct stack *stack) {
    fflush(stdout);
    struct json_object *request = receive(), *registers, *images;
    if (!request) return false;
    json_object_object_get_ex(request, "registers", &registers);
    json_object_object_get_ex(request, "images", &images);
    for (int i = 0; i < REGISTERS; i++) {
        stack->known[i] = json_object_object_get_ex(registers, register_names[i], NULL);
        stack->registers[i] = field(registers, register_names[i]);
    }
    stack->first_frame = field(request, "first_frame");
    const char *text = json_object_to_json_string(images);
    stack->images_changed = !stack->image_text || strcmp(text, stack->image_text) != 0;
    if (stack->images_changed) {
        forget_images(stack);
        stack->image_text = strdup(text);
        stack->image_count = json_object_array_length(images);
        stack->images = calloc(stack->image_count, sizeof *stack->images);
        for (size_t i = 0; i < stack->image_count; i++) {
            struct json_object *image = json_object_array_get_idx(images, i);
            stack->images[i].start = field(image, "start");
            stack->images[i].end = field(image, "end");
            stack->images[i].bias = field(image, "bias");
            open_image(&stack->images[i], i);
        }
    }
    json_object_put(request);
    return true;
}

static void frame(const struct stack *stack, uint64_t pc, uint64_t sp, uint64_t slot) {
    if (stack->first_frame && sp <= stack->first_frame) return;
    printf("{\"type\":\"frame\",\"pc\":\"%#" PRIx64 "\"", pc);
    if (sp) printf(",\"sp\":\"%#" PRIx64 "\"", sp);
    if (slot) printf(",\"slot\":\"%#" PRIx64 "\"", slot);
    printf("}\n");
}

/* Ends the chain with a reason code (docs/reason-codes.md). */
static void end(const char *reason) {
    printf("{\"type\":\"end\",\"reason\":\"%s\"}\n", reason);
    fflush(stdout);
}

#endif
