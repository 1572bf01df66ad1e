package proc_test

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

func TestTail(t *testing.T) {
	long := strings.Repeat("x", 65535)
	if got, want := proc.Tail("a\nb\n"+long+"\nc\n", 3), "b\n"+long[:200]+"\nc"; got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	if got := proc.Tail("a\n", 3); got != "a" {
		t.Errorf("%q", got)
	}
}
