/* Generates a function and calls it. Arguments: how its unwind table is registered, whether it is
 * right or wrong, the file of gdb.s (for gdb).
 *
 * The function keeps its caller's rbx, makes a frame of 48 bytes and calls back into this file. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, TABLE = 2048, TIMES = 10, SIZE = 27 };

#ifdef LIBUNWIND
/* As in LLVM's libunwind, which takes one FDE. */
void unw_getcontext(void) {}
__attribute__((noinline)) void __register_frame(void *fde) { asm volatile("" ::"r"(fde) : "memory"); }
#else
extern void __register_frame(void *);
#endif
extern void __deregister_frame(void *);
extern void __register_frame_info(const void *, void *);
extern void *__deregister_frame_info(const void *);
extern void __register_frame_table(void *);

/* gdb's manual, "JIT Compilation Interface". */
struct entry { struct entry *next, *prev; const void *file; uint64_t size; };
struct descriptor { uint32_t version, action; struct entry *relevant, *first; };
struct descriptor __jit_debug_descriptor = {1, 0, 0, 0};
__attribute__((noinline)) void __jit_debug_register_code(void) { asm volatile("" ::: "memory"); }

static volatile int calls;
__attribute__((noinline)) static int deeper(int n) { calls++; return n ? deeper(n - 1) + 1 : 0; }
__attribute__((noinline)) static int back(int n) { return deeper(n % 4) + n; }

static void generate(unsigned char *at) {
  const unsigned char code[SIZE] = {
      0x53,                   /*  0 push %rbx */
      0x48, 0x83, 0xec, 0x20, /*  1 sub $32, %rsp */
      0x89, 0xfb,             /*  5 mov %edi, %ebx */
      0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, /* 7 movabs $back, %rax */
      0xff, 0xd0,             /* 17 call *%rax */
      0x01, 0xd8,             /* 19 add %ebx, %eax */
      0x48, 0x83, 0xc4, 0x20, /* 21 add $32, %rsp */
      0x5b,                   /* 25 pop %rbx */
      0xc3};                  /* 26 ret */
  memcpy(at, code, SIZE);
  uint64_t target = (uint64_t)back;
  memcpy(at + 9, &target, 8);
}

/* Writes an .eh_frame section that is meant at `address`, for the function at `code`. */
static int table(unsigned char *out, uint64_t address, uint64_t code, int wrong) {
  const unsigned char cie[24] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b,
                                 0x0c, 7, 8, 0x90, 1};
  const unsigned char rules[16] = {0,                        /* no augmentation data */
                                   0x41, 0x0e, 16, 0x83, 2,  /* 1: cfa 16, rbx at cfa-16 */
                                   0x44, 0x0e, wrong ? 40 : 48, /* 5: cfa 48 */
                                   0x54, 0x0e, 16,           /* 25: cfa 16 */
                                   0x41, 0x0e, 8, 0xc3};     /* 26: cfa 8, rbx is restored */
  memcpy(out, cie, 24);
  uint32_t length = 28, parent = 28, size = SIZE, end = 0;
  int32_t start = (int32_t)(code - (address + 32));
  memcpy(out + 24, &length, 4);
  memcpy(out + 28, &parent, 4);
  memcpy(out + 32, &start, 4);
  memcpy(out + 36, &size, 4);
  memcpy(out + 40, rules, 16);
  memcpy(out + 56, &end, 4);
  return 56;
}

static void run(unsigned char *code) {
  int sum = 0;
  for (int i = 0; i < TIMES; i++) sum += ((int (*)(int))code)(i);
  if (sum != 103) abort();
}

static void name(const char *path, unsigned char *code, const char *name) {
  FILE *file = fopen(path, "a");
  if (!file) {
    perror(path);
    exit(3);
  }
  fprintf(file, "%lx %x %s\n", (unsigned long)code, SIZE, name);
  fclose(file);
}

static void protect(unsigned char *page, int prot) { if (mprotect(page, PAGE, prot)) abort(); }

static void put(int fd, const void *data, size_t size) { if (write(fd, data, size) != size) abort(); }

/* A jitdump file: by system calls, or through a stream whose buffer is written at exit. */
static FILE *stream;
/* The code as it was, if it is no longer there. */
static unsigned char *late;

static void give(int fd, const void *data, size_t size) {
  if (!stream) put(fd, data, size);
  else if (fwrite(data, 1, size, stream) != size) abort();
}

/* Linux tools/perf/Documentation/jitdump-specification.txt. */
static void jitdump(unsigned char *code, int wrong, const char *how) {
  int moved = !strcmp(how, "dumpmoved");
  char path[64];
  snprintf(path, sizeof path, "/tmp/jit-%d.dump", getpid());
  int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0666);
  uint32_t head[10] = {0x4a695444, 1, 40, EM_X86_64, 0, getpid()};
  if (!strcmp(how, "stream")) {
    /* The code of fwrite is known before it matters. */
    FILE *other = fopen("/dev/null", "w");
    fwrite(head, 1, 4, other);
    stream = fdopen(fd, "w");
    setvbuf(stream, 0, _IOFBF, 2 << 20);
  }
  give(fd, head, 40);
  mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  unsigned char entries[64];
  uint64_t written = (uint64_t)code + (moved ? 1024 : 0), base = (written + SIZE + 7) & -8;
  /* The header follows the entries; it is not read. */
  uint64_t length = table(entries, base, written, wrong) + 4, header = 4;
  struct { uint32_t kind, size; uint64_t time, data, header, mapped; } info = {4, 40 + length, 1, length, header, 0};
  give(fd, &info, 40);
  give(fd, entries, length);
  struct { uint32_t kind, size; uint64_t time; uint32_t pid, tid; uint64_t vma, address, size_, index; } load =
      {0, 56 + 7 + SIZE, 2, getpid(), getpid(), written, written, SIZE, 1};
  /* In two calls, as a buffer may be written. */
  give(fd, &load, 30);
  give(fd, (char *)&load + 30, 26);
  give(fd, "dumped", 7);
  give(fd, late ? late : code, SIZE);
  if (moved) {
    struct { uint32_t kind, size; uint64_t time; uint32_t pid, tid; uint64_t vma, old, new, size_, index; } move =
        {1, 64, 3, getpid(), getpid(), (uint64_t)code, written, (uint64_t)code, SIZE, 1};
    give(fd, &move, 64);
  }
  if (!stream) close(fd);
}

/* Gives gdb the object at `path`: its .text is put at `code`, its .eh_frame has relocations. */
static struct entry *gdb(const char *path, unsigned char *code) {
  int fd = open(path, O_RDONLY);
  off_t size = lseek(fd, 0, SEEK_END);
  char *file = malloc(size);
  if (pread(fd, file, size, 0) != size) abort();
  close(fd);
  Elf64_Ehdr *header = (Elf64_Ehdr *)file;
  Elf64_Shdr *sections = (Elf64_Shdr *)(file + header->e_shoff);
  const char *names = file + sections[header->e_shstrndx].sh_offset;
  for (int i = 0; i < header->e_shnum; i++) {
    if (!strcmp(names + sections[i].sh_name, ".text")) sections[i].sh_addr = (uint64_t)code;
    if (!strcmp(names + sections[i].sh_name, ".eh_frame")) sections[i].sh_addr = (uint64_t)code + TABLE;
  }
  struct entry *entry = calloc(1, sizeof *entry);
  entry->file = file;
  entry->size = size;
  __jit_debug_descriptor = (struct descriptor){1, 1, entry, entry};
  __jit_debug_register_code();
  return entry;
}

int main(int argc, char **argv) {
  const char *how = argv[1];
  int wrong = !strcmp(argv[2], "wrong");
  unsigned char *code;
  char path[64];
  if (!strcmp(how, "memfd")) {
    int fd = memfd_create("code", 0);
    if (ftruncate(fd, PAGE)) abort();
    code = mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    unsigned char page[PAGE] = {0};
    generate(page);
    table(page + TABLE, (uint64_t)code + TABLE, (uint64_t)code, wrong);
    put(fd, page, PAGE);
    __register_frame(code + TABLE);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    name(path, code, "generated");
    run(code);
    return 0;
  }
  code = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  generate(code);
  unsigned char *section = code + TABLE;
  table(section, (uint64_t)section, (uint64_t)code, wrong);
  /* The FDE behind a CIE: where LLVM's libunwind begins. */
  unsigned char *fde = section + 24;
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  int dumps = !strncmp(how, "dump", 4) || !strcmp(how, "stream");
  if (!dumps) name(path, code, "generated");
  char object[256];
  void *list[] = {section, 0};
  struct entry *entry = 0;
  if (!strcmp(how, "early")) __register_frame(section);
  if (!strcmp(how, "filled")) {
    /* The code is written when its table is there. */
    memset(code, 0, TABLE);
    __register_frame(section);
    generate(code);
  }
  protect(code, PROT_READ | PROT_EXEC);
  if (!strcmp(how, "frame") || !strcmp(how, "dropped") || !strcmp(how, "moved") || !strcmp(how, "remapped")) __register_frame(section);
  if (!strcmp(how, "info")) __register_frame_info(section, object);
  if (!strcmp(how, "table")) __register_frame_table(list);
  if (!strcmp(how, "fde")) __register_frame(fde);
  if (dumps && strcmp(how, "dumplate")) jitdump(code, wrong, how);
  if (!strcmp(how, "gdb") || !strcmp(how, "gdbdropped")) entry = gdb(argv[3], code);
  if (!strcmp(how, "moved")) {
    /* Changing the code's protection does not take back its table. */
    protect(code, PROT_READ | PROT_WRITE);
    protect(code, PROT_READ | PROT_EXEC);
  }
  if (!strcmp(how, "remapped")) {
    /* Other code at the same address has no table. */
    mmap(code, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    generate(code);
    protect(code, PROT_READ | PROT_EXEC);
  }
  run(code);
  /* From a buffer of its own: when the code has run, and other code is there. */
  if (!strcmp(how, "dumplate")) {
    unsigned char kept[PAGE];
    memcpy(kept, code, PAGE);
    protect(code, PROT_READ | PROT_WRITE);
    memset(code, 0xcc, TABLE);
    late = kept;
    jitdump(code, wrong, how);
  }
  if (!strcmp(how, "dropped")) { __deregister_frame(section); run(code); }
  if (!strcmp(how, "info")) __deregister_frame_info(section);
  if (!strcmp(how, "gdbdropped")) {
    __jit_debug_descriptor = (struct descriptor){1, 2, entry, 0};
    __jit_debug_register_code();
    run(code);
  }
  return 0;
}
