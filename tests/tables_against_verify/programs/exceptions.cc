// Exceptions through frames with and without clean-ups, out of callbacks, and thrown again.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

static int cleaned;

struct Clean {
    std::string text;
    explicit Clean(int n) : text(n, 'x') {}
    ~Clean() { cleaned += text.size(); }
};

__attribute__((noinline)) static int deep(int n)
{
    Clean clean(n + 20);
    if (n == 0)
        throw std::runtime_error("the end");
    return deep(n - 1) + static_cast<int>(clean.text.size());
}

__attribute__((noinline)) static int again(int n)
{
    try {
        return deep(n);
    } catch (const std::logic_error &) {
        return -1;
    } catch (...) {
        Clean clean(3);
        throw;
    }
}

__attribute__((noinline)) static void through(std::vector<int> &all)
{
    std::sort(all.begin(), all.end(), [](int a, int b) {
        if (a == 13 || b == 13)
            throw std::out_of_range("thirteen");
        return a < b;
    });
}

static void nothing() noexcept {}

int main()
{
    int caught = 0;
    for (int n = 0; n < 8; n++) {
        try {
            again(n);
        } catch (const std::exception &error) {
            caught += error.what()[0] == 't';
        }
    }
    std::vector<int> all;
    for (int i = 0; i < 40; i++)
        all.push_back(i * 17 % 40);
    try {
        through(all);
    } catch (const std::out_of_range &) {
        caught++;
    }
    try {
        throw 7;
    } catch (int n) {
        caught += n;
    }
    nothing();
    std::printf("%d %d\n", caught, cleaned);
    return caught == 16 ? 0 : 1;
}
