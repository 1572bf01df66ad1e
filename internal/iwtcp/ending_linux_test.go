package iwtcp

import (
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// sinkCQ is a CQ that drops completions, and the receiver of upcalls that drops these.
type sinkCQ struct{}

func (sinkCQ) Push(*transport.CQE)          {}
func (sinkCQ) Broken() bool                 { return false }
func (sinkCQ) PurgeNum(uint32)              {}
func (sinkCQ) Event(transport.Event)        {}
func (sinkCQ) StateChanged(transport.State) {}

// responder is a QP with a region of 4 MB, connected to a bare socket that has the smallest buffers.
func responder(t *testing.T, ended func(silent bool)) (q *QP, peer *net.TCPConn, key uint32) {
	t.Helper()
	return responderOf(t, new(Device), 1, ended)
}

// responderOf is responder for a device and a number.
func responderOf(t *testing.T, d *Device, num uint32, ended func(bool)) (q *QP, peer *net.TCPConn, key uint32) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	regions := mr.NewTable(10, mr.Counted())
	r := &mr.Region{PD: 1, Access: mr.LocalWrite | mr.RemoteRead, Buf: make([]byte, 4<<20)}
	ok(regions.Add(r))
	q, err := d.NewQP(Config{Num: num, PD: 1, SQ: transport.NewSendQueue(4, 1, 0),
		RQ: transport.NewRecvQueue(4, 1, false, 1), SendCQ: sinkCQ{}, RecvCQ: sinkCQ{}, Regions: regions,
		Memory: new(sync.RWMutex), Up: sinkCQ{}})
	ok(err)
	t.Cleanup(q.Destroy)
	ok(q.Init(mr.RemoteRead))
	return q, startResponder(t, q, ended), r.RKey
}

// startResponder connects a QP in INIT to a bare socket that has the smallest buffers.
func startResponder(t *testing.T, q *QP, ended func(silent bool)) (peer *net.TCPConn) {
	t.Helper()
	return startWith(t, q, iwarp.Params{IRD: 1, ORD: 1}, ended)
}

// startWith is startResponder for any parameters.
func startWith(t *testing.T, q *QP, p iwarp.Params, ended func(silent bool)) (peer *net.TCPConn) {
	t.Helper()
	peer, own := connection(t)
	if err := own.SetWriteBuffer(1); err != nil {
		t.Fatal(err)
	}
	if err := q.Start(&Conn{tcp: own, Params: p}, ended); err != nil {
		t.Fatal(err)
	}
	return peer
}

// connection is a connection of TCP. The peer has the smallest buffer.
func connection(t *testing.T) (peer, own *net.TCPConn) {
	t.Helper()
	peer, own = accepted(t)
	_ = peer.SetReadBuffer(1)
	return peer, own
}

// readRequest is the FPDU of a READ of n bytes from the beginning of a region.
func readRequest(key uint32, n uint32) []byte {
	seg := make([]byte, wire.UntaggedLen+wire.ReadRequestLen)
	wire.PutUntagged(seg, wire.ReadRequest, true, 0, 1, 0)
	d := wire.Read{SinkSTag: 1, Size: n, SrcSTag: key}
	d.Put(seg[wire.UntaggedLen:])
	return wire.AppendFPDU(nil, seg, false)
}

// A peer that ends its direction, and does not read why the stream ends, does not keep the loop busy.
func TestLoopRestsWhileATerminateWaits(t *testing.T) {
	q, peer, key := responder(t, func(bool) {})
	send := func(b []byte) {
		t.Helper()
		if _, err := peer.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	send(readRequest(key, 4<<20))
	until(t, "the socket is full", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.room
	})
	send([]byte{0, 1, 0, 0}) // the length of no ULPDU
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	until(t, "the Terminate waits", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.eof && !q.shut && q.fd >= 0
	})
	until(t, "no socket is ready", func() bool {
		q.loop.turn.Lock()
		defer q.loop.turn.Unlock()
		n, err := unix.EpollWait(q.loop.ready, q.loop.events[:], 0)
		return n == 0 && err == nil
	})
}

// A peer that does not close its side after Disconnect has not answered. One that closes it has.
func TestEndOfADisconnect(t *testing.T) {
	defer func(d time.Duration) { endTime = d }(endTime)
	for _, answers := range []bool{false, true} {
		endTime = 10 * time.Millisecond
		if answers {
			endTime = time.Minute
		}
		ended := make(chan bool, 1)
		q, peer, _ := responder(t, func(silent bool) { ended <- silent })
		q.Disconnect()
		if answers {
			if err := peer.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case silent := <-ended:
			if silent == answers {
				t.Errorf("the peer answers: %v, the report: silent %v", answers, silent)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no report after 20 s")
		}
	}
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}
