/* Calls through a pointer, which clang -mretpoline makes through a thunk: it calls, writes its target over
   the return address, and returns. */
static __attribute__((noinline)) int one(int x)
{
    return x * 3 + 1;
}

static __attribute__((noinline)) int other(int x)
{
    return x ^ 5;
}

static int (*volatile table[])(int) = {one, other};

__attribute__((noinline)) int run(int times)
{
    int sum = 0;
    for (int i = 0; i < times; i++)
        sum += table[i & 1](i) + 1;
    return sum;
}

int main(void)
{
    return run(100000000) & 1;
}
