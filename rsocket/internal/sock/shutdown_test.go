package sock

import (
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
