package main

import (
	"io"
	"os"
	"regexp"
	"testing"
)

func TestMain(m *testing.M) {
	// An address of its own, so that other programs on this machine do not matter.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_http=127.4.3.1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The program asks itself for a page, over RDMA.
func TestAsksItself(t *testing.T) {
	want := regexp.MustCompile(`^200 OK: hello 127\.4\.3\.1:\d+ over RDMA, you asked for /example\n$`)
	if got := printed(t, main); !want.MatchString(got) {
		t.Errorf("it printed %q", got)
	}
}

// printed is what a function prints.
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
