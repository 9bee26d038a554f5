/* Handlers on both stacks, a handler that is interrupted, and a jump out of one. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static sigjmp_buf buffer;
static volatile int caught;
static char stack[1 << 16];

static void inner(int number)
{
    caught += number;
}

static void outer(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    caught += number;
    raise(SIGUSR2);
}

static void leave(int number)
{
    caught += number;
    siglongjmp(buffer, 1);
}

static void handle(int number, void *handler, int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    sigaction(number, &action, NULL);
}

int main(void)
{
    stack_t alternative = { .ss_sp = stack, .ss_size = sizeof stack };
    sigaltstack(&alternative, NULL);
    handle(SIGUSR1, outer, SA_SIGINFO | SA_ONSTACK);
    handle(SIGUSR2, inner, 0);
    handle(SIGTERM, leave, SA_ONSTACK);
    raise(SIGUSR1);
    if (sigsetjmp(buffer, 1) == 0)
        raise(SIGTERM);
    printf("%d\n", caught);
    return caught == SIGUSR1 + SIGUSR2 + SIGTERM ? 0 : 1;
}
