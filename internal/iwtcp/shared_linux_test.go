package iwtcp

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/transport"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// moveToMemory has a pair send until both directions go through memory.
func moveToMemory(t *testing.T, a, b *end) {
	t.Helper()
	if err := a.post(transport.OpWrite, offerAfter, b); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*end{a, b} {
		until(t, "both directions go through memory", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.near.in && e.near.out
		})
	}
	a.send.expect(t, transport.Success)
}

// A pair of one host goes over to shared memory, and its operations move the same bytes there. What goes through memory
// counts as packets and bytes of the stream.
func TestPairThroughMemory(t *testing.T) {
	const size = 3 << 20
	a, b := pair(t, size)
	moveToMemory(t, a, b)
	before := [2]Counters{a.View().Counters, b.View().Counters}
	for i := range size {
		a.mem[i] = byte(i % 251)
	}
	if err := a.post(transport.OpWrite, size, b); err != nil {
		t.Fatal(err)
	}
	a.send.expect(t, transport.Success, transport.Success)
	until(t, "the bytes are there", func() bool { return b.View().Counters.RxBytes >= before[1].RxBytes+size })
	b.Memory.Lock()
	same := bytes.Equal(a.mem, b.mem)
	b.Memory.Unlock()
	if !same {
		t.Error("a WRITE wrote other bytes")
	}
	clear(a.mem)
	if err := a.post(transport.OpRead, size, b); err != nil {
		t.Fatal(err)
	}
	a.send.expect(t, transport.Success, transport.Success, transport.Success)
	if !bytes.Equal(a.mem, b.mem) {
		t.Error("a READ read other bytes")
	}
	for i, e := range []*end{a, b} {
		c, old := e.View().Counters, before[i]
		if c.ShmTxPackets <= old.ShmTxPackets || c.ShmRxPackets <= old.ShmRxPackets || c.TxBytes-old.TxBytes < size ||
			c.RxBytes-old.RxBytes < size || c.TxPackets-old.TxPackets < c.ShmTxPackets-old.ShmTxPackets ||
			c.RxPackets-old.RxPackets < c.ShmRxPackets-old.ShmRxPackets || c.RetransmitPackets > c.TxPackets {
			t.Errorf("end %d: %+v, before %+v", i, c, old)
		}
	}
	e := a.View().Counters
	if a.Fail(); a.View().Counters.ShmTxPackets != e.ShmTxPackets || a.View().Counters.TxBytes < e.TxBytes {
		t.Errorf("%+v after the end, %+v before", a.View().Counters, e)
	}
}

// An initiator makes an offer when 16 KiB have gone over TCP in both directions, once. A responder makes none.
func TestWhenAnOfferIsMade(t *testing.T) {
	for _, c := range []struct {
		initiator bool
		sent, got uint64
		offers    bool
	}{
		{true, 8 << 10, 8<<10 - 1, false},
		{true, 8 << 10, 8 << 10, true},
		{true, 0, 20 << 10, true},
		{false, 8 << 10, 8 << 10, false},
	} {
		e := newEnd(t, new(Device), 1, 8)
		p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{Initiator: c.initiator}, func(bool) {}), t: t}
		e.mu.Lock()
		e.trace.sent, e.trace.got = c.sent, c.got
		e.offerNear()
		e.offerNear()
		if e.near.asked != c.offers {
			t.Errorf("%+v: asked %v", c, e.near.asked)
		}
		e.mu.Unlock()
		if c.offers {
			b := p.receive(empty)
			s := wire.Segment(wire.FPDU(b).ULPDU())
			if s.STag() != uint32(iwarp.Offer) {
				t.Errorf("% x is no offer", b)
			}
			d, err := shm.DialDuplex(s.TO())
			if err != nil {
				t.Fatal(err)
			}
			d.Start()
			p.receive(empty) // Switch
			d.Close()
		}
		e.Fail()
		until(t, "the handshake has ended", func() bool { return len(handshakes) == 0 })
	}
}

// An offer that is to be made when the connection has ended, or the QP has another one, is not.
func TestOfferOfAnEndedConnection(t *testing.T) {
	slow(t, time.Hour)
	e := newEnd(t, new(Device), 1, 8)
	p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{Initiator: true}, func(bool) {}), t: t}
	if e.signalOffer(new(iwarp.QP), 1) {
		t.Error("an offer of another connection")
	}
	if !e.signalOffer(e.m, 7) {
		t.Error("no offer")
	}
	if s := wire.Segment(wire.FPDU(p.receive(empty)).ULPDU()); s.STag() != uint32(iwarp.Offer) || s.TO() != 7 {
		t.Errorf("% x is no offer", []byte(s))
	}
	e.Disconnect()
	_ = p.CloseWrite()
	until(t, "ERR", func() bool { return e.State() == transport.Err })
	if e.signalOffer(e.m, 1) {
		t.Error("an offer in ERR")
	}
}

// An initiator ignores offers, and a responder does not offer.
func TestOfferToAnInitiator(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{Initiator: true, IRD: 1}, func(bool) {}), t: t}
	p.send(signal(iwarp.Offer, 1))
	p.send(readRequest(e.reg.RKey, 8))
	p.receive(responseLength())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.near.asked {
		t.Error("the offer was answered")
	}
}

// A responder answers one offer.
func TestSecondOffer(t *testing.T) {
	q, peer, _ := responder(t, func(bool) {})
	p := &raw{TCPConn: peer, t: t, q: q}
	p.send(signal(iwarp.Offer, 1))
	until(t, "the answer has ended", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.near.asked && len(handshakes) == 0
	})
}

// Memory that comes when the connection has ended, or the QP has another one, is freed.
func TestMemoryOfAnEndedConnection(t *testing.T) {
	q, peer, _ := responder(t, func(bool) {})
	q.mu.Lock()
	m := q.m
	q.mu.Unlock()
	install := func(m *iwarp.QP) (gone bool) {
		l, err := shm.ListenDuplex()
		if err != nil {
			t.Fatal(err)
		}
		dialed := make(chan *shm.Duplex)
		go func() {
			d, err := shm.DialDuplex(l.Token)
			if err != nil {
				t.Error(err)
			}
			dialed <- d
		}()
		d, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		far := <-dialed
		t.Cleanup(far.Close)
		q.install(m, d, l.Token)
		_, gone = far.OnEvent()
		if q.mu.Lock(); gone != (q.near.Duplex == nil) {
			t.Errorf("the memory is freed: %v, the QP has it: %v", gone, !gone)
		}
		q.mu.Unlock()
		return gone
	}
	if !install(new(iwarp.QP)) {
		t.Error("the memory of another connection")
	}
	watched := func() int {
		q.loop.mu.Lock()
		defer q.loop.mu.Unlock()
		return len(q.loop.qps)
	}
	if install(m) || watched() != 2 {
		t.Errorf("a connection does not get its memory, or its socket is not watched: %d", watched())
	}
	_ = peer.CloseWrite()
	until(t, "ERR", func() bool { return q.State() == transport.Err })
	q.mu.Lock()
	if q.near.Duplex != nil || !q.near.asked || q.nearby.Load() {
		t.Errorf("after the end: %+v", q.near)
	}
	q.mu.Unlock()
	if !install(m) || watched() != 0 {
		t.Errorf("memory after the end; %d sockets are watched", watched())
	}
}

// The end of a connection closes its memory.
func TestEndClosesTheMemory(t *testing.T) {
	p := agreed(t, func(bool) {})
	p.send(signal(iwarp.Switch, p.token))
	until(t, "the QP has switched", func() bool { return p.q.nearby.Load() })
	p.q.Fail()
	if _, gone := p.d.OnEvent(); !gone || p.q.nearby.Load() {
		t.Errorf("the memory is closed: %v, it is read: %v", gone, p.q.nearby.Load())
	}
}

// Handshakes are with peers of this host only, and a bounded number at a time.
func TestWhichHandshakesRun(t *testing.T) {
	ran := make(chan bool, 1)
	run := func() { ran <- true }
	idle := func() { until(t, "no handshake runs", func() bool { return len(handshakes) == 0 }) }
	handshake(netip.MustParseAddr("192.0.2.1"), run)
	idle()
	local := netip.MustParseAddr("127.0.0.1")
	for range maxHandshakes {
		handshakes <- struct{}{}
	}
	handshake(local, run)
	for range maxHandshakes {
		<-handshakes
	}
	idle()
	if len(ran) != 0 {
		t.Error("a handshake with another host, or one too many")
	}
	if handshake(local, run); !<-ran {
		t.Error("no handshake")
	}
}

// The direction switches after the last byte of a Switch, not within.
func TestSwitchIsSentWhole(t *testing.T) {
	slow(t, time.Hour)
	e := newEnd(t, new(Device), 1, 8)
	startWith(t, e.QP, iwarp.Params{Initiator: true}, func(bool) {})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.m.Signal(iwarp.Signal{Kind: iwarp.Switch, Arg: 1})
	v := e.m.Vectors(nil)
	for i := range empty {
		if e.switchOut(); e.near.out {
			t.Fatalf("the direction has switched after %d bytes of %d", i, empty)
		}
		e.m.Written(1)
	}
	if e.switchOut(); !e.near.out || len(v) == 0 {
		t.Error("the direction has not switched")
	}
	e.near.out = false
}

// firstOf cuts vectors where a Switch ends.
func TestFirstBytesOfVectors(t *testing.T) {
	v := [][]byte{{1, 2}, {}, {3, 4, 5}}
	for n, want := range [][][]byte{nil, {{1}}, {{1, 2}}, {{1, 2}, {3}}, {{1, 2}, {3, 4}}, {{1, 2}, {3, 4, 5}},
		{{1, 2}, {3, 4, 5}}} {
		if got := firstOf(v, uint64(n)); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%d bytes: %v, want %v", n, got, want)
		}
	}
}

// A peer that sends by TCP after its Switch breaks the protocol. One that ends TCP has the rest of its memory read
// first.
func TestTCPAfterASwitch(t *testing.T) {
	for _, c := range []struct {
		ends func(p *raw)
		err  error
	}{
		{func(p *raw) { p.send([]byte{1}) }, unix.EPROTO},
		{func(p *raw) { _ = p.CloseWrite() }, nil},
		{func(p *raw) { _ = p.SetLinger(0); _ = p.Close() }, unix.ECONNRESET},
	} {
		d, _ := still(t)
		p := stillRaw(t, d, 1)
		p.ask(1)
		c.ends(p)
		until(t, "an event of TCP", func() bool {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(p.q.fd), Events: unix.POLLIN}}, 0)
			return n == 1
		})
		q := p.q
		q.mu.Lock()
		q.onNear(-1, true)
		q.onNear(q.fd, false)
		if q.near.over {
			t.Error("an event of no socket ends TCP")
		}
		q.onNear(q.fd, true)
		if !q.near.over || q.near.err != c.err {
			t.Errorf("over %v, %v, want %v", q.near.over, q.near.err, c.err)
		}
		q.onNear(q.fd, true)
		buf := make([]byte, 1024)
		if n, err := q.read(nil, buf); n == 0 || err != nil {
			t.Errorf("%d bytes of the memory, %v", n, err)
		}
		if n, err := q.read(nil, buf); n != 0 || err != c.err {
			t.Errorf("%d bytes after the memory, %v, want %v", n, err, c.err)
		}
		q.mu.Unlock()
	}
}

// A tap sees what goes through memory, in pieces of at most 16 KiB that follow each other.
func TestTapSeesMemory(t *testing.T) {
	const size = 100_000
	for _, near := range []bool{false, true} {
		a, b := pair(t, size)
		want := []transport.Status{transport.Success}
		if near {
			moveToMemory(t, a, b)
			want = append(want, transport.Success)
		} else {
			stayWithTCP(a, b)
		}
		r := &recorder{}
		a.dev.SetTaps([]Tap{r})
		for i := range size {
			a.mem[i] = byte(i % 253)
		}
		v := a.View().Counters
		if err := a.post(transport.OpWrite, size, b); err != nil {
			t.Fatal(err)
		}
		a.send.expect(t, want...)
		sent := a.View().Counters.TxBytes - v.TxBytes
		until(t, "the other end has them", func() bool { return b.View().Counters.RxBytes >= v.TxBytes+sent })
		a.dev.SetTaps(nil)
		r.mu.Lock()
		for _, dir := range []bool{true, false} {
			var all []byte
			next := uint32(0)
			for _, g := range r.all {
				if g.Sent != dir || g.QPN != map[bool]uint32{true: 1, false: 2}[dir] || g.Flags&pcap.FlagPSH == 0 {
					continue
				}
				if len(all) > 0 && g.Seq != next || len(g.Data) > pcap.MaxSegment || len(g.Data) == 0 {
					t.Errorf("near %v, sent %v: %d bytes at %d, want at %d", near, dir, len(g.Data), g.Seq, next)
				}
				next = g.Seq + uint32(len(g.Data))
				all = append(all, g.Data...)
			}
			if uint64(len(all)) < sent || !bytes.Contains(all, a.mem[:1000]) {
				t.Errorf("near %v, sent %v: %d bytes of %d were seen", near, dir, len(all), sent)
			}
		}
		r.mu.Unlock()
	}
}

// A tap sees how the peer ends its direction.
func TestTapSeesTheEnd(t *testing.T) {
	for _, flag := range []uint8{pcap.FlagFIN, pcap.FlagRST} {
		d, r := new(Device), &recorder{}
		d.SetTaps([]Tap{r})
		q, peer, key := responderOf(t, d, 1, func(bool) {})
		p := &raw{TCPConn: peer, t: t, q: q}
		request := readRequest(key, 8)
		p.send(request)
		p.receive(responseLength())
		if flag == pcap.FlagRST {
			_ = peer.SetLinger(0)
		}
		_ = peer.Close()
		until(t, "the end of both directions", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			n := 0
			for _, g := range r.all {
				if g.Flags&(pcap.FlagFIN|pcap.FlagRST) != 0 {
					n++
				}
			}
			return n == 2
		})
		r.mu.Lock()
		got, sent := uint32(1+len(request)), uint32(1+responseLength())
		for _, g := range r.all[len(r.all)-2:] {
			want := pcap.Segment{Sent: g.Sent, Flags: flag | pcap.FlagACK, Seq: got, Ack: sent}
			if g.Sent {
				want.Flags, want.Seq, want.Ack = pcap.FlagFIN|pcap.FlagACK, sent, got
			}
			if g.Flags != want.Flags || g.Seq != want.Seq || g.Ack != want.Ack || len(g.Data) != 0 {
				t.Errorf("%+v, want %+v", g, want)
			}
		}
		if a, b := r.all[len(r.all)-2].Sent, r.all[len(r.all)-1].Sent; a || !b {
			t.Errorf("the order of the ends: sent %v, %v", a, b)
		}
		r.mu.Unlock()
	}
}
