// A virtual call through an object that was deleted and overwritten.
#include <cstdlib>
#include <cstring>
struct Shape {
    virtual int area() { return 1; }
    virtual ~Shape() {}
};
__attribute__((noinline)) int ask(Shape *shape) { return shape->area() + 1; }
static long table[4] = {0x7fffff000, 0x7fffff000, 0, 0};
int main()
{
    Shape *shape = new Shape;
    long *words = reinterpret_cast<long *>(shape);
    words[0] = reinterpret_cast<long>(table);
    return ask(shape);
}
