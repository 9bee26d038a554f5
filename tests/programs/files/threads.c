#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;
static long total;
static void *count(void *number)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        total += i;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    while (turn != (int)(long)number)
        pthread_cond_wait(&turned, &mutex);
    printf("thread %ld\n", (long)number);
    turn++;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&mutex);
    return number;
}
int main(void)
{
    pthread_t threads[8];
    for (long i = 0; i < 8; i++)
        pthread_create(&threads[i], 0, count, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], 0);
    printf("%ld\n", total);
    return 0;
}
