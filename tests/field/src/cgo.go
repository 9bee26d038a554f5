// ends (C) < main.calls: C code runs on the stack of the thread, behind asmcgocall.
package main

/*
#include <stdlib.h>
static void ends(int n) {
	if (n == 0)
		abort();
	ends(n - 1);
	__asm__ volatile("");
}
*/
import "C"

//go:noinline
func calls() {
	C.ends(3)
}

func main() {
	calls()
}
