/* A thread whose stack is unmapped while it waits. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (16 << 20)

static void *run(void *unused)
{
    for (;;)
        usleep(10000);
    return unused;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, SIZE);
    pthread_create(&thread, &attributes, run, NULL);
    usleep(50000);
    munmap(stack, SIZE);
    sleep(1);
    return 0;
}
