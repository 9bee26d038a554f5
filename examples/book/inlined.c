/* The functions of "Inlining and names" in the book. */
extern int leaf(int a);

static inline __attribute__((always_inline)) int inner(int a) {
    return leaf(a) + 1;
}

int outer(int a) {
    return inner(a) * 2;
}
