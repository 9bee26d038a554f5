// Exceptions through frames with destructors, rethrown, and caught beyond many arguments.
#include <stdexcept>
#include <string>
#include "probe.h"

struct Guard {
    ~Guard() { probe(); }
};

__attribute__((noinline)) static int many(int a, int b, int c, int d, int e, int f, long g, long h,
                                          long i) {
    Guard guard;
    if (a == 0) throw std::runtime_error(std::string("zero"));
    return many(a - 1, b, c, d, e, f, g, h, i) + 1;
}

__attribute__((noinline)) static int rethrows(int n) {
    try {
        return many(n, 1, 2, 3, 4, 5, 6, 7, 8);
    } catch (const std::runtime_error &) {
        probe();
        throw;
    }
}

int main() {
    for (int n = 0; n < 3; n++) {
        try {
            rethrows(n);
            return 1;
        } catch (const std::exception &e) {
            probe();
        }
    }
    probe();
    return 0;
}
