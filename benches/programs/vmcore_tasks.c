/* Makes tasks for a dump of a machine: argv[1] processes and half as many threads that wait in
   sixteen ways, readers of /dev/fuse if it is there (they wait in a module), and four busy ones. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG_SECONDS = 100000 };

static void wait_somehow(int way)
{
    char buffer[64];
    int ends[2] = {-1, -1};
    pipe(ends);
    switch (way % 16) {
    case 0:
        pause();
        break;
    case 1:
        sleep(LONG_SECONDS);
        break;
    case 2:
        read(ends[0], buffer, 1);
        break;
    case 3:
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
        read(ends[0], buffer, 1);
        break;
    case 4:
        poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1);
        break;
    case 5: {
        int epoll = epoll_create1(0);
        struct epoll_event event = {EPOLLIN};
        epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
        epoll_wait(epoll, &event, 1, -1);
        break;
    }
    case 6: {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        select(ends[0] + 1, &set, 0, 0, 0);
        break;
    }
    case 7: {
        sem_t semaphore;
        sem_init(&semaphore, 0, 0);
        sem_wait(&semaphore);
        break;
    }
    case 8:
        read(eventfd(0, 0), buffer, 8);
        break;
    case 9: {
        int timer = timerfd_create(CLOCK_MONOTONIC, 0);
        timerfd_settime(timer, 0, &(struct itimerspec){{0}, {LONG_SECONDS, 0}}, 0);
        read(timer, buffer, 8);
        break;
    }
    case 10:
        read(inotify_init(), buffer, sizeof buffer);
        break;
    case 11:
        flock(open("/tmp/lock", O_CREAT | O_RDWR, 0600), LOCK_EX);
        break;
    case 12:
        msgrcv(msgget(IPC_PRIVATE, 0600), buffer, 32, 0, 0);
        break;
    case 13:
        semop(semget(IPC_PRIVATE, 1, 0600), &(struct sembuf){0, -1, 0}, 1);
        break;
    case 14:
        if (fork() == 0)
            pause();
        wait(0);
        break;
    case 15: {
        sigset_t set;
        int number;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, 0);
        sigwait(&set, &number);
        break;
    }
    }
    pause();
}

static void *thread(void *way)
{
    wait_somehow((int)(long)way);
    return 0;
}

static void busy(int way)
{
    static char buffer[4096];
    volatile unsigned long count = 0;
    int zero = open("/dev/zero", O_RDONLY), maps = open("/proc/self/maps", O_RDONLY);
    for (;;) {
        switch (way) {
        case 0:
            count++;
            break;
        case 1:
            read(zero, buffer, sizeof buffer);
            lseek(maps, 0, SEEK_SET);
            read(maps, buffer, sizeof buffer);
            break;
        case 2: {
            char *memory =
                mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int page = 0; page < 256; page++)
                memory[page * 4096] = 1;
            munmap(memory, 1 << 20);
            break;
        }
        case 3:
            if (fork() == 0)
                _exit(0);
            wait(0);
            break;
        }
    }
}

int main(int argc, char **argv)
{
    static char request[1 << 20];
    int processes = argc > 1 ? atoi(argv[1]) : 96;
    for (int i = 0; i < processes; i++)
        if (fork() == 0)
            wait_somehow(i);
    for (long i = 0; i < processes / 2; i++) {
        pthread_t id;
        pthread_create(&id, 0, thread, (void *)i);
    }
    int fuse = open("/dev/fuse", O_RDWR);
    if (fuse >= 0) {
        char options[99];
        sprintf(options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
        mkdir("/tmp/fuse", 0700);
        mount("fuse", "/tmp/fuse", "fuse", 0, options);
        for (int i = 0; i < 4; i++)
            if (fork() == 0)
                while (read(fuse, request, sizeof request) > 0)
                    ;
    }
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            busy(i);
    pause();
}
