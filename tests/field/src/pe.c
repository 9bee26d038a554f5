/* A DLL: ptop < pleaf, which spins. */
__declspec(dllexport) __attribute__((noinline)) int pleaf(int n)
{
    volatile int sum = 0;
    for (int i = 0; i < n; i++)
        sum += i * n;
    return sum;
}

__declspec(dllexport) __attribute__((noinline)) int ptop(int n)
{
    volatile char room[100];
    int result = 0;
    room[n & 7] = 1;
    for (int i = 0; i < n; i++)
        result += pleaf(3000000);
    return result + room[1];
}

int __stdcall DllMain(void *module, unsigned reason, void *reserved)
{
    return 1;
}
