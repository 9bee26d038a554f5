/* A program that ends with its number of arguments, as ELF file: `mov (%rsp), %edi`, and exit_group. */
static const unsigned char program[] = {
    0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0,
    0x78, 0, 0x40, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0,
    0x82, 0, 0, 0, 0, 0, 0, 0, 0x82, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
    0x8b, 0x3c, 0x24, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05 };
/* The same as a program that waits for ever: pause in a loop. */
static const unsigned char waiting_code[] = { 0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7, 0x90 };
__attribute__((unused)) static long put_waiting(const char *name) {
    unsigned char file[sizeof program];
    for (unsigned i = 0; i < sizeof file; i++) file[i] = program[i];
    for (unsigned i = 0; i < sizeof waiting_code; i++) file[0x78 + i] = waiting_code[i];
    long fd = SYS(open, name, O_RDWR | O_CREAT | O_TRUNC, 0755);
    SYS(write, fd, file, sizeof file);
    return SYS(close, fd);
}

static char *two[] = { "a", "b", 0 }, *none[] = { 0 };
