/* Callbacks from the C library, through function pointers, and in tail calls. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

static int calls;

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    calls++;
    return (x > y) - (x < y);
}

static void visit(const void *node, VISIT kind, int depth)
{
    if (kind == leaf || kind == postorder)
        calls += **(int *const *)node + depth;
}

static void at_exit(void)
{
    printf("%d\n", calls);
}

__attribute__((noinline)) static int tail(int (*f)(const void *, const void *), int *words)
{
    return f(words, words + 1);
}

int main(void)
{
    int words[200];
    void *tree = NULL;
    atexit(at_exit);
    for (int i = 0; i < 200; i++)
        words[i] = i * 7919 % 200;
    for (int i = 0; i < 50; i++)
        tsearch(&words[i], &tree, compare);
    twalk(tree, visit);
    qsort(words, 200, sizeof words[0], compare);
    int key = 42;
    int *found = bsearch(&key, words, 200, sizeof words[0], compare);
    return found && *found == 42 && tail(compare, words) < 0 ? 0 : 1;
}
