#include <stdio.h>
int main(int argc, char **argv)
{
    printf("hello from %d arguments\n", argc);
    return 3;
}
