package rdmacm

import (
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/provider/soft"
)

// The event of a handshake that had no answer says which message had none, and what to do.
func TestSilenceIsExplained(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	dev, err := soft.New(soft.Config{Name: "silent", Addrs: []netip.Addr{addr}})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev.Device)
	ok := FatalOn(t)
	ch, err := h.CreateEventChannel()
	ok(err)
	next := func() *Event {
		ev, err := ch.GetEvent(t.Context())
		ok(err)
		return ev
	}
	for event, what := range map[cm.EventType]string{
		cm.EventREQTimeout: "request", cm.EventREPTimeout: "reply", cm.EventSIDRTimeout: "request",
	} {
		id, err := h.CreateID(ch, PSTCP, nil)
		ok(err)
		ok(id.ResolveAddr(context.Background(), netip.AddrPort{}, netip.AddrPortFrom(addr, 7), time.Second))
		ok(next().Ack())
		id.mu.Lock()
		if what == "reply" {
			id.step(inRequest)
			id.step(inAccept)
		} else {
			id.step(inConnect)
		}
		id.mu.Unlock()
		id.dev.cm.dispatch(&cm.Event{Type: event, ID: &cm.ID{Context: id}})
		ev := next()
		if text := ev.Err().Error(); ev.Status != -int(syscall.ETIMEDOUT) || !strings.Contains(text, "to the "+what) ||
			!strings.Contains(text, "UDP port 4791") || !strings.Contains(text, "verbena doctor 127.0.0.1") {
			t.Errorf("status %d, %s", ev.Status, text)
		}
		ok(ev.Ack())
		ok(id.Close())
	}
	ok(ch.Close())
	ok(h.Close())
}
