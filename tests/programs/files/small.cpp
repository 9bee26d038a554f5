#include <cstdio>
struct Shape { virtual double area() const = 0; virtual ~Shape() {} };
struct Square : Shape { double side; Square(double s) : side(s) {} double area() const override { return side * side; } };
template <class T> T twice(T value) { return value + value; }
int main()
{
    Square square(3);
    const Shape &shape = square;
    std::printf("%g %d\n", shape.area(), twice(21));
    try { throw 42; } catch (int value) { std::printf("caught %d\n", value); }
}
