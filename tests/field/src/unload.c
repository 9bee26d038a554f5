/* A library is unloaded while its function is on the stack; with THREAD, while a thread is in it. With
   PLUGIN, this is the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef PLUGIN

void plugin(void (*back)(void))
{
    back();
    __asm__ volatile("");
}

void *plugin_thread(void *unused)
{
    for (;;)
        usleep(10000);
    return unused;
}

#else

#ifndef HOW
#define HOW RTLD_NOW
#endif

static void *library;

__attribute__((noinline)) void unload(void)
{
    dlclose(library);
    abort();
}

int main(void)
{
    library = dlopen("./plugin.so", HOW);
#ifdef THREAD
    pthread_t thread;
    pthread_create(&thread, NULL, (void *(*)(void *))dlsym(library, "plugin_thread"), NULL);
    usleep(50000);
    dlclose(library);
    sleep(1);
#else
    ((void (*)(void (*)(void)))dlsym(library, "plugin"))(unload);
#endif
    return 0;
}

#endif
