// Virtual functions, templates, destructors, references, lambdas.
using function = long (*)(long, long, long);
extern "C" long marked(function f, long a, long b, long c);
extern "C" long program();
void operator delete(void *, unsigned long) noexcept {}
void operator delete(void *) noexcept {}
extern "C" void __cxa_pure_virtual() {}
#define APART __attribute__((noinline))

namespace {
long alive;

struct Shape {
    long side;
    explicit Shape(long s) : side(s) { alive++; }
    APART virtual ~Shape() { alive--; }
    virtual long area(long by) const = 0;
    APART virtual long twice(long by) { return area(by) + area(by + 1); }
};
struct Square : Shape {
    using Shape::Shape;
    APART long area(long by) const override { return side * side * by; }
};
struct Other {
    virtual long other(long n) { return n; }
    long pad[3] = {1, 2, 3};
};
struct Both : Other, Shape {
    explicit Both(long s) : Shape(s) {}
    APART ~Both() override { alive += pad[0] - 1; }
    APART long area(long by) const override { return side * by - pad[1]; }
    APART long other(long n) override { return n * side; }
};

template <int N> struct Tree {
    Tree<N - 1> left, right;
    APART explicit Tree(long s) : left(s + 1), right(s * 2) {}
    APART ~Tree() { alive ^= N; }
    APART long sum(long k) const { return left.sum(k + 1) * right.sum(k) + N; }
};
template <> struct Tree<0> {
    long value;
    APART explicit Tree(long s) : value(s) {}
    APART long sum(long k) const { return value ^ k; }
};

template <typename F> APART long each(long count, const F &f) {
    long sum = 0;
    for (long i = 0; i < count; i++) sum += f(i);
    return sum;
}

APART long shapes(long a, long b, long c) {
    Square one(a);
    Both two(b);
    Shape *all[] = {&one, &two};
    long sum = 0;
    for (Shape *shape : all) sum += shape->twice(c);
    Other *other = &two;
    return sum + other->other(a);
}
APART long trees(long a, long b, long c) {
    Tree<3> tree(a);
    return tree.sum(b) + c;
}
APART long lambdas(long a, long b, long c) {
    long seen = 0;
    long sum = each(a, [&](long i) { seen += i; return i * b; });
    sum += each(b, [&](long i) { Square square(i + c); return square.area(seen); });
    return sum + seen;
}
} // namespace

long program() {
    return marked(shapes, 2, 3, 4) + marked(trees, 1, 2, 3) + marked(lambdas, 3, 4, 5) + alive;
}
