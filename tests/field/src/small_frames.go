// work calls leaf, which has no frame, big (runtime.duffcopy) and mover (runtime.memmove).
package main

type wide struct{ words [20]int }

var a, b [8]int
var c, d wide
var from, to [4096]byte

//go:noinline
func leaf() { a = b }

//go:noinline
func big() { c = d }

//go:noinline
func mover() { copy(to[:], from[:]) }

//go:noinline
func work(n int) {
	for i := 0; i < n; i++ {
		leaf()
		big()
		mover()
	}
}

func main() { work(6000000) }
