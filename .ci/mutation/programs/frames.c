/* Frames that are not of a fixed size, aligned ones, large ones, and ones of floating point. */
typedef long (*function)(long, long, long);
long marked(function f, long a, long b, long c);
#define APART __attribute__((noinline, noclone))

APART static long use(long *words, long count) {
    long sum = 0;
    for (long i = 0; i < count; i++) sum += words[i] = i * count;
    return sum;
}

APART static long variable(long n, long m, long k) {
    long words[n + 1];
    long sum = use(words, n);
    if (m > 2) {
        long *more = __builtin_alloca(m * 8);
        sum += use(more, m) * k;
    }
    return sum + words[n / 2];
}

APART static long aligned(long n, long m, long k) {
    long words[8] __attribute__((aligned(64)));
    long sum = use(words, 8) + n;
    for (long i = 0; i < 3; i++) sum += use(words, m + i) * k;
    return sum ^ (long)((unsigned long)words & 63);
}

APART static long both(long n, long m, long k) {
    long words[4] __attribute__((aligned(32)));
    long *more = __builtin_alloca((n + 2) * 16);
    return use(words, 4) + use(more, n) * m - k;
}

APART static long large(long n, long m, long k) {
    long words[300];
    long sum = use(words, 20);
    return sum + use(words + 200, n) * m + k;
}

APART static double curve(double x, double y) { return x * x - y / (x + 3.0); }
APART static long floats(long n, long m, long k) {
    double sums[6];
    for (int i = 0; i < 6; i++) sums[i] = curve(n + i, m) * curve(k, i);
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += curve(sums[i], sum);
    return (long)sum;
}

APART static long nested(long n, long m, long k) {
    long words[3] = {n, m, k};
    if (n <= 0) return use(words, 3);
    return nested(n - 1, words[1] + variable(n, m, k), k) + words[2];
}

long program(void) {
    long sum = marked(variable, 5, 1, 3) + marked(variable, 3, 4, 1) + marked(aligned, 1, 2, 3);
    sum += marked(both, 2, 3, 4) + marked(large, 5, 6, 7) + marked(floats, 1, 2, 3);
    return sum + marked(nested, 3, 2, 1);
}
