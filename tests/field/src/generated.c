/* Copies a function into memory of the kind MODE and calls it; it calls spin:
   main < drive < generated code < spin. 0: memfd, 1: shared anonymous (/dev/zero), 2: private anonymous,
   3: System V shared memory, 4: a temporary file that is deleted. With a second argument spin aborts. The
   function sets up rbp, and /tmp/perf-PID.map names it. With ROOM spin uses
   the stack. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define SIZE 65536

static int is_crash;
static const unsigned char code[] = {
    0x55,                   /* push %rbp */
    0x48, 0x89, 0xe5,       /* mov %rsp,%rbp */
    0x48, 0x83, 0xec, 0x20, /* sub $32,%rsp */
    0xff, 0xd6,             /* call *%rsi */
    0xc9,                   /* leave */
    0xc3,                   /* ret */
};

__attribute__((noinline)) long spin(long n)
{
#ifdef ROOM
    volatile char room[200];
    room[n & 7] = 1;
#endif
    if (is_crash)
        abort();
    while (n--)
        __asm__ volatile("");
    return n;
}

static void fill(char *memory)
{
    memcpy(memory + 0x100, code, sizeof code);
}

static char *make(int mode)
{
    int fd = -1;
    char *memory;
    if (mode == 0)
        fd = memfd_create("doublemapper", 0);
    if (mode == 4) {
        fd = open("code-buffer", O_RDWR | O_CREAT, 0600);
        unlink("code-buffer");
    }
    if (fd >= 0) {
        if (ftruncate(fd, SIZE))
            return 0;
        fill(mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        return mmap(0, SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    }
    if (mode == 3) {
        int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0700);
        fill(shmat(id, 0, 0));
        memory = shmat(id, 0, SHM_EXEC | SHM_RDONLY);
        shmctl(id, IPC_RMID, 0);
        return memory;
    }
    int flags = MAP_ANONYMOUS | (mode == 1 ? MAP_SHARED : MAP_PRIVATE);
    memory = mmap(0, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
    fill(memory);
    return memory;
}

__attribute__((noinline)) long drive(char *memory)
{
    long sum = 0;
    for (int i = 0; i < 60; i++)
        sum += ((long (*)(long, void *))(memory + 0x100))(8000000, (void *)spin);
    return sum;
}

int main(int count, char **arguments)
{
    char *memory = make(count > 1 ? atoi(arguments[1]) : 0);
    is_crash = count > 2;
    char name[64];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "%lx %x generated_function\n", (long)memory + 0x100, (int)sizeof code);
    fclose(map);
    return drive(memory) & 1;
}
