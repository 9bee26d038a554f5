/* A function whose body is sampled: the label `probed` comes after its prologue. */
__attribute__((noinline)) static void probe(void) {
    static int count;
    __asm__ volatile(".globl probed\nprobed: nop");
    count++;
}
