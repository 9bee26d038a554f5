/* main, with 400 bytes of its own, calls the program of another file, whose main is renamed. */
int within(void);

int main(void)
{
    volatile char room[400];
    room[1] = 1;
    return within() + room[1];
}
