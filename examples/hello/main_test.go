package main

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_hello=127.4.1.1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func Example() {
	main()
	// Unordered output:
	// RECV: success, "hello, RDMA"
	// SEND: success, ""
}

// TestReadmeShowsThisProgram compares the README's copy with main.go.
func TestReadmeShowsThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "package main\n")
	if !strings.Contains(string(readme), "```go\npackage main\n"+code+"```\n") {
		t.Error("the README's program differs from examples/hello/main.go; copy it from \"package main\" on")
	}
}
