package iwtcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// endTime is how long the peer has to close its side after this side has closed its own. Tests change it.
var endTime = 10 * time.Second

// Disconnect implements Starter.
func (q *QP) Disconnect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd < 0 || q.m == nil {
		return
	}
	q.m.Disconnect()
	q.expect()
	q.drive()
}

// expect cuts the connection if it does not end soon.
//
// +checklocks:q.mu
func (q *QP) expect() {
	if q.timer == nil {
		m := q.m
		q.timer = time.AfterFunc(endTime, func() { q.cut(m) })
	}
}

// cut ends the connection of a machine. A timer that has fired may be late: the QP has another connection then, whose
// socket may have the number of the old one.
func (q *QP) cut(m *iwarp.QP) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd < 0 || q.m != m {
		return
	}
	q.silent = q.silent || !q.eof
	q.end(nil)
	q.m.OnPosted()
	q.close()
}

// end tells the machine that the peer's direction has ended, by an error or in order. A socket reports an error once,
// to a call that reads or to one that writes.
//
// +checklocks:q.mu
func (q *QP) end(err error) {
	if q.silent = q.silent || unanswered(err); q.silent {
		q.m.OnSilence()
	} else {
		q.m.OnEOF()
	}
}

// unanswered reports whether an error of a socket means that TCP has given up. A host that is switched off is
// unreachable in its own subnet, where no router answers for it.
func unanswered(err error) bool {
	return err == unix.ETIMEDOUT || err == unix.EHOSTUNREACH || err == unix.ENETUNREACH
}

// lose notes that the stream takes nothing any more. What the peer has sent is still read: it may be a Terminate.
//
// +checklocks:q.mu
func (q *QP) lose(err error) {
	q.shut = true
	q.silent = unanswered(err)
	q.expect()
}

// settle closes the stream as far as the machine is done with it.
//
// +checklocks:q.mu
func (q *QP) settle() {
	if q.fd < 0 {
		return
	}
	if !q.shut && q.m.Finished() {
		q.shut = true
		_ = unix.Shutdown(q.fd, unix.SHUT_WR)
		q.traceEnd(true, pcap.FlagFIN)
		q.expect()
	}
	if q.m.State() != transport.Err {
		return
	}
	q.m.OnPosted() // what was posted before the state was stored
	q.report()
	if q.eof && q.shut {
		q.close()
		return
	}
	q.expect() // the peer reads a Terminate, and closes its side
}

// report tells the layer above, once, that the connection has ended.
//
// +checklocks:q.mu
func (q *QP) report() {
	if f := q.ended; f != nil {
		q.ended = nil
		go f(q.silent)
	}
}

// close closes the socket.
//
// +checklocks:q.mu
func (q *QP) close() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if q.fd < 0 {
		return
	}
	if !q.shut {
		q.traceEnd(true, pcap.FlagFIN)
	}
	q.loop.remove(q.fd)
	q.countStream(&q.counters)
	q.closeNear()
	_ = unix.Close(q.fd)
	q.fd = -1
	q.report()
}
