/* Opens ./libdying.so and closes it: __do_global_dtors_aux of GCC's start files calls
   __cxa_finalize, which runs the destructor. */
#include <dlfcn.h>

int main(void)
{
    void *library = dlopen("./libdying.so", RTLD_NOW);
    if (!library)
        return 2;
    dlclose(library);
    return 0;
}
