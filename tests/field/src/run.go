// main < top < mid < leaf, and a goroutine that does the same.
package main

var sink int

//go:noinline
func leaf(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum = (sum*31 + i) % 1000003
	}
	return sum
}

//go:noinline
func mid(n int) int {
	var room [8]int
	room[n&7] = leaf(n)
	return room[(n+1)&7] + room[n&7]
}

//go:noinline
func top(n int) {
	for i := 0; i < 60; i++ {
		sink += mid(n)
	}
}

func main() {
	done := make(chan bool)
	go func() {
		top(1000000)
		done <- true
	}()
	top(1000000)
	<-done
}
