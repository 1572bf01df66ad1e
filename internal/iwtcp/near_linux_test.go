package iwtcp

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// signal is the FPDU of a signal.
func signal(k iwarp.SignalKind, arg uint64) []byte {
	seg := make([]byte, wire.TaggedLen)
	wire.PutTagged(seg, wire.Write, true, uint32(k), arg)
	return wire.AppendFPDU(nil, seg, false)
}

// raw is a peer of a QP that a test plays, the initiator.
type raw struct {
	*net.TCPConn
	t     *testing.T
	q     *QP
	key   uint32
	token uint64
	d     *shm.Duplex
}

// agreed makes a connection both of whose ends have their memory; the peer has switched nothing.
func agreed(t *testing.T, ended func(bool)) *raw {
	t.Helper()
	return agreedOf(t, new(Device), 1, ended)
}

// agreedOf is agreed for a device and a number of the QP.
func agreedOf(t *testing.T, d *Device, num uint32, ended func(bool)) *raw {
	t.Helper()
	q, peer, key := responderOf(t, d, num, ended)
	p := &raw{TCPConn: peer, t: t, q: q, key: key}
	l, err := shm.ListenDuplex()
	if err != nil {
		t.Fatal(err)
	}
	p.token = l.Token
	p.send(signal(iwarp.Offer, l.Token))
	if p.d, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.d.Close)
	until(t, "the QP reads the memory", func() bool {
		ready, _ := p.d.OnEvent()
		return ready
	})
	return p
}

func (p *raw) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// receive reads n bytes of TCP.
func (p *raw) receive(n int) []byte {
	p.t.Helper()
	b := make([]byte, n)
	_ = p.SetReadDeadline(time.Now().Add(20 * time.Second))
	for at := 0; at < n; {
		k, err := p.Read(b[at:])
		if at += k; err != nil {
			p.t.Fatal(err)
		}
	}
	return b
}

// receiveNear reads n bytes of the memory.
func (p *raw) receiveNear(n int) []byte {
	p.t.Helper()
	b, at := make([]byte, n), 0
	until(p.t, "bytes in the memory", func() bool {
		k, err := p.d.Read(nil, b[at:])
		at += k
		return at == n || err != nil && err != unix.EAGAIN
	})
	if at < n {
		p.t.Fatalf("the stream ends after %d bytes of %d", at, n)
	}
	return b
}

// write writes to the memory.
func (p *raw) write(b []byte) {
	p.t.Helper()
	if n, err := p.d.Write([][]byte{b}); n != len(b) || err != nil {
		p.t.Fatalf("%d bytes of %d, %v", n, len(b), err)
	}
	p.d.Flush()
}

// responseLength is the length of the response to a READ of 8 bytes.
func responseLength() int { return wire.FPDULen(wire.TaggedLen + 8) }

// Each direction switches by itself, after its own Switch.
func TestEachDirectionSwitches(t *testing.T) {
	p := agreed(t, func(bool) {})
	p.send(signal(iwarp.Switch, p.token))
	p.write(readRequest(p.key, 8))
	p.receive(responseLength()) // the QP does not know that this side reads its memory
	p.d.Start()
	if s := wire.FPDU(p.receive(wire.FPDULen(wire.TaggedLen))).ULPDU(); wire.Segment(s).STag() != uint32(iwarp.Switch) ||
		wire.Segment(s).TO() != p.token {
		t.Errorf("% x is no Switch", s)
	}
	second := readRequest(p.key, 8)
	wire.PutUntagged(second[wire.LengthLen:], wire.ReadRequest, true, 0, 2, 0)
	p.write(second)
	p.receiveNear(responseLength())
}

// A Switch with a token that was not agreed is ignored, as is a second Offer.
func TestSwitchWithAnotherToken(t *testing.T) {
	p := agreed(t, func(bool) {})
	p.send(signal(iwarp.Switch, p.token+1))
	p.send(signal(iwarp.Offer, p.token+1))
	p.send(readRequest(p.key, 8))
	p.receive(responseLength())
}

// Bytes that come by TCP after a Switch end the connection.
func TestBytesOfTCPAfterASwitch(t *testing.T) {
	ended := make(chan bool, 1)
	p := agreed(t, func(silent bool) { ended <- silent })
	p.send(signal(iwarp.Switch, p.token))
	until(t, "the QP has switched", func() bool {
		p.q.mu.Lock()
		defer p.q.mu.Unlock()
		return p.q.near.in
	})
	p.send([]byte{1})
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection has not ended")
	}
}

// What is in the memory when TCP ends is still received.
func TestMemoryIsReadAfterTheEndOfTCP(t *testing.T) {
	p := agreed(t, func(bool) {})
	p.send(signal(iwarp.Switch, p.token))
	p.write(readRequest(p.key, 8))
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	until(t, "the QP has received the request", func() bool { return p.q.View().Counters.QP.RxReadRequests == 1 })
}

// A peer that closes the socket of wake-ups, or fills it, does not keep the loop busy.
func TestLoopRestsWithoutWakeUps(t *testing.T) {
	for _, closes := range []bool{false, true} {
		p := agreed(t, func(bool) {})
		p.send(signal(iwarp.Switch, p.token))
		p.write(readRequest(p.key, 8))
		until(t, "the QP has received the request", func() bool { return p.q.View().Counters.QP.RxReadRequests == 1 })
		if closes {
			p.d.Close()
		} else {
			for range 1000 {
				p.d.Start()
			}
		}
		p.q.loop.poll(true)
		reaches(t, p.q.loop, parking)
		until(t, "the loop rests", func() bool {
			p.q.loop.turn.Lock()
			defer p.q.loop.turn.Unlock()
			n, err := unix.EpollWait(p.q.loop.ready, p.q.loop.events[:], 0)
			return n == 0 && err == nil && len(p.q.loop.hot) == 0 && p.q.loop.state.Load() == parking
		})
	}
}

// What is in the memory when the program has stopped to poll is received by the goroutine.
func TestMemoryIsReadAfterThePolls(t *testing.T) {
	p := agreed(t, func(bool) {})
	p.send(signal(iwarp.Switch, p.token))
	until(t, "the QP has switched", func() bool { return p.q.nearby.Load() })
	l := p.q.loop
	l.turn.Lock() // as a poller has it
	l.heat(p.q)
	hot := len(l.hot)
	p.write(readRequest(p.key, 8))
	l.turn.Unlock()
	if hot != 1 {
		t.Fatalf("%d QPs are polled", hot)
	}
	until(t, "the QP has received the request", func() bool { return p.q.View().Counters.QP.RxReadRequests == 1 })
}

// A peer that is stopped while its ring is full does not delay the other connections of the device, and receives the
// rest when it continues.
func TestStoppedPeerDelaysNobody(t *testing.T) {
	const size = 4 << 20
	d := new(Device)
	stopped := agreedOf(t, d, 1, func(bool) {})
	other := agreedOf(t, d, 2, func(bool) {})
	for _, p := range []*raw{stopped, other} {
		p.d.Start()
		p.send(signal(iwarp.Switch, p.token))
		p.receive(wire.FPDULen(wire.TaggedLen))
	}
	stopped.write(readRequest(stopped.key, size))
	until(t, "the QP waits for room", func() bool {
		stopped.q.mu.Lock()
		defer stopped.q.mu.Unlock()
		return stopped.q.near.out && stopped.q.near.AwaitRoom()
	})
	for i := range uint32(20) {
		request := readRequest(other.key, 8)
		wire.PutUntagged(request[wire.LengthLen:], wire.ReadRequest, true, 0, i+1, 0)
		other.write(request)
		other.receiveNear(responseLength())
	}
	stopped.receiveNear(size)
}

// A peer that is not on this host has its offer ignored, and so has one whose token nobody has made.
func TestOfferThatLeadsNowhere(t *testing.T) {
	q, peer, key := responder(t, func(bool) {})
	p := &raw{TCPConn: peer, t: t, q: q, key: key}
	p.send(signal(iwarp.Offer, 12345))
	p.send(readRequest(key, 8))
	p.receive(responseLength())
}

// A QP that is reset or destroyed during the handshake leaves nothing behind.
func TestResetDuringTheHandshake(t *testing.T) {
	for range 10 {
		q, peer, _ := responder(t, func(bool) {})
		l, err := shm.ListenDuplex()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Write(signal(iwarp.Offer, l.Token)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if d, err := l.Accept(); err == nil {
				d.Close()
			}
		}()
		q.Reset()
		until(t, "the handshake has ended", func() bool { return len(handshakes) == 0 })
		l.Close()
		<-done
		q.mu.Lock()
		if q.near.Duplex != nil {
			t.Error("a QP without a connection has memory")
		}
		q.mu.Unlock()
	}
}
