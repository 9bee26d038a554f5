/* Calls a tiny function of a shared object through the procedure linkage table. */
long tiny(long n);

__attribute__((noinline)) long loop(long n)
{
    long sum = 0;
    while (n--)
        sum += tiny(n);
    return sum;
}

int main(void)
{
    return loop(200000000) & 1;
}
