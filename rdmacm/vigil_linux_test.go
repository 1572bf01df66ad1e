package rdmacm_test

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// The last process of an address is killed, and nobody can send its DREQ: a server that only receives learns of it,
// because the port of that address is closed. A client that is merely stopped stays connected.
func TestDeathOfTheLastProcessOfAnAddress(t *testing.T) {
	if beVictim(t) {
		return
	}
	t.Setenv("VERBENA_SHM", "0")
	rdmacm.AskEvery(50 * time.Millisecond)
	h, addr := udpHost(t, 11)
	w := &world{T: t, a: h, b: h}
	l, at := w.listenHere()
	c := newVictim(w, t.Name(), "client", addr.Next(), at)
	s := l.request()
	w.ok(s.Accept(bg, nil))
	s.expect(rdmacm.EventEstablished)
	c.says("established")
	apart.Stop(c, c.cmd.Process)
	time.Sleep(200 * time.Millisecond)
	if ev, err := s.ch.TryGetEvent(); err == nil {
		t.Fatalf("%v while the client is stopped", ev.Type)
	}
	w.ok(c.cmd.Process.Signal(syscall.SIGCONT))
	c.kill()
	s.soon(rdmacm.EventDisconnected, -int(syscall.ETIMEDOUT))
	s.over()
	l.close()
	w.ok(h.Close())
}

// A socket needs the zones of link-local addresses, which connections do not have.
func TestClosedPortOfAnyKindOfAddress(t *testing.T) {
	onWire(t, func(w *cabled) {
		var addrs []netip.Addr
		for _, a := range []string{near4, near6, nearLocal} {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		dev, err := soft.New(soft.Config{Name: "vrb_vigil", Addrs: addrs})
		w.ok(err)
		h := rdmacm.NewHost(dev.Device)
		for i, peer := range []string{far4, far6, farLocal} {
			id := must(h.CreateID(nil, rdmacm.PSTCP, nil))(w.world)
			at := addrs[i]
			if at.IsLinkLocalUnicast() {
				at = at.WithZone("near")
			}
			w.ok(id.BindAddr(netip.AddrPortFrom(at, 0)))
			closed := false
			for range 5 { // one answer of a busy host may come too late
				closed = closed || id.PortIsClosed(bg, netip.MustParseAddr(peer))
			}
			if !closed {
				t.Errorf("the port of %v is not known to be closed", peer)
			}
			w.ok(id.Close())
		}
		w.ok(h.Close())
	})
}
