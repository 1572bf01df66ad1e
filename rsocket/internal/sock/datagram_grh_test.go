package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// A receive that is shorter than the GRH in front of each message, or has nothing but it, is no message.
func TestDatagramShorterThanGRH(t *testing.T) {
	d := &Datagram{v4: true}
	q := &datagramQP{mem: make([]byte, 2*recvSlot), slots: 2}
	for n := range grhLen + 1 {
		if q.received(d, 1, n) {
			t.Errorf("%d bytes are a message", n)
		}
	}
}

// A peer toward which the socket's address belongs to no device has no QP. Its datagrams are received all the same.
func TestDatagramWithoutDevice(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	peer := netip.MustParseAddrPort("127.0.0.1:9")
	if n, err := d.SendTo([]byte("x"), peer, WaitMode{Nonblock: true}); n != 0 || err == nil {
		t.Errorf("%d bytes sent, %v", n, err)
	}
	d.onUDP(rs.OpData, 7, []byte("hello"), peer)
	if d.pooled != 1 {
		t.Errorf("%d messages by UDP are counted", d.pooled)
	}
	b := make([]byte, 10)
	if n, from, err := d.RecvFrom(b, 0, WaitMode{Nonblock: true}); string(b[:n]) != "hello" || from != peer || err != nil {
		t.Errorf("%q from %v, %v", b[:n], from, err)
	}
	if len(d.qps) != 0 || len(d.dests) != 0 {
		t.Errorf("%d QPs, %d peers", len(d.qps), len(d.dests))
	}
	d.Close()
}

// A socket that was closed before it was bound opens none.
func TestClosedDatagramDoesNotBind(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	d.Close()
	if err := d.Bind(netip.MustParseAddrPort("127.0.0.1:0")); !errors.Is(err, net.ErrClosed) || d.udp != nil {
		t.Errorf("%v, want %v", err, net.ErrClosed)
	}
}

// Close waits for the sends that are posted, and counts no receive among them.
func TestDatagramDrain(t *testing.T) {
	const slots = 3
	q := must(newDatagramQP(hosted(t), ownAddr.Addr(), slots))(t)
	attr := must((&dest{to: ownAddr, q: q}).path())(t)
	ah := must(q.id.PD().CreateAH(&attr))(t)
	ok(t, q.sendToNobody(0, ah))
	must(q.ch.GetEvent(context.Background()))(t).AckEvents(1) // the completion of the send
	q.free = q.free[1:]
	if q.drain(); len(q.free) != slots || !q.gone {
		t.Errorf("%d free slots of %d, gone %v", len(q.free), slots, q.gone)
	}
	ok(t, ah.Close())
	q.close()
}

// A connected socket drops what other peers send to its QP, so that their messages keep no slot. A caller of Poll wakes
// for a message of the peer.
func TestConnectedSocketDropsOthers(t *testing.T) {
	peer, other := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("192.0.2.2:7")
	w := NewWaiter()
	d := &Datagram{v4: true, to: peer}
	d.others.add(&w)
	q := &datagramQP{mem: make([]byte, 3*recvSlot), slots: 3}
	arrive := func(slot int, from netip.AddrPort, text string) bool {
		wire.GRH(q.mem[slot*recvSlot:][:grhLen]).Put(from.Addr(), other.Addr(), 0, 64, 0, 100)
		b := append(rs.AppendHeader(q.mem[slot*recvSlot+grhLen:][:0], from), text...)
		return q.received(d, slot, grhLen+len(b))
	}
	if arrive(1, other, "other") || len(d.queue) != 0 || len(w.C) != 0 {
		t.Errorf("%d messages, %d wake-ups for a message of another peer", len(d.queue), len(w.C))
	}
	if !arrive(2, peer, "hello") || len(d.queue) != 1 || len(w.C) != 1 {
		t.Fatalf("%d messages, %d wake-ups for a message of the peer", len(d.queue), len(w.C))
	}
	if m := d.queue[0]; m.from != peer || string(m.data) != "hello" || m.slot != 2 || m.qp != q {
		t.Errorf("%q from %v in slot %d", m.data, m.from, m.slot)
	}
}

// A look at the QPs finds the completion of a send, once, and makes its slot free.
func TestDatagramProgress(t *testing.T) {
	q := must(newDatagramQP(hosted(t), ownAddr.Addr(), 1))(t)
	d := &Datagram{v4: true, qps: map[netip.Addr]*datagramQP{ownAddr.Addr(): q}}
	attr := must((&dest{to: ownAddr, q: q}).path())(t)
	ah := must(q.id.PD().CreateAH(&attr))(t)
	if d.progress() {
		t.Error("progress before the send")
	}
	ok(t, q.sendToNobody(0, ah))
	must(q.ch.GetEvent(context.Background()))(t).AckEvents(1) // the completion of the send
	q.free = nil
	if !d.progress() || len(q.free) != 1 {
		t.Errorf("%d free slots", len(q.free))
	}
	if d.progress() {
		t.Error("progress without a completion")
	}
	ok(t, ah.Close())
	q.close()
}

// The goroutine of a QP that is being closed ends, and leaves the socket unlocked.
func TestWatchOfAClosedQP(t *testing.T) {
	q := must(newDatagramQP(hosted(t), ownAddr.Addr(), 1))(t)
	attr := must((&dest{to: ownAddr, q: q}).path())(t)
	ah := must(q.id.PD().CreateAH(&attr))(t)
	ok(t, q.sendToNobody(0, ah)) // its completion is an event
	d := &Datagram{}
	q.gone = true
	q.watch(d)
	if !d.mu.TryLock() {
		t.Error("the socket is locked")
	}
	ok(t, ah.Close())
	q.close()
}

// A QP that has no events any more, as that of a removed device, is looked at all the same until it is closed. The
// socket is free between the looks.
func TestLooksAtAQPWithoutEvents(t *testing.T) {
	q := must(newDatagramQP(hosted(t), ownAddr.Addr(), 1))(t)
	attr := must((&dest{to: ownAddr, q: q}).path())(t)
	ah := must(q.id.PD().CreateAH(&attr))(t)
	d := &Datagram{}
	var over sync.WaitGroup
	over.Go(func() { q.look(d) })
	for range 2 {
		await(t, func() bool {
			if !d.mu.TryLock() {
				return false
			}
			defer d.mu.Unlock()
			q.free = nil
			ok(t, q.sendToNobody(0, ah))
			return true
		})
		await(t, func() bool {
			if !d.mu.TryLock() {
				return false
			}
			defer d.mu.Unlock()
			return len(q.free) == 1
		})
	}
	ok(t, ah.Close())
	close(q.over)
	over.Wait()
	q.over = make(chan struct{})
	q.close()
}

// await waits until done is true, for 20 s at most.
func await(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not come about in 20 s")
		}
	}
}

// Close returns when the goroutines of the socket have ended, and not before.
func TestDatagramCloseWaitsForItsGoroutines(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	goOn, closed := make(chan struct{}), make(chan struct{})
	d.ended.Go(func() { <-goOn })
	go func() {
		d.Close()
		close(closed)
	}()
	await(t, d.IsClosed)
	select {
	case <-closed:
		t.Error("Close has returned while a goroutine runs")
	case <-time.After(20 * time.Millisecond):
	}
	close(goOn)
	<-closed
}

// A socket that cannot have what its QP needs has none, and leaves nothing.
func TestDatagramQPThatCannotBeMade(t *testing.T) {
	host := hosted(t)
	q, err := newDatagramQP(host, netip.MustParseAddr("203.0.113.1"), 1)
	if q != nil || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("at a foreign address: %v, %v", q, err)
	}
	q, err = newDatagramQP(host, ownAddr.Addr(), 1<<20)
	if q != nil || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "create_cq") {
		t.Errorf("with too many slots: %v, %v", q, err)
	}
}

// Close of a socket does not take receives that have completed for sends.
func TestDatagramDrainWithReceives(t *testing.T) {
	const slots = 3
	q := must(newDatagramQP(hosted(t), ownAddr.Addr(), slots))(t)
	ok(t, q.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // the receives are flushed
	must(q.ch.GetEvent(context.Background()))(t).AckEvents(1)
	q.free = q.free[1:]
	if q.drain(); len(q.free) != slots-1 {
		t.Errorf("%d free slots of %d, want one less", len(q.free), slots)
	}
	q.close()
}

// A wait that has slept polls anew.
func TestDatagramPollsAnewAfterASleep(t *testing.T) {
	d := &Datagram{}
	w := NewWaiter()
	w.Wake()
	p := WaitMode{spin: Spin{start: time.Now(), polls: 7}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.pause(&w, &p); err != nil || p.spin.begun() {
		t.Errorf("%v, begun %v", err, p.spin.begun())
	}
}

// A socket is bound once.
func TestDatagramBindsOnce(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	at := netip.MustParseAddrPort("127.0.0.1:0")
	ok(t, d.Bind(at))
	if err := d.Bind(at); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("again: %v", err)
	}
	d.Close()
}

// Each message that is not sent yet has a slot of its own, beside those of the receives. Without a slot there is no
// room.
func TestSlotsOfSends(t *testing.T) {
	const slots = 3
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	q := must(newDatagramQP(d.hub.Host, ownAddr.Addr(), slots))(t)
	dst := &dest{to: ownAddr, q: q}
	attr := must(dst.path())(t)
	dst.ah = must(q.id.PD().CreateAH(&attr))(t)
	d.mu.Lock()
	for i := range slots + 1 {
		if sent, err := dst.send(d, []byte{'0' + byte(i)}); sent != (i < slots) || err != nil {
			t.Errorf("message %d: sent %v, %v", i, sent, err)
		}
	}
	d.mu.Unlock()
	var got []byte
	for i := range slots {
		mem, off := q.sendSlot(i)
		if off != slots*recvSlot+i*rs.DatagramMax || len(mem) != rs.DatagramMax || &mem[0] != &q.mem[off] {
			t.Errorf("slot %d: %d bytes at %d", i, len(mem), off)
		}
		got = append(got, mem[rs.HeaderLen4])
	}
	if slices.Sort(got); string(got) != "012" {
		t.Errorf("the slots have the messages %q", got)
	}
	await(t, func() bool { // they are sent, and free again
		d.mu.Lock()
		defer d.mu.Unlock()
		q.progress(d)
		return len(q.free) == slots
	})
	if slices.Sort(q.free); !slices.Equal(q.free, []int{0, 1, 2}) {
		t.Errorf("the slots %v are free", q.free)
	}
	d.Close()
	dst.forget()
	q.close()
}

// A message that fits a packet of the QP goes there, a longer one by UDP.
func TestW_DS_10_LargestMessageOfTheQP(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	q := must(newDatagramQP(d.hub.Host, ownAddr.Addr(), 1))(t)
	q.mtu = 256
	dst := &dest{to: d.Local(), q: q}
	attr := must((&dest{to: ownAddr, q: q}).path())(t)
	dst.ah = must(q.id.PD().CreateAH(&attr))(t)
	d.mu.Lock()
	for n, free := range map[int]int{257 - rs.HeaderLen4: 1, 256 - rs.HeaderLen4: 0} {
		if sent, err := dst.send(d, make([]byte, n)); !sent || err != nil || len(q.free) != free {
			t.Errorf("%d bytes: sent %v, %v; %d free slots, want %d", n, sent, err, len(q.free), free)
		}
		q.free = []int{0}
	}
	d.mu.Unlock()
	d.Close()
	dst.forget()
	q.close()
}

// The slot of a message that is read takes another one.
func TestSlotOfAMessageThatIsRead(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	q := must(newDatagramQP(d.hub.Host, ownAddr.Addr(), 2))(t)
	ok(t, q.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // each receive is flushed from now on
	var wcs [8]verbs.WC
	flushed := 0
	await(t, func() bool {
		flushed += must(q.cq.Poll(wcs[:]))(t)
		return flushed == 2
	})
	d.mu.Lock()
	d.queue = []datagramMsg{{qp: q, slot: 1}}
	d.mu.Unlock()
	if _, _, err := d.RecvFrom(nil, 0, WaitMode{Nonblock: true}); err != nil {
		t.Error(err)
	}
	await(t, func() bool { return must(q.cq.Poll(wcs[:]))(t) == 1 && wcs[0].WRID == 1 })
	d.Close()
	q.close()
}

// A message at which the program only looks stays.
func TestPeekOfADatagram(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	d.DeliverTwo(ownAddr, "one", "two")
	for i, want := range []string{"one", "one", "two"} {
		b := make([]byte, 10)
		n, from, err := d.RecvFrom(b, []RecvFlags{Peek, 0, 0}[i], WaitMode{Nonblock: true})
		if string(b[:n]) != want || from != ownAddr || err != nil {
			t.Errorf("call %d: %q from %v, %v, want %q", i, b[:n], from, err, want)
		}
	}
	d.Close()
}

// A peer is a stranger until the program sends to it.
func TestStrangersAreThoseNotSentTo(t *testing.T) {
	host := hosted(t)
	d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	peer, other := netip.MustParseAddrPort("127.0.0.1:9"), netip.MustParseAddrPort("127.0.0.1:10")
	q := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	d.mu.Lock()
	d.dests[peer], d.dests[other], d.strangers = &dest{to: peer, q: q}, &dest{to: other, q: q}, 2
	d.mu.Unlock()
	for i := range 2 {
		if i == 1 {
			select {
			case <-d.write.waiter.C: // for the next writer, as there is room
			default:
			}
			q.free = nil
		}
		if n, err := d.SendTo([]byte("x"), peer, WaitMode{}); n != 1 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if d.strangers != 1 || !d.dests[peer].sent || d.dests[other].sent {
			t.Errorf("%d strangers; sent to the peer %v, to the other one %v", d.strangers, d.dests[peer].sent,
				d.dests[other].sent)
		}
		if n := len(d.write.waiter.C); n != 1-i {
			t.Errorf("%d wake-ups of the next writer, want %d", n, 1-i)
		}
	}
	q.free = []int{0}
	d.Close()
	q.close()
}

// Only messages that came by UDP count for the room of those.
func TestRoomOfMessagesByUDP(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	d.mu.Lock()
	d.queue = []datagramMsg{{qp: &datagramQP{gone: true}}, {}, {}}
	d.pooled = 2
	d.mu.Unlock()
	for _, want := range []int{2, 1, 0} {
		if _, _, err := d.RecvFrom(nil, 0, WaitMode{Nonblock: true}); err != nil || d.pooled != want {
			t.Errorf("%d messages by UDP are counted, want %d; %v", d.pooled, want, err)
		}
	}
	d.Close()
}

// An error of the UDP socket, such as an ICMP message, does not end receiving.
func TestErrorsOfTheUDPSocket(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	ok(t, d.UDPConn().SetReadDeadline(time.Unix(1, 0)))
	time.Sleep(20 * time.Millisecond) // it is read meanwhile
	ok(t, d.UDPConn().SetReadDeadline(time.Time{}))
	peer := must(net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(d.Local())))(t)
	defer peer.Close()
	_, err := peer.Write(append(rs.AppendUDPHeader(nil, rs.OpData, 7, ownAddr.Addr()), "hello"...))
	ok(t, err)
	ok(t, d.SetDeadline(time.Now().Add(20*time.Second), true, false))
	b := make([]byte, 10)
	if n, _, err := d.RecvFrom(b, 0, d.Reading()); string(b[:n]) != "hello" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	d.Close()
}

// Close ends the looks at a QP whose device was removed.
func TestDatagramCloseEndsLooks(t *testing.T) {
	host := hosted(t)
	d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
	q := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	d.qps[ownAddr.Addr()] = q
	d.ended.Go(func() { q.look(d) })
	closed := make(chan struct{})
	go func() {
		d.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("Close still waits after 20 s")
	}
}

// The error of a message to a peer without a route is that of the route.
func TestDatagramWithoutARoute(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	peer := netip.MustParseAddrPort("127.0.0.9:9")
	_, want := d.route(peer)
	n, err := d.SendTo([]byte("x"), peer, WaitMode{})
	if n != 0 || want == nil || err == nil || err.Error() != want.Error() {
		t.Errorf("%d bytes, %v, want %v", n, err, want)
	}
	d.Close()
}
