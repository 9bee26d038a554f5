// A static object whose destructor aborts.
#include <cstdlib>
struct Dying {
    __attribute__((noinline)) void die() { std::abort(); }
    ~Dying() { die(); __asm__ volatile(""); }
};
static Dying dying;
