//go:build linux && cgo

package main

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/provider/soft"
)

func TestEachDropIsPrintedOnce(t *testing.T) {
	counters := []soft.Counter{{Name: "sent_pkts", Value: 3}, {Name: "bad_qkey", Value: 2}, {Name: "recv_dropped"}}
	lines, seen := firstDrops("vrb_a", counters, nil)
	if want := []string{"verbena: vrb_a: bad_qkey 2: Datagrams dropped: wrong Q_Key.\n"}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	counters[1].Value, counters[2].Value = 9, 1
	if lines, _ = firstDrops("vrb_a", counters, seen); len(lines) != 1 {
		t.Errorf("the second time: %q, want one line of recv_dropped", lines)
	}
}

func TestEachReasonHasAText(t *testing.T) {
	for _, name := range waitReasons {
		if control.Help(name) == "" {
			t.Errorf("%s: no text", name)
		}
	}
}
