// A fiber of boost.context aborts below deep.
#include <boost/context/fiber.hpp>
#include <cstdlib>
namespace context = boost::context;
__attribute__((noinline)) void deep(int n)
{
    if (n) {
        deep(n - 1);
        asm volatile("" ::: "memory");
    } else {
        std::abort();
    }
}
int main()
{
    context::fiber fiber{[](context::fiber &&other) {
        deep(3);
        return std::move(other);
    }};
    fiber = std::move(fiber).resume();
}
