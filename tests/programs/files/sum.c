#include <math.h>
#include <stdio.h>
#include <stdlib.h>
static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void)
{
    int values[64];
    double sum = 0;
    for (int i = 0; i < 64; i++)
        values[i] = i * 7919 % 64;
    qsort(values, 64, sizeof *values, ascending);
    for (int i = 0; i < 64; i++)
        sum += sqrt(values[i]);
    printf("%d %d %.12g\n", values[0], values[63], sum);
    return 0;
}
