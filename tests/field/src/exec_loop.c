/* Starts /bin/true again and again, by vfork and execve. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    char *program = count > 1 ? arguments[1] : "/bin/true";
    char *own[] = {program, 0}, *none[] = {0};
    for (int i = 0; i < 1500; i++) {
        pid_t child = vfork();
        if (!child) {
            execve(program, own, none);
            _exit(1);
        }
        waitpid(child, 0, 0);
    }
    return 0;
}
