package sock

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// told is a device whose CQs have the completions that the test tells it.
//
//conformance:fake
type told struct {
	verbs.DriverDevice
	mu   sync.Mutex
	list []verbs.WC
	on   bool
}

//conformance:fake
type toldContext struct {
	verbs.DriverContext
	of *told
}

//conformance:fake
type toldCQ struct {
	verbs.DriverCQ
	of *told
}

func (d *told) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return toldContext{c, d}, err
}

func (c toldContext) CreateCQ(n int, o *verbs.CQOptions, up verbs.DriverCQEvents) (verbs.DriverCQ, error) {
	q, err := c.DriverContext.CreateCQ(n, o, up)
	if !c.of.on {
		return q, err
	}
	return toldCQ{q, c.of}, err
}

func (q toldCQ) Poll(wcs []verbs.WC) (int, error) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	n := copy(wcs, q.of.list)
	q.of.list = q.of.list[n:]
	return n, nil
}

// withCompletions returns a connected stream without a QP, whose CQ has the completions of d.
func withCompletions(t *testing.T) (st *Stream, d *told, free func()) {
	t.Helper()
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
	d = &told{DriverDevice: driver.Of[verbs.DriverDevice](dev)}
	host := rdmacm.NewHost(driver.NewDevice(d))
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	d.on = true
	st = NewStream(nil, Options{})
	st.id, st.state, st.established = id, streamConnected, true
	st.m = rs.New(rs.Params{SQ: 64, RQ: 64, SendBuf: 4096, RecvBuf: 4096, Table: make([]byte, 4096)})
	st.res.ch = must(id.Verbs().CreateCompChannel())(t)
	st.res.cq = must(id.Verbs().CreateCQ(1, &verbs.CQOptions{Channel: st.res.ch}))(t)
	st.res.event = st.res.ch.Ready()
	st.res.rbuf = make([]byte, 4096)
	return st, d, func() {
		t.Helper()
		ok(t, errors.Join(st.res.cq.Close(), st.res.ch.Close(), id.Close(), host.Close()))
	}
}

// connect gives a stream its peer, and takes the control message that is due at first.
func connect(st *Stream) {
	st.m.Connect(rs.ConnData{Credits: 64, Data: rs.SGE{Length: 4096}, Table: rs.SGE{Length: rs.TableEntries}})
	st.m.NextControl()
	st.m.OnControlSent()
}

// received is the completion of a receive whose message has n bytes of data.
func received(n uint32) verbs.WC {
	return verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ImmData: rs.Word(rs.OpData, n), ByteLen: n}
}

// A look at the CQ takes all completions, however many there are.
func TestProgressTakesAllCompletions(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 32, 40} {
		st, d, free := withCompletions(t)
		connect(st)
		st.mu.Lock()
		for range n {
			data, some := st.m.NextData(8, rs.MaxData, 0)
			if !some {
				t.Fatal("no room for a message")
			}
			d.list = append(d.list, verbs.WC{Opcode: verbs.WCRDMAWrite, WRID: wrData | uint64(data.Buffered())})
		}
		if st.m.Idle() || st.m.Buffered() != 8*n {
			t.Errorf("%d bytes of %d messages are buffered", st.m.Buffered(), n)
		}
		if !st.progress() || len(d.list) != 0 || !st.m.Idle() || st.m.Buffered() != 0 {
			t.Errorf("of %d completions %d are left, %d bytes are buffered", n, len(d.list), st.m.Buffered())
		}
		if st.progress() {
			t.Error("progress without a completion")
		}
		st.mu.Unlock()
		free()
	}
}

// What arrives after a message that breaks the protocol, or after a failure, is not processed, and nothing is posted.
func TestNothingAfterAFailure(t *testing.T) {
	for name, bad := range map[string]verbs.WC{
		"unknown message": {Opcode: verbs.WCRecvRDMAWithImm, ImmData: 0xFFFFFFFF},
		"retries in vain": {Status: verbs.WCRetryExcErr},
	} {
		st, d, free := withCompletions(t)
		d.list = []verbs.WC{received(1), bad, received(2)}
		st.mu.Lock()
		if !st.progress() || st.state != streamFailed || st.m.Readable() != 1 {
			t.Errorf("%s: state %d, %v, %d bytes", name, st.state, st.err, st.m.Readable())
		}
		st.mu.Unlock()
		free()
	}
}

// To a peer that receives no more nothing is posted, not even receives. What it has sent can be read.
func TestNothingIsPostedToAPeerThatIsGone(t *testing.T) {
	st, d, free := withCompletions(t)
	d.list = []verbs.WC{received(1), {Opcode: verbs.WCRecvRDMAWithImm, ImmData: rs.Word(rs.OpCtrl, rs.CtrlDisconnect)}}
	st.mu.Lock()
	if !st.progress() || st.state != streamConnected || st.m.Readable() != 1 || !st.m.PeerGone() || st.unposted != 2 {
		t.Errorf("state %d, %v, %d bytes, %d receives to post", st.state, st.err, st.m.Readable(), st.unposted)
	}
	st.mu.Unlock()
	free()
}

// A call looks at the CQ before it says how things stand: the peer may have closed, or have acknowledged everything.
func TestCallsLookFirst(t *testing.T) {
	gone := verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ImmData: rs.Word(rs.OpCtrl, rs.CtrlDisconnect)}
	for name, c := range map[string]struct {
		wc   verbs.WC
		call func(st *Stream) bool
	}{
		"send": {gone, func(st *Stream) bool {
			_, err := st.Send([]byte("x"), WaitMode{Nonblock: true})
			return errors.Is(err, syscall.ECONNRESET)
		}},
		"iowrite": {gone, func(st *Stream) bool {
			_, err := st.IOWrite([]byte("x"), 0, WaitMode{Nonblock: true})
			return errors.Is(err, syscall.ECONNRESET)
		}},
		"poll": {gone, func(st *Stream) bool { return st.PollEvents()&PollHup != 0 }},
		"keepalive": {gone, func(st *Stream) bool {
			st.SetKeepalive(time.Hour)
			st.keepAlive(st.keepalive, time.Hour)
			st.keepalive.Stop()
			return st.m.Disconnected()
		}},
		"token": {gone, func(st *Stream) bool { st.OnToken(); return st.m.Disconnected() }},
		"event": {received(1), func(st *Stream) bool {
			st.unposted = -1 // there is no QP for another receive
			st.onEvent(&cmEvent{Type: rdmacm.EventDisconnected})
			return st.m.Readable() == 1
		}},
		"unacked": {verbs.WC{Opcode: verbs.WCRDMAWrite, WRID: wrData | 8}, func(st *Stream) bool {
			return st.Unacked() == 0
		}},
	} {
		st, d, free := withCompletions(t)
		connect(st)
		if _, some := st.m.NextData(8, rs.MaxData, 0); !some {
			t.Error("no room for a message")
		}
		if n := st.Unacked(); n != 8 {
			t.Errorf("%d bytes are not acknowledged", n)
		}
		if d.list = []verbs.WC{c.wc}; !c.call(st) || len(d.list) != 0 {
			t.Errorf("%s does not look: %d completions are left", name, len(d.list))
		}
		free()
	}
}

// A long poll that finds a completion has succeeded.
func TestLongPollOfAStream(t *testing.T) {
	st, d, free := withCompletions(t)
	d.list = []verbs.WC{{Opcode: verbs.WCRDMAWrite, WRID: wrKeepalive}}
	p := WaitMode{}
	// A poll from the future on takes no time, however busy the machine is.
	p.spin.start, p.spin.long = time.Now().Add(time.Minute), &st.longPolls
	st.mu.Lock()
	if err := st.pause(&st.read.waiter, &p); err != nil || p.spin.long != nil || st.longPolls.credit != 1 {
		t.Errorf("%v, credit %d", err, st.longPolls.credit)
	}
	st.mu.Unlock()
	free()
}

// A program that reads what arrived before a failure gives no credits for it: there is nobody to send them to.
func TestReadingAfterAFailurePostsNothing(t *testing.T) {
	st, _, free := withCompletions(t)
	st.m.Connect(rs.ConnData{Credits: 64, Data: rs.SGE{Length: 4096}, Table: rs.SGE{Length: rs.TableEntries}})
	ok(t, st.m.OnMessage(rs.Word(rs.OpData, 2048), 2048))
	st.state, st.err = streamFailed, syscall.EPROTO
	if n, err := st.Recv(make([]byte, 4096), 0, WaitMode{}); n != 2048 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if !errors.Is(st.err, syscall.EPROTO) || st.sentOnce {
		t.Errorf("%v, posted %v", st.err, st.sentOnce)
	}
	if n, err := st.Recv(nil, 0, WaitMode{}); n != 0 || !errors.Is(err, syscall.EPROTO) {
		t.Errorf("no bytes after the end: %d, %v", n, err)
	}
	if st.established = true; st.Shutdown(true, true) != nil || st.sentOnce {
		t.Errorf("posted %v by Shutdown", st.sentOnce)
	}
	free()
}

// A call that is to fill the buffer takes, or looks at, what arrives while it waits.
func TestR_IO_07_WaitAllTakesWhatArrives(t *testing.T) {
	for _, flags := range []RecvFlags{WaitAll, WaitAll | Peek} {
		st, d, free := withCompletions(t)
		connect(st)
		for i := range st.res.rbuf {
			st.res.rbuf[i] = byte(i)
		}
		ok(t, st.m.OnMessage(rs.Word(rs.OpData, 3), 3))
		d.list = []verbs.WC{received(2)}
		st.unposted = -1 // there is no QP for another receive
		b := make([]byte, 5)
		n, err := st.Recv(b, flags, WaitMode{Nonblock: true})
		if n != 5 || err != nil || b[4] != 4 {
			t.Errorf("flags %v: %d bytes %v, %v", flags, n, b, err)
		}
		left := 0
		if flags&Peek != 0 {
			left = 5
		}
		if st.m.Readable() != left {
			t.Errorf("flags %v: %d bytes are left, want %d", flags, st.m.Readable(), left)
		}
		free()
	}
}

// A stream whose QP takes no receive any more fails.
func TestReceiveThatCannotBePosted(t *testing.T) {
	st, d, free := withCompletions(t)
	id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	cq := must(id.Verbs().CreateCQ(2, nil))(t)
	ok(t, id.CreateQP(nil, &verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))
	st.res.qp = id.QP()
	ok(t, id.DestroyQP())
	d.list = []verbs.WC{received(1)}
	st.mu.Lock()
	if !st.progress() || st.state != streamFailed || st.err == nil || st.unposted != 1 {
		t.Errorf("state %d, %v, %d receives to post", st.state, st.err, st.unposted)
	}
	st.mu.Unlock()
	ok(t, errors.Join(cq.Close(), id.Close()))
	free()
}
