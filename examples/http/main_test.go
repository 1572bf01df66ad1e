package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/verbena-rdma/verbena/examples/internal/output"
	"github.com/verbena-rdma/verbena/internal/loopback"
)

var addr = loopback.Addr(1)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_http="+addr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Without options the program serves one page and gets it, over RDMA.
func TestServeAndGet(t *testing.T) {
	want := regexp.MustCompile(`^200 OK: hello ` + regexp.QuoteMeta(addr) + `:\d+ over RDMA, you asked for /example\n$`)
	if got := output.Of(t, main); !want.MatchString(got) {
		t.Errorf("printed %q", got)
	}
}
