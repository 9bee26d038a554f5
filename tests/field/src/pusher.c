/* Inline assembly pushes behind the compiler's back: no row knows of the 24 bytes. */
#include "parts.h"

__attribute__((noinline)) long pusher(long n)
{
    long result;
    volatile char room[40];
    room[n & 7] = 1;
    __asm__ volatile("sub $128,%%rsp\n push %%rdi\n push %%rdi\n push %%rdi\n sub $8,%%rsp\n"
                     "call leaf\n"
                     "add $8,%%rsp\n pop %%rdi\n pop %%rdi\n pop %%rdi\n add $128,%%rsp"
                     : "=a"(result), "+D"(n)
                     :
                     : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return result + room[1];
}
