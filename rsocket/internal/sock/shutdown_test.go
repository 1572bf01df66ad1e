package sock

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Close waits for the reader and the writer, who copy to and from the buffers.
func TestCloseWaitsForReaderAndWriter(t *testing.T) {
	for name, lock := range map[string]func(st *Stream) *fairLock{
		"reader": func(st *Stream) *fairLock { return &st.reading },
		"writer": func(st *Stream) *fairLock { return &st.writing },
	} {
		synctest.Test(t, func(t *testing.T) {
			st := NewStream(&Hub{users: 2}, Options{})
			lock(st).lock()
			go st.Close(0)
			synctest.Wait()
			if !st.closed || st.state == streamClosed {
				t.Errorf("%s: closed %v, state %d while it copies", name, st.closed, st.state)
			}
			lock(st).unlock()
			synctest.Wait()
			if st.state != streamClosed {
				t.Errorf("%s: state %d afterwards", name, st.state)
			}
		})
	}
}

// The end of what was written is delivered for 2 s, then in the background until the peer has it or the stream is
// closed. Over TCP what the device has sent is delivered.
func TestDeliveryInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, free := withCQ(t)
		connect(st)
		st.words = true
		begin := time.Now()
		st.mu.Lock()
		if st.deliver(); time.Since(begin) != 0 {
			t.Errorf("a stream without messages took %v", time.Since(begin))
		}
		if _, some := st.m.NextData(1, rs.MaxData, 0); !some {
			t.Error("no room for a message")
		}
		if st.deliver(); time.Since(begin) != MaxLinger {
			t.Errorf("a stream with a message under way took %v", time.Since(begin))
		}
		st.mu.Unlock()
		synctest.Wait()
		st.mu.Lock()
		if len(st.others) != 1 {
			t.Errorf("%d goroutines wait in the background", len(st.others))
		}
		st.closed = true
		st.wakeAll()
		st.mu.Unlock()
		synctest.Wait()
		if len(st.others) != 0 || time.Since(begin) != MaxLinger {
			t.Errorf("%d goroutines wait after Close, for %v", len(st.others), time.Since(begin))
		}
		free()
	})
}

// The QP ends when the connection is over, once, but not over TCP.
func TestEndOfTheQP(t *testing.T) {
	host := hosted(t)
	for _, words := range []bool{false, true} {
		id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
		ok(t, id.BindAddr(ownAddr))
		st := NewStream(JoinHub(host), Options{}.WithDefaults())
		st.id = id
		st.mu.Lock()
		ok(t, st.setUp())
		st.words = words
		check := func(what string, ended bool) {
			t.Helper()
			st.endQP()
			attr, _, err := st.res.qp.Query(verbs.QPAttrState)
			if err != nil || st.qpEnded != ended || (attr.QPState == verbs.QPSErr) != (ended && !words) {
				t.Errorf("over TCP %v, %s: the QP has ended %v, state %v, %v", words, what, st.qpEnded, attr.QPState, err)
			}
		}
		st.state = streamConnected
		check("connected", false)
		st.m.Disconnect()
		st.m.Shutdown(true, true)
		st.state = streamFailed
		check("failed", false)
		st.state = streamConnected
		check("over", true)
		check("again", true)
		st.mu.Unlock()
		st.Close(0)
	}
}

// Close waits for the peer's acknowledgement as long as the program says, then in the background for 30 s. It does not
// wait for a peer that is gone, nor once the stream has failed.
func TestCloseLingersInTheBackground(t *testing.T) {
	const linger = time.Second
	for name, c := range map[string]struct {
		before, meanwhile func(st *Stream)
		call, all         time.Duration // of Close, and until the stream has nothing left
	}{
		"silence":          {func(*Stream) {}, func(*Stream) {}, linger, linger + lingerBackground},
		"the peer is gone": {func(st *Stream) { st.m.Disconnect() }, func(*Stream) {}, 0, 0},
		"failure": {func(*Stream) {}, func(st *Stream) {
			st.mu.Lock()
			defer st.mu.Unlock()
			st.fail(net.ErrClosed)
		}, linger / 2, linger / 2},
		"the peer goes later": {func(*Stream) {}, func(st *Stream) {
			time.Sleep(linger)
			st.mu.Lock()
			defer st.mu.Unlock()
			st.m.Disconnect()
			st.wakeAll()
		}, linger, 3 * linger / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			host := hosted(t)
			id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
			ok(t, id.BindAddr(ownAddr))
			st := NewStream(&Hub{users: 2}, Options{})
			st.id, st.state, st.qpEnded = id, streamConnected, true // there is no QP
			st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096, Table: make([]byte, 4096)})
			st.res.ch = must(id.Verbs().CreateCompChannel())(t)
			st.res.cq = must(id.Verbs().CreateCQ(1, &verbs.CQOptions{Channel: st.res.ch}))(t)
			connect(st)
			for st.m.Keepalive() { // these messages are not acknowledged
			}
			c.before(st)
			begin := time.Now()
			go func() {
				time.Sleep(linger / 2)
				c.meanwhile(st)
			}()
			if !st.Close(linger) || time.Since(begin) != c.call {
				t.Errorf("%s: Close took %v, want %v", name, time.Since(begin), c.call)
			}
			left := func() bool {
				synctest.Wait()
				st.mu.Lock()
				defer st.mu.Unlock()
				return st.state != streamClosed
			}
			for left() {
				time.Sleep(linger / 2)
			}
			if time.Since(begin) != c.all {
				t.Errorf("%s: it took %v, want %v", name, time.Since(begin), c.all)
			}
			time.Sleep(2 * linger)
		})
	}
}

// Close over TCP tells a peer that has ended sending, too, that the connection is over.
func TestCloseEndsTheConnectionOverTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, _ := withCQ(t) // Close frees all
		connect(st)
		st.hub, st.words = &Hub{users: 2}, true
		st.m.Shutdown(false, true)
		st.m.NextControl()
		st.m.OnControlSent()
		ok(t, st.m.OnMessage(rs.Word(rs.OpCtrl, rs.CtrlShutdown), 0))
		id := st.id
		st.Close(time.Second)
		st.mu.Lock()
		if !st.qpEnded || st.state != streamConnected {
			t.Errorf("the QP has ended %v, state %d", st.qpEnded, st.state)
		}
		st.mu.Unlock()
		time.Sleep(2 * lingerBackground)
		if err := id.Close(); err == nil {
			t.Error("the ID was open")
		}
	})
}

// The end of reading alone does not wait for what was written.
func TestEndOfReadingDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, free := withCQ(t)
		connect(st)
		st.established = true
		for st.m.Keepalive() { // these messages are not acknowledged
		}
		begin := time.Now()
		for write, want := range []time.Duration{0, MaxLinger} {
			ok(t, st.Shutdown(write == 0, write == 1))
			if took := time.Since(begin); took != want {
				t.Errorf("the end of writing %v: %v, want %v", write == 1, took, want)
			}
		}
		st.mu.Lock()
		st.closed = true // ends the wait in the background
		st.wakeAll()
		st.mu.Unlock()
		synctest.Wait()
		free()
	})
}
