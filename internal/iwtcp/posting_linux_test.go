package iwtcp

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// Requests are posted in RTS, and flushed in ERR. Elsewhere they are refused.
func TestPostingByState(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	if err := e.post(transport.OpSend, 8, nil); !errors.Is(err, transport.ErrState) {
		t.Errorf("in INIT: %v", err)
	}
	e.mu.Lock()
	e.drive() // as for a request that was posted just before a reset
	e.mu.Unlock()
	for i := range uint64(2) {
		if err := e.RQ.Post(i, []transport.SGE{e.sge(8)}); err != nil {
			t.Fatal(err)
		}
	}
	e.PostedRecv()
	startWith(t, e.QP, iwarp.Params{}, func(bool) {})
	if err := e.post(transport.OpSend, 8, nil); err != nil {
		t.Errorf("in RTS: %v", err)
	}
	e.PostedRecv()
	if n := len(e.recv.statuses()); n != 0 {
		t.Errorf("%d receives are flushed in RTS", n)
	}
	e.Fail()
	if err := e.post(transport.OpSend, 8, nil); err != nil {
		t.Errorf("in ERR: %v", err)
	}
	e.send.expect(t, transport.WRFlushErr, transport.WRFlushErr)
	if err := e.RQ.Post(3, []transport.SGE{e.sge(8)}); err != nil {
		t.Fatal(err)
	}
	e.PostedRecv()
	const flushed = transport.WRFlushErr
	e.send.expect(t, flushed, flushed)
	e.recv.expect(t, flushed, flushed, flushed)
	if !slices.Equal(e.send.moves, []transport.State{transport.RTS}) {
		t.Errorf("the move by the program is reported: %v", e.send.moves)
	}
	e.Reset()
	if err := e.post(transport.OpSend, 8, nil); !errors.Is(err, transport.ErrState) {
		t.Errorf("in RESET: %v", err)
	}
	e.PostedRecv()
}

// A reset ends the connection, drops requests and completions, and forgets the addresses. The next connection reports
// its moves.
func TestResetOfAConnectedQP(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	peer := startWith(t, e.QP, iwarp.Params{}, func(bool) {})
	if v := e.View(); v.Local != plain(peer.RemoteAddr()) || v.Remote != plain(peer.LocalAddr()) ||
		v.State != transport.RTS || v.QP != e.QP {
		t.Errorf("%+v", v)
	}
	if err := e.post(transport.OpSend, 8, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.RQ.Post(1, []transport.SGE{e.sge(8)}); err != nil {
		t.Fatal(err)
	}
	purged := e.send.purged + e.recv.purged
	e.Reset()
	if e.eof || e.shut || e.room || e.deaf || e.silent || e.fd >= 0 {
		t.Errorf("the QP knows of its connection: %v %v %v %v %v %d", e.eof, e.shut, e.room, e.deaf, e.silent, e.fd)
	}
	ended(t, peer)
	if v := e.View(); v.Local.IsValid() || v.Remote.IsValid() || v.State != transport.Reset {
		t.Errorf("after the reset: %+v", v)
	}
	if free, posted := e.SQ.Free(), e.RQ.Posted(); free != e.SQ.Cap() || posted != 0 {
		t.Errorf("%d of %d places are free, %d receives are posted", free, e.SQ.Cap(), posted)
	}
	if n := e.send.purged + e.recv.purged; n != purged+2 {
		t.Errorf("completions were dropped %d times, want 2", n-purged)
	}
	e.Fail() // from RESET
	e.Reset()
	if err := e.Init(0); err != nil {
		t.Fatal(err)
	}
	peer = startWith(t, e.QP, iwarp.Params{}, func(bool) {})
	_ = peer.Close()
	until(t, "ERR", func() bool { return e.State() == transport.Err })
	e.mu.Lock()
	e.mu.Unlock() //nolint:staticcheck // it waits for the upcall
	const rts, failed = transport.RTS, transport.Err
	if !slices.Equal(e.send.moves, []transport.State{rts, rts, failed}) {
		t.Errorf("moves %v", e.send.moves)
	}
}

// unmapped maps memory, registers it and unmaps it.
func unmapped(t *testing.T, e *end, n int) *mr.Region {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	r := &mr.Region{PD: 1, Access: mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite, Buf: b}
	if err := e.Regions.Add(r); err != nil {
		t.Fatal(err)
	}
	// The range stays reserved, so that no other mapping takes it.
	if err := unix.Mprotect(b, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return r
}

// Memory that the program has unmapped fails the request that names it, at either end, and no other thing.
func TestUnmappedMemory(t *testing.T) {
	const n = 64 << 10
	a, b := pair(t, n)
	gone := unmapped(t, a, n)
	err := a.PostSend(func(sq *transport.SendQueue) error {
		w := sq.Next()
		*w = transport.SendWQE{Op: transport.OpWrite, Flags: transport.Signaled, Length: n, RKey: b.reg.RKey,
			SGEs: append(w.SGEs[:0], transport.SGE{Length: n, LKey: gone.LKey})}
		sq.Commit()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a.send.expect(t, transport.WRFlushErr)

	a, b = pair(t, n)
	stayWithTCP(a, b)
	b.reg = unmapped(t, b, n)
	if err := a.post(transport.OpWrite, n, b); err != nil {
		t.Fatal(err)
	}
	until(t, "both ends fail", func() bool { return a.State() == transport.Err && b.State() == transport.Err })
	if tx := b.View().Counters.QP.TxTerminates; tx != 1 {
		t.Errorf("%d Terminates", tx)
	}
}

// stayWithTCP keeps a pair from shared memory.
func stayWithTCP(all ...*end) {
	for _, e := range all {
		e.mu.Lock()
		e.near.asked = true
		e.mu.Unlock()
	}
}

// The bytes of a message are those of the sender, whatever its length, and each end has counted the same bytes.
func TestMessagesOfAPair(t *testing.T) {
	for _, near := range []bool{false, true} {
		a, b := pair(t, 3<<20)
		if !near {
			stayWithTCP(a, b)
		}
		exchange(t, a, b)
		a.Memory.Lock()
		tx, rx := a.View().Counters, b.View().Counters
		a.Memory.Unlock()
		if tx.TxBytes != rx.RxBytes && !near {
			t.Errorf("%d bytes were sent, %d received", tx.TxBytes, rx.RxBytes)
		}
	}
}

func exchange(t *testing.T, a, b *end) {
	t.Helper()
	size := len(a.mem)
	var want []transport.Status
	for i, n := range []int{8, 4095, 4 << 10, 100_000, size, 1} {
		for j := range n {
			a.mem[j] = byte(i + j%251)
		}
		if err := a.post(transport.OpWrite, n, b); err != nil {
			t.Fatal(err)
		}
		clear(b.mem[:1])
		want = append(want, transport.Success)
		a.send.expect(t, want...)
		if err := b.RQ.Post(1, []transport.SGE{b.sge(size)}); err != nil {
			t.Fatal(err)
		}
		if err := a.post(transport.OpSend, n, nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, transport.Success)
		a.send.expect(t, want...)
		b.recv.expect(t, want[:i+1]...)
		if !bytes.Equal(a.mem[:n], b.mem[:n]) {
			t.Errorf("%d bytes: others came", n)
		}
	}
}

// A stream that takes nothing any more is still read, because the peer may have sent a Terminate. It is cut if it does
// not end soon.
func TestWriteToAStreamThatIsLost(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	reported := make(chan bool, 1)
	peer := startWith(t, e.QP, iwarp.Params{Initiator: true}, func(silent bool) { reported <- silent })
	e.loop.turn.Lock() // nobody receives
	if err := peer.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = peer.Close()
	until(t, "the reset of TCP", func() bool {
		info, err := unix.GetsockoptTCPInfo(e.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err == nil && info.State == 7 // TCP_CLOSE
	})
	if err := e.post(transport.OpSend, 8, nil); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	if !e.shut || e.timer == nil || e.State() != transport.RTS {
		t.Errorf("shut %v, timer %v, state %v", e.shut, e.timer, e.State())
	}
	e.mu.Unlock()
	e.loop.turn.Unlock()
	if <-reported {
		t.Error("a peer that cuts the connection counts as one that does not answer")
	}
	e.send.expect(t, transport.WRFlushErr)
}

// The payload of a long segment goes to the memory that it is for, and what follows it is received too. Memory that the
// program has unmapped ends the connection.
func TestPayloadBehindItsHeader(t *testing.T) {
	const n = 2 * directMin
	for _, mapped := range []bool{true, false} {
		e := newEnd(t, new(Device), 1, n)
		reg := e.reg
		if !mapped {
			reg = unmapped(t, e, n)
		}
		p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{IRD: 1}, func(bool) {}), t: t}
		seg := make([]byte, wire.TaggedLen+n)
		for i := range n {
			seg[wire.TaggedLen+i] = byte(i % 251)
		}
		wire.PutTagged(seg, wire.Write, true, reg.RKey, 0)
		b := wire.AppendFPDU(nil, seg, false)
		const header = wire.LengthLen + wire.TaggedLen
		p.send(b[:header])
		until(t, "the header is received", func() bool { return e.View().Counters.RxBytes == header })
		e.loop.turn.Lock()
		e.onEvent(e.loop.buf, e.fd, true) // there is nothing to read
		e.loop.turn.Unlock()
		p.send(append(b[header:], readRequest(e.reg.RKey, 8)...))
		if mapped {
			p.receive(responseLength())
			e.Memory.Lock()
			if !bytes.Equal(e.mem, seg[wire.TaggedLen:]) {
				t.Error("other bytes are in the memory")
			}
			e.Memory.Unlock()
			continue
		}
		until(t, "ERR", func() bool { return e.State() == transport.Err })
		if c := e.View().Counters.QP; c.TxTerminates != 1 || c.RxReadRequests != 0 {
			t.Errorf("%+v", c)
		}
	}
}
