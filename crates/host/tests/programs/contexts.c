/* makecontext and swapcontext, on static stacks, in a local array, resumed often, and ended by
 * uc_link; a stack used twice. */
#include <ucontext.h>
#include "probe.h"

static ucontext_t to_main, contexts[3];
static char stacks[2][32768];

__attribute__((noinline)) static void inner(int index) {
    probe();
    swapcontext(&contexts[index], &to_main);
    probe();
}

static void body(int index) {
    for (int i = 0; i < 3; i++) inner(index);
}

__attribute__((noinline)) static void resume(int index) {
    swapcontext(&to_main, &contexts[index]);
    probe();
}

__attribute__((noinline)) static void start(int index, char *stack) {
    getcontext(&contexts[index]);
    contexts[index].uc_stack.ss_sp = stack;
    contexts[index].uc_stack.ss_size = 32768;
    contexts[index].uc_link = &to_main;
    makecontext(&contexts[index], (void (*)(void))body, 1, index);
    resume(index);
}

int main(void) {
    char local[32768];
    for (int round = 0; round < 2; round++) {
        start(0, stacks[0]);
        start(1, stacks[1]);
        start(2, local);
        for (int i = 0; i < 3; i++)
            for (int index = 0; index < 3; index++) resume(index);
    }
    probe();
    return 0;
}
