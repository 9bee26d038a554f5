/* Twenty frames of one function above a leaf. */
#include "probe.h"
__attribute__((noinline)) int down(int n) {
    if (n) return down(n - 1) + 1;
    probe();
    return n;
}
int main(void) { return down(20) - 20; }
