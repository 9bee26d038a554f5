// main < loop < outer throws through two frames: the time goes into the unwinder of GCC's library.
#include <stdexcept>
__attribute__((noinline)) void inner(int n)
{
    if (n >= 0)
        throw std::runtime_error("x");
}
__attribute__((noinline)) void outer(int n)
{
    inner(n);
    __asm__ volatile("");
}
__attribute__((noinline)) int loop(int count)
{
    int caught = 0;
    for (int n = 0; n < count; n++) {
        try {
            outer(n);
        } catch (const std::exception &) {
            caught++;
        }
    }
    return caught;
}
int main() { return loop(300000) & 1; }
