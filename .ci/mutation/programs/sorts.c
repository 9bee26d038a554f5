/* Recursion, loops, and functions that need all callee-saved registers. */
typedef long (*function)(long, long, long);
long marked(function f, long a, long b, long c);
#define APART __attribute__((noinline, noclone))

static long array[24];

APART static void fill(long seed) {
    for (int i = 0; i < 24; i++) {
        seed = seed * 6364136223846793005L + 1442695040888963407L;
        array[i] = seed >> 33;
    }
}

APART static void quick(long *low, long *high) {
    if (low >= high) return;
    long pivot = *low, *i = low - 1, *j = high + 1;
    for (;;) {
        do i++; while (*i < pivot);
        do j--; while (*j > pivot);
        if (i >= j) break;
        long kept = *i;
        *i = *j;
        *j = kept;
    }
    quick(low, j);
    quick(j + 1, high);
}

APART static long fibonacci(long n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

APART static long ackermann(long m, long n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

APART static long many(long a, long b, long c) {
    long d = fibonacci(a & 3), e = fibonacci(b & 3), f = fibonacci(c & 3);
    long g = d * e + fibonacci(2), h = e * f - fibonacci(3), i = d + g * h;
    return a * d + b * e + c * f + g * h + i + fibonacci(1) * (a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i);
}

APART static long matrix(long n, long m, long k) {
    static long x[5][5], y[5][5], z[5][5];
    long sum = 0;
    for (long i = 0; i < 5; i++)
        for (long j = 0; j < 5; j++) x[i][j] = i * n + j * m, y[i][j] = i - j * k;
    for (long i = 0; i < 5; i++)
        for (long j = 0; j < 5; j++) {
            long cell = 0;
            for (long l = 0; l < 5; l++) cell += x[i][l] * y[l][j];
            z[i][j] = cell;
            sum += fibonacci(cell & 1) ^ cell;
        }
    return sum;
}

APART static long sort(long seed, long b, long c) {
    fill(seed + b);
    quick(array, array + 23);
    return array[c];
}

long program(void) {
    long sum = marked(sort, 1, 2, 3);
    sum += marked(many, 4, 5, 6) + marked(matrix, 7, 8, 9);
    return sum + marked((function)ackermann, 2, 2, 0);
}
