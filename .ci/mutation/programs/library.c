/* A program with a C library: calls through procedure linkage tables, bound when first called, and
   functions that the library calls back. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline, noclone))

static jmp_buf back;
APART static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
APART static void leave(int depth) {
    char here[32];
    snprintf(here, sizeof here, "%d", depth);
    if (depth == 0) longjmp(back, 1 + atoi(here));
    leave(depth - 1);
}
APART static int words(int count) {
    char *names[] = {strdup("pear"), strdup("apple"), strdup("quince"), strdup("fig")};
    qsort(names, count, sizeof *names, compare);
    int sum = 0;
    for (int i = 0; i < count; i++) {
        sum += strlen(names[i]) * (i + 1);
        free(names[i]);
    }
    return sum;
}
int main(int count, char **arguments) {
    volatile int sum = words(4);
    if (!setjmp(back)) leave(3);
    char *end;
    sum += strtol("12", &end, 10) + abs(-count) + (arguments[0] != NULL);
    return sum == 0;
}
