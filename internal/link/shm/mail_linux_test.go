package shm

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A postOffice is a directory whose management datagrams have a QP number of their recipient in their first byte, 0:
// none, and the number of their connection in the second.
type postOffice struct{ testDirectory }

func (d *postOffice) Owner(a netip.Addr, qpn uint32) string {
	if qpn == wire.GSIQPN {
		return ""
	}
	return d.testDirectory.Owner(a, qpn)
}

func (*postOffice) Recipient(pkt []byte) (qpn, conn uint32, ok bool) {
	mad := pkt[wire.BTHLen+wire.DETHLen:]
	return uint32(mad[0]), uint32(mad[1]), mad[0] != 0
}

// mail places a management datagram about a connection for the process of a QP.
func (s *side) mail(path *link.Path, qpn, conn uint8) {
	s.tb.Helper()
	b := s.tx.Alloc(path, wire.GSIQPN, wire.BTHLen+wire.DETHLen+wire.MADLen)
	if b == nil {
		s.tb.Fatal("no place")
	}
	clear(b)
	wire.BTH(b).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
	b[wire.BTHLen+wire.DETHLen], b[wire.BTHLen+wire.DETHLen+1] = qpn, conn
}

// TestMail checks which management datagrams go through rings: those for a process that is known and has rings, whether
// or not its port sleeps.
func TestMail(t *testing.T) {
	var d postOffice
	a, b := d.openAs(t, addrA, 1, &d), d.openAs(t, addrB, 1, &d)
	a.ready(addrB, 7)
	path := &link.Path{Src: addrA, Dst: addrB, AnyOrder: true}
	for _, x := range []struct {
		what   string
		qpn    uint8
		asleep uint64
		rings  int
	}{
		{"known", 7, 0, 1},
		{"unknown", 0, 0, 0},
		{"asleep", 7, 1, 1},
	} {
		b.p.sleep.Add(x.asleep)
		a.inner(0).sent = nil
		a.mail(path, x.qpn, 1)
		a.put(path, 7, 8, 3) // for another QP of the batch
		a.p.Send(a.tx)
		b.p.sleep.Add(x.asleep)
		mails := 0
		for _, p := range b.next() {
			if wire.BTH(p.Data).DestQPN() == wire.GSIQPN {
				mails++
			}
		}
		if mails != x.rings || len(a.inner(0).sent) != 1-x.rings {
			t.Errorf("%s: %d through rings, %d over the other link", x.what, mails, len(a.inner(0).sent))
		}
	}
	if c := a.p.Counters(); c.ShmTxPackets != 2+3 {
		t.Errorf("counters %+v", c)
	}
}

// TestMailDuringAHandshake checks that the messages of a connection stay on the other link if the first of them was
// sent there before the rings were ready.
func TestMailDuringAHandshake(t *testing.T) {
	d := postOffice{testDirectory{slow: make(chan struct{})}}
	a, b := d.openAs(t, addrA, 1, &d), d.openAs(t, addrB, 1, &d)
	path, rc := &link.Path{Src: addrA, Dst: addrB, AnyOrder: true}, a.path(addrB, 7)
	send := func(conn uint8) (other int) {
		a.inner(0).sent = nil
		a.mail(path, 7, conn)
		a.p.Send(a.tx)
		return len(a.inner(0).sent)
	}
	if send(1) != 1 {
		t.Error("the datagram waits for the handshake")
	}
	close(d.slow)
	a.await("ring set", func() bool { return rc.Route.(*route).rings.Load() != nil })
	if send(1) != 1 || send(2) != 0 {
		t.Error("the next message may overtake the first, or none goes through the ring")
	}
	if got := b.next(); len(got) != 1 {
		t.Errorf("%d datagrams in the ring", len(got))
	}
}

// TestMailOfAFullRing checks that a datagram goes over the other link if the ring has no room.
func TestMailOfAFullRing(t *testing.T) {
	var d postOffice
	a, b := d.openAs(t, addrA, 1, &d), d.openAs(t, addrB, 1, &d)
	path := a.ready(addrB, 7)
	for a.put(path, 7, 4000, 1) {
		a.p.Send(a.tx)
	}
	a.p.Send(a.tx)
	last := uint8(0)
	for ; last < 64 && len(a.inner(0).sent) == 0; last++ { // one of them finds no room, however small
		a.mail(&link.Path{Src: addrA, Dst: addrB}, 7, last+1)
		a.p.Send(a.tx)
	}
	if len(a.inner(0).sent) != 1 {
		t.Error("no datagram went over the other link")
	}
	for len(b.take()) > 0 {
	}
	a.mail(&link.Path{Src: addrA, Dst: addrB}, 7, last)
	if a.p.Send(a.tx); len(a.inner(0).sent) != 2 {
		t.Error("the next message of that connection may overtake the datagram")
	}
}

// TestMailToAnEndedProcess checks that a datagram goes over the other link when the process with the rings has ended.
func TestMailToAnEndedProcess(t *testing.T) {
	var d postOffice
	a, b := d.openAs(t, addrA, 1, &d), d.openAs(t, addrB, 1, &d)
	a.ready(addrB, 7)
	b.Close()
	<-a.lost
	a.mail(&link.Path{Src: addrA, Dst: addrB}, 7, 1)
	if a.p.Send(a.tx); len(a.inner(0).sent) != 1 {
		t.Error("the datagram is lost")
	}
}

// A testScreen drops datagrams with a byte.
type testScreen byte

func (s testScreen) Drop(mad []byte) bool { return mad[0] == byte(s) }
func (testScreen) Show([]*board.Board)    {}

// A screened link takes a screen.
type screenedLink struct {
	*fakeLink
	screen link.Screen
}

func (l *screenedLink) Capabilities() link.Capabilities {
	c := l.fakeLink.Capabilities()
	c.Screener = l
	return c
}

func (l *screenedLink) SetScreen(s link.Screen) { l.screen = s }

// TestMailIsScreened checks that the screen drops datagrams of rings too, and that the other link has it.
func TestMailIsScreened(t *testing.T) {
	var d postOffice
	a, b := d.openAs(t, addrA, 1, &d), d.openAs(t, addrB, 1, &d)
	if b.Link.Capabilities().Screener != nil {
		t.Error("the link has a screener, unlike the other link")
	}
	other := &screenedLink{fakeLink: newFakeLink(1)}
	b.Link.Link = other
	screener := b.Link.Capabilities().Screener
	screener.SetScreen(testScreen(7))
	a.ready(addrB, 7)
	path := &link.Path{Src: addrA, Dst: addrB}
	receive := func() (n int, screened bool) {
		a.mail(path, 7, 1)
		a.mail(path, 8, 1)
		a.p.Send(a.tx)
		b.await("datagram", func() bool { n += len(b.take()); screened = screened || b.rx.Screened; return n > 0 })
		return n, screened
	}
	if n, screened := receive(); n != 1 || !screened || other.screen == nil {
		t.Errorf("%d datagrams passed, screened %v, other link %v", n, screened, other.screen)
	}
	if c := b.p.Counters(); c.RxScreened != 1 || c.RxPackets != 1 {
		t.Errorf("counters %+v", c)
	}
	screener.SetScreen(nil)
	if n, screened := receive(); n != 2 || screened || other.screen != nil {
		t.Errorf("without a screen: %d datagrams passed, screened %v, other link %v", n, screened, other.screen)
	}
}
