// Many small functions: a tree, a sort with a comparison function, and formatted text.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *left, *right;
    int key;
};

static struct node *insert(struct node *node, int key) {
    if (!node) {
        node = calloc(1, sizeof *node);
        node->key = key;
    } else if (key < node->key) {
        node->left = insert(node->left, key);
    } else {
        node->right = insert(node->right, key);
    }
    return node;
}

static long sum(const struct node *node) {
    return node ? node->key + sum(node->left) + sum(node->right) : 0;
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 30000;
    int *keys = malloc(count * sizeof *keys);
    struct node *tree = NULL;
    unsigned random = 1;
    for (int i = 0; i < count; i++) {
        random = random * 1103515245 + 12345;
        tree = insert(tree, random >> 8);
        keys[i] = random >> 4;
    }
    qsort(keys, count, sizeof *keys, compare);
    char text[64];
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%d %x", keys[i], i);
        length += strlen(text);
    }
    printf("%ld %zu\n", sum(tree), length);
    return 0;
}
