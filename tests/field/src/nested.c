/* GCC writes code to the stack where the address of a nested function is taken; it is spun on here. */
__attribute__((noinline)) long repeat(int (*function)(int), long times)
{
    long sum = 0;
    for (long i = 0; i < times; i++)
        sum += function(i & 7);
    return sum;
}

int main(int count, char **arguments)
{
    int add(int by)
    {
        return by + count;
    }
    (void)arguments;
    return repeat(add, 1000000000) & 1;
}
