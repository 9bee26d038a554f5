/* Prints how many variables it has, and the first. */
#include <stdio.h>

extern char **environ;

int main(void) {
  int count = 0;
  while (environ[count]) count++;
  printf("%d %s\n", count, count ? environ[0] : "-");
  return 0;
}
