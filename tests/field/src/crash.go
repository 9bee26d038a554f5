// fail < main: a signal to the program itself, below the runtime's handler.
package main

import (
	"os"
	"syscall"
	"time"
)

//go:noinline
func fail() {
	syscall.Kill(os.Getpid(), syscall.SIGABRT)
	time.Sleep(time.Second)
}

func main() {
	fail()
}
