/* `threads N` or `processes N`: all exist at the same time, call functions, wait for the last one and
 * end. `programs N PROG`: each of the processes executes another program, which waits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting, done;

static int deep(int left) {
    volatile int own = left;
    return left ? deep(left - 1) + own : 0;
}
static void *work(void *unused) {
    deep(5);
    pthread_mutex_lock(&lock);
    waiting++;
    pthread_cond_broadcast(&changed);
    while (!done) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return unused;
}
static int threads(int count) {
    pthread_t *all = calloc(count, sizeof *all);
    int made = 0;
    while (made < count && !pthread_create(&all[made], 0, work, 0)) made++;
    pthread_mutex_lock(&lock);
    while (waiting < made) pthread_cond_wait(&changed, &lock);
    done = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < made; i++) pthread_join(all[i], 0);
    return made;
}
static int processes(int count, char *program) {
    int begun[2], end[2], made = 0;
    char byte;
    if (pipe(begun) || pipe(end)) return -1;
    while (made < count) {
        pid_t child = fork();
        if (child < 0) break;
        if (!child) {
            deep(5);
            close(end[1]);
            close(begun[0]);
            dup2(end[0], 0);
            dup2(begun[1], 1);
            if (program) execl(program, program, (char *)0);
            if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 0) _exit(1);
            _exit(0);
        }
        made++;
    }
    close(begun[1]);
    /* A program that only reads says nothing before it ends. */
    for (int i = 0; !program && i < made; i++)
        if (read(begun[0], &byte, 1) != 1) return -1;
    close(end[1]);
    int well = 0, status;
    while (wait(&status) > 0) well += status == 0;
    return well;
}
int main(int count, char **args) {
    if (count < 3) return 2;
    int wanted = atoi(args[2]);
    int made = strcmp(args[1], "threads") ? processes(wanted, args[3]) : threads(wanted);
    printf("%s %d\n", args[1], made);
    return made != wanted;
}
