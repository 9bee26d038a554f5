/* Makes the system call whose number is its argument, with invalid arguments. */
#include "../start.h"

int run(word *stack) {
    long number = 0;
    for (const char *text = (const char *)stack[2]; *text; text++) number = number * 10 + *text - '0';
    call6(number, -1, -1, -1, -1, -1, -1);
    return 0;
}
