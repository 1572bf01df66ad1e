package main

import (
	"io"
	"os"
	"regexp"
	"testing"
)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_grpc=127.4.4.1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The client asks the server for its health, over RDMA.
func TestHealth(t *testing.T) {
	want := regexp.MustCompile(`^gRPC over RDMA at 127\.4\.4\.1:\d+: SERVING\n$`)
	if got := printed(t, main); !want.MatchString(got) {
		t.Errorf("printed %q", got)
	}
}

// printed returns the text that f writes to the standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	f()
	os.Stdout = stdout
	_ = w.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
