/* Arguments on the stack, structures by value, pointers to functions, switches, tail calls, early
   exits before anything is saved, and cold parts. */
#include <stdarg.h>
typedef long (*function)(long, long, long);
long marked(function f, long a, long b, long c);
#define APART __attribute__((noinline, noclone))
struct big { long of[7]; };

APART static long nine(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
    return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * i;
}

APART static struct big make(long seed) {
    struct big made;
    for (int i = 0; i < 7; i++) made.of[i] = seed * i;
    return made;
}

APART static long take(struct big one, long x, struct big two) {
    long sum = x;
    for (int i = 0; i < 7; i++) sum += one.of[i] * two.of[6 - i];
    return sum;
}

APART static long varied(int count, ...) {
    va_list list;
    va_start(list, count);
    long sum = 0;
    for (int i = 0; i < count; i++) sum += va_arg(list, long);
    va_end(list);
    return sum;
}

APART static long choose(long which, long a, long b) {
    switch (which) {
    case 0: return nine(a, b, a, b, a, b, a, b, a);
    case 1: return varied(9, a, b, a, b, a, b, a, b, a) + b;
    case 2: a = nine(b, 1, 2, 3, 4, 5, 6, 7, 8); break;
    case 3: return take(make(a), b, make(b)) ^ a;
    case 4: a += varied(1, b); break;
    case 5: return nine(a, a, a, a, a, a, a, a, a) + nine(b, b, b, b, b, b, b, b, b);
    case 6: a -= 3; break;
    default: return b - a;
    }
    return a * b + varied(2, a, b);
}

APART static long last(long a, long b, long c) { return a * b - c; }
APART static long tail(long a, long b, long c) {
    if (a > b) return last(c, varied(2, a, b), a);
    return last(b, a, c);
}

__attribute__((noinline, cold)) static long rare(long a, long b) {
    return varied(8, a, b, a, b, a, b, a, b) - a;
}

APART static long early(long a, long b, long c) {
    if (a == 0) return c;
    long sum = 0;
    for (long i = 0; i < a; i++) {
        sum += varied(3, a, b, i);
        if (__builtin_expect(sum == 77, 0)) sum += rare(a, sum) + rare(b, sum);
    }
    if (__builtin_expect(sum > 40, 0)) return rare(sum, a) * rare(a, sum) + b;
    return sum + c * varied(1, a);
}

static function table[] = {last, tail, early};
APART static long through(long which, long a, long b) {
    return table[which % 3](a, b, which) + table[(which + 1) % 3](b, a, which);
}

long program(void) {
    long sum = 0;
    for (long i = 0; i < 9; i++) sum += marked(choose, i, 3, 4);
    for (long i = 0; i < 3; i++) sum += marked(early, i * 3, i, 5) + marked(through, i, 2, 1);
    return sum + marked(tail, 1, 2, 3) + marked(tail, 3, 2, 1);
}
