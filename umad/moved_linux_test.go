package umad_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// A local address that the port loses is one that nothing is sent from, also if something was sent from it before. When
// the port has it again, datagrams arrive again.
func TestSendAfterGIDChange(t *testing.T) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	apart.IP(t, "link set lo up")
	apart.IP(t, "addr add 10.9.0.1/32 dev lo")
	apart.IP(t, "addr add 10.9.0.2/32 dev lo")
	vctx := must(verbs.Open("vrb_lo"))(t)
	defer vctx.Close()
	port := must(umad.Open(vctx.Device()))(t)
	defer port.Close()
	asked := must(port.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}))(t)
	defer asked.Close()
	to := &umad.Address{Local: netip.MustParseAddr("10.9.0.2"), Remote: netip.MustParseAddr("10.9.0.1")}
	arrives := func() { // the link takes a new address a moment after the table: datagrams may be lost
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			sent := asked.Send(to, get(9))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			r, err := asked.Recv(ctx)
			cancel()
			if sent == nil && err == nil && r.From.Remote == to.Local {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing arrives: %v, %v", sent, err)
			}
		}
	}
	has := func(want bool) {
		t.Helper()
		gid := verbs.GIDFromAddr(to.Local)
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			table := must(vctx.QueryGIDTable())(t)
			if slices.ContainsFunc(table, func(e verbs.GIDEntry) bool { return e.GID == gid }) == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the GID table has %v after 20 s: %v", table, !want)
			}
		}
	}
	arrives()
	apart.IP(t, "addr del 10.9.0.2/32 dev lo")
	has(false)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // the event follows the table
		err := asked.Send(to, get(9))
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("from an address that was removed: %v", err)
		}
	}
	apart.IP(t, "addr add 10.9.0.2/32 dev lo")
	has(true)
	arrives()
}
