package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

var (
	fuzzHere  = netip.MustParseAddr("198.18.0.1")
	fuzzThere = netip.MustParseAddr("198.18.0.2")
)

const fuzzPort = 7471

// request is the REQ of a peer's connection number n.
func request(n uint32) umad.MAD {
	mad := make(umad.MAD, umad.Size)
	m := cmmsg.Make(mad, cmmsg.KindREQ, uint64(n))
	p := cmmsg.PathFields{LocalGID: cmmsg.GID(fuzzThere), RemoteGID: cmmsg.GID(fuzzHere), HopLimit: 64, AckTimeout: 17}
	cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
		LocalID: n, ServiceID: PSTCP.service(fuzzPort), LocalGUID: 0x2222, LocalQPN: n&0x7FFFFF<<1 | 1, RemoteTimeout: 20,
		LocalTimeout: 20, MaxRetries: 15,
		PKey: 0xFFFF, MTU: 3, RetryCount: 7, RNRRetry: 7, Primary: p,
	})
	m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(fuzzThere, 4000), fuzzHere))
	return mad
}

// target is a device with a listener, for datagrams made by the test.
type target struct {
	tb testing.TB
	h  *Host
	d  *device
	ch *EventChannel
	l  *ID
}

func newTarget(tb testing.TB, backlog int) *target {
	tb.Helper()
	ok := FatalOn(tb)
	t := &target{tb: tb, h: memoryHost(tb)}
	var err error
	t.ch, err = t.h.CreateEventChannel()
	ok(err)
	t.l, err = t.h.CreateID(t.ch, PSTCP, nil)
	ok(err)
	ok(t.l.BindAddr(netip.AddrPortFrom(fuzzHere, fuzzPort)))
	ok(t.l.Listen(backlog))
	t.d = t.l.dev
	return t
}

func (t *target) give(mad umad.MAD) {
	t.d.cm.receive(&umad.Received{MAD: mad, From: umad.Address{Local: fuzzHere, Remote: fuzzThere}})
}

// close ends everything; nothing may be left.
func (t *target) close() {
	t.tb.Helper()
	if err := t.ch.Close(); err != nil {
		t.tb.Fatal(err)
	}
	if err := t.h.Close(); err != nil {
		t.tb.Fatal(err)
	}
}

// FuzzEvents passes datagrams to a program that accepts, refuses, disconnects and closes according to its bytes. Each
// datagram is a message of 256 bytes with some bytes changed: many are nearly right.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{1, 0, 0, 2, 0, 0, 3, 17, 4})
	f.Add([]byte{1, 0, 0, 4, 1, 9, 1, 0, 0, 0x14, 30, 7, 0xFF})
	f.Fuzz(func(tt *testing.T, program []byte) {
		t := newTarget(tt, 4)
		var ids []*ID
		for n := uint32(1); len(program) >= 3 && n < 64; n++ {
			do, at, value := program[0], int(program[1]), program[2]
			program = program[3:]
			mad := request(n & 7)
			if do&1 == 0 {
				mad[17] = 0x10 + value&0xF // another attribute: REP, RTU, DREQ, ...
				if len(ids) > 0 && ids[0].cmid != nil {
					cmmsg.REJ(cmmsg.Msg(mad).Data()).Put(n&7, ids[0].cmid.LocalID(), cmmsg.About(value&3), cmmsg.Reason(value), nil)
				}
			} else {
				mad[wire.MADHeaderLen+at%232] ^= value
			}
			t.give(mad)
			ev, err := t.ch.TryGetEvent()
			if err != nil {
				continue
			}
			id := ev.ID
			switch do >> 1 & 3 {
			case 0:
				if id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1,
					MaxRecvSGE: 1}}) == nil {
					_ = id.Accept(context.Background(), nil)
				}
			case 1:
				_ = id.Reject([]byte{value})
			case 2:
				_ = id.Disconnect(context.Background())
			}
			_ = ev.Ack()
			ids = append(ids, id)
		}
		t.close()
	})
}

// A flood of requests is bounded by the backlog, and established connections work on.
func TestFloodOfRequests(tt *testing.T) {
	const backlog, flood = 16, 20000
	t := newTarget(tt, backlog)
	defer t.close()
	t.give(request(1))
	ev, err := t.ch.TryGetEvent()
	if err != nil {
		tt.Fatal(err)
	}
	first := ev.ID
	if err := first.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1,
		MaxRecvSGE: 1}}); err != nil {
		tt.Fatal(err)
	}
	if err := first.Accept(context.Background(), nil); err != nil {
		tt.Fatal(err)
	}
	_ = ev.Ack()
	for n := range uint32(flood) {
		t.give(request(100 + n))
	}
	rtu := make(umad.MAD, umad.Size)
	cmmsg.RTU(cmmsg.Make(rtu, cmmsg.KindRTU, 1).Data()).Put(1, first.cmid.LocalID())
	t.give(rtu)
	c := t.h.Counters(first.Verbs())
	if live := t.d.cm.live(); c.CM.BacklogFull != flood-backlog || live != backlog+1 {
		tt.Errorf("%d connections are there; %+v", live, c.CM)
	}
	requests, established := 0, false
	for {
		ev, err := t.ch.TryGetEvent()
		if err != nil {
			break
		}
		requests++
		if ev.Type == EventEstablished {
			established = ev.ID == first
			requests--
		}
		_ = ev.Ack()
	}
	if requests != backlog || !established {
		tt.Errorf("%d requests were told, established %v", requests, established)
	}
}

// Datagrams that are malformed, replayed, or from another address are counted and change nothing.
func TestBadDatagramsAreCounted(tt *testing.T) {
	t := newTarget(tt, 8)
	defer t.close()
	t.give(request(1))
	ev, err := t.ch.TryGetEvent()
	if err != nil {
		tt.Fatal(err)
	}
	id := ev.ID
	cut := request(2)
	t.give(cut[:200]) // truncated: the agent's handler gets whole MADs only, but must not rely on it
	method := request(3)
	method[3] = 0x81
	t.give(method)
	t.give(request(1)) // replayed
	drep := make(umad.MAD, umad.Size)
	cmmsg.REJ(cmmsg.Make(drep, cmmsg.KindREJ, 1).Data()).Put(1, id.cmid.LocalID(), cmmsg.AboutOther, cmmsg.RejConsumer,
		nil)
	// spoofed
	t.d.cm.receive(&umad.Received{MAD: drep, From: umad.Address{Local: fuzzHere,
		Remote: netip.MustParseAddr("198.18.0.66")}})
	c := t.h.Counters(id.Verbs()).CM
	if c.RxMalformed != 2 || c.RxSpoofed != 1 || c.RxDuplicates.Of(cmmsg.KindREQ) != 1 {
		tt.Errorf("%+v", c)
	}
	if _, err := t.ch.TryGetEvent(); err == nil {
		tt.Error("an event came of it")
	}
	_ = ev.Ack()
	if err := id.Close(); err != nil {
		tt.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := t.ch.GetEvent(ctx); !errors.Is(err, context.DeadlineExceeded) {
		tt.Error(err)
	}
}

// The program may look at the private data of a request after the device has reused the datagram's memory.
func TestPrivateDataOutlivesItsDatagram(tt *testing.T) {
	t := newTarget(tt, 8)
	defer t.close()
	mad := request(1)
	m := cmmsg.Msg(mad)
	m.SetPrivate(append(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(fuzzThere, 4000), fuzzHere), "hello"...))
	t.give(mad)
	clear(mad)
	ev, err := t.ch.TryGetEvent()
	if err != nil {
		tt.Fatal(err)
	}
	if got := string(ev.Conn.PrivateData[:5]); got != "hello" {
		tt.Errorf("the private data is %q, want %q", got, "hello")
	}
	_ = ev.Ack()
}

// A request for a listener that has ended just now leaves nothing.
func TestRequestAfterTheEndOfItsListener(tt *testing.T) {
	t := newTarget(tt, 8)
	defer t.close()
	setState := func(s state) {
		t.l.mu.Lock()
		defer t.l.mu.Unlock()
		t.l.state = s
	}
	setState(stAddrBound)
	t.give(request(1))
	setState(stListen)
	t.l.mu.Lock()
	giveBack(t.l.unlisten())
	if ended := t.l.unlisten(); len(ended) != 0 {
		tt.Errorf("%d listeners have ended twice", len(ended))
	}
	t.l.mu.Unlock()
	if _, err := t.ch.TryGetEvent(); err == nil {
		tt.Error("an event came of it")
	}
	if live := t.d.cm.live(); live != 0 {
		tt.Errorf("%d connections are left", live)
	}
}
