package main

import (
	"io"
	"os"
	"regexp"
	"testing"
)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_http=127.4.3.1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Without options the program serves one page and gets it, over RDMA.
func TestServeAndGet(t *testing.T) {
	want := regexp.MustCompile(`^200 OK: hello 127\.4\.3\.1:\d+ over RDMA, you asked for /example\n$`)
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
