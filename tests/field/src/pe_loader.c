/* Maps the code of pe.dll (arguments: offset in the page, offset of the section) and calls ptop. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    int fd = open("pe.dll", O_RDONLY);
    unsigned long at = strtoul(arguments[1], 0, 16), section = strtoul(arguments[2], 0, 16);
    char *page = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, section & ~4095ul);
    if (page == MAP_FAILED)
        return 2;
    int (*call)(int) __attribute__((ms_abi)) = (void *)(page + (section & 4095) + at);
    return call(60) & 1;
}
