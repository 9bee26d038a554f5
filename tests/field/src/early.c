/* main < early < late; the terminator of .eh_frame lies between the rows of both. */
void late(int n);

__attribute__((noinline)) void early(int n)
{
    volatile char room[40];
    room[n] = 1;
    late(n);
    room[0] = 1;
}

int main(int count, char **arguments)
{
    (void)arguments;
    early(count);
    return 0;
}
