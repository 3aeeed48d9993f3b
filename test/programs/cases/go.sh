# needs: go
export HOME=$PWD GOCACHE=$PWD/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off
go version | cut -d' ' -f1-2
mkdir g && cd g && cat >main.go <<'GO'
package main

import (
	"fmt"
	"os/exec"
	"sync"
	"time"
)

func main() {
	var wg sync.WaitGroup
	c := make(chan int, 10)
	for i := 0; i < 1000; i++ {
		wg.Add(1)
		go func(i int) { defer wg.Done(); time.Sleep(time.Millisecond); c <- i }(i)
	}
	go func() { wg.Wait(); close(c) }()
	s := 0
	for v := range c {
		s += v
	}
	out, err := exec.Command("echo", "child").Output()
	fmt.Println(s, string(out), err)
}
GO
printf 'module m\ngo 1.18\n' >go.mod
go build -o prog . && ./prog
