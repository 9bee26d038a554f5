package main

import (
	"fmt"
	"sync"
)

func main() {
	var group sync.WaitGroup
	results := make(chan int, 16)
	for i := 0; i < 1000; i++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			results <- n * n % 97
		}(i)
	}
	go func() { group.Wait(); close(results) }()
	sum := 0
	for value := range results {
		sum += value
	}
	fmt.Println("goroutines", sum)
}
