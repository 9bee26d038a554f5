/* Three threads count without a lock. Prints the order in which they began, and the count. */
#include <pthread.h>
#include <stdio.h>

static volatile long counter;
static volatile int begun;
static int order[3];

static void *count(void *arg) {
  order[begun++] = *(int *)arg;
  for (int i = 0; i < 20000; i++) counter = counter + 1;
  return arg;
}

int main(void) {
  pthread_t threads[3];
  int numbers[] = {1, 2, 3};
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, count, &numbers[i]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
  printf("%d%d%d %ld\n", order[0], order[1], order[2], counter);
  return 0;
}
