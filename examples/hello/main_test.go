package main

import (
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_hello="+loopback.Addr(1)); err != nil {
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

// TestReadmeShowsThisProgram checks that the README's excerpt is a part of main.go.
func TestReadmeShowsThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	excerpt, _, ok := strings.Cut(rest, "```\n")
	if !ok || strings.Count(excerpt, "\n") < 10 || !strings.Contains(string(program), excerpt) {
		t.Error("the README's excerpt is not a part of examples/hello/main.go; copy the lines from verbs.Open on")
	}
}
