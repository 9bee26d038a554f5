/* _init of the C library's start files calls __gmon_start__ if there is one: this one aborts. */
#include <stdlib.h>

__attribute__((noinline)) void lower(void)
{
    abort();
}

void __gmon_start__(void)
{
    lower();
    __asm__ volatile("");
}

int main(void)
{
    return 0;
}
