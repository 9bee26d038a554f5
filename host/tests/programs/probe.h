/* A function whose body is a place to sample: the label `probed` lies behind its prologue. */
__attribute__((noinline)) static void probe(void) {
    static int count;
    __asm__ volatile(".globl probed\nprobed: nop");
    count++;
}
