package iwtcp

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// CQ is a completion queue.
type CQ interface {
	Push(e *transport.CQE)
	Broken() bool // an overflow has occurred
	PurgeNum(qpn uint32)
}

// Upcalls is how a QP reports to the layer above. The upcalls must not block or call back.
type Upcalls interface {
	Event(ev transport.Event)
	StateChanged(s transport.State)
}

// Config holds the parameters of a new QP.
type Config struct {
	Num            uint32
	PD             uint32
	SigAll         bool
	SQ             *transport.SendQueue
	RQ             *transport.RecvQueue // the QP's own, or an SRQ
	SendCQ, RecvCQ CQ
	Regions        *mr.Table
	// Memory is read-locked while memory of regions is accessed, so that a writer can wait until a removed region is
	// unused.
	Memory *sync.RWMutex
	Up     Upcalls
}

// Bounds of a turn of a QP, and the times after which a connection that does not end is cut.
const (
	rxTurn    = 512 << 10 // bytes
	txTurn    = 1 << 20   // bytes
	directMin = 4 << 10   // shorter pieces are copied
)

// endTime is how long the peer has to close its side after this side has closed its own. Tests change it.
var endTime = 10 * time.Second

// QP is a queue pair.
type QP struct {
	Config
	dev   *Device
	loop  *loop
	id    uint64
	state atomic.Uint32

	nearby atomic.Bool // what the peer sends comes through memory

	mu sync.Mutex
	// +checklocks:mu
	access mr.Access
	// +checklocks:mu
	m *iwarp.QP // nil before Start, unless the QP is in ERR
	// +checklocks:mu
	fd int // -1: there is no stream
	// +checklocks:mu
	vec [][]byte
	// +checklocks:mu
	room bool // room for writing is watched
	// +checklocks:mu
	deaf bool // data to read is not watched
	// +checklocks:mu
	shut bool // this side has closed its direction
	// +checklocks:mu
	eof bool // the peer has closed its direction, or the stream is lost
	// +checklocks:mu
	ended func(silent bool)
	// +checklocks:mu
	silent bool // the stream is lost: the peer does not answer
	// +checklocks:mu
	timer *time.Timer // of the end
	// +checklocks:mu
	quiet bool // the program moves the QP: the machine's report of its state is not passed on
	// +checklocks:mu
	dead bool
	// +checklocks:mu
	trace trace
	// +checklocks:mu
	near near
	// +checklocks:mu
	params iwarp.Params // of the connection
	// +checklocks:mu
	idle time.Duration // of keep-alive; 0: none
	// +checklocks:mu
	counters Counters // without those of TCP of the present connection: see countStream
}

var lastID atomic.Uint64

// NewQP makes a QP in RESET.
func (d *Device) NewQP(c Config) (*QP, error) {
	q := &QP{Config: c, dev: d, id: lastID.Add(1), fd: -1}
	var err error
	if q.loop, err = d.enter(q); err != nil {
		return nil, err
	}
	return q, nil
}

// State returns the state: RESET, INIT, RTS or ERR.
func (q *QP) State() transport.State { return transport.State(q.state.Load()) }

// machine makes the machine of a connection.
//
// +checklocks:q.mu
func (q *QP) machine(p iwarp.Params) {
	q.m = iwarp.NewQP(iwarp.Config{
		Num: q.Num, ID: q.id, PD: q.PD, SigAll: q.SigAll, SQ: q.SQ, RQ: q.RQ, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ,
		Regions: q.Regions, Access: q.access, Host: (*host)(q), Counters: &q.counters.QP,
	}, p)
}

// Init moves the QP from RESET to INIT, or changes its rights there.
func (q *QP) Init(a mr.Access) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.State(); s != transport.Reset && s != transport.Init || q.dead {
		return transport.ErrMoved
	}
	q.access = a
	q.state.Store(uint32(transport.Init))
	return nil
}

// Fail moves the QP to ERR for the program. The connection is cut, unless it is ending already.
func (q *QP) Fail() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() == transport.Err || q.dead {
		return
	}
	q.quiet = true
	if q.m == nil {
		q.machine(iwarp.Params{})
	}
	q.state.Store(uint32(transport.Err))
	q.m.Move()
	q.quiet = false
	if q.fd >= 0 {
		_ = unix.SetsockoptLinger(q.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		q.traceEnd(true, pcap.FlagRST)
		q.shut = true
	}
	q.close()
}

// Reset moves the QP to RESET: the connection ends, requests and completions are dropped.
func (q *QP) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reset()
}

// +checklocks:q.mu
func (q *QP) reset() {
	if q.fd >= 0 && q.shut && !q.eof {
		q.linger()
	}
	q.close()
	q.SQ.Lock() // no post is between its look at the state and its end
	q.state.Store(uint32(transport.Reset))
	q.SQ.Unlock()
	if q.m != nil {
		q.m.Abandon()
		q.m = nil
	}
	q.SQ.Clear()
	if !q.RQ.Shared() {
		q.RQ.Clear()
	}
	q.SendCQ.PurgeNum(q.Num)
	q.RecvCQ.PurgeNum(q.Num)
	q.SQ.Clear()
	if !q.RQ.Shared() {
		q.RQ.Clear()
	}
	q.eof, q.shut, q.room, q.deaf, q.silent = false, false, false, false, false
	q.trace = trace{}
}

// Destroy ends the QP.
func (q *QP) Destroy() {
	q.mu.Lock()
	if q.dead {
		q.mu.Unlock()
		return
	}
	q.dead = true
	q.reset()
	q.mu.Unlock()
	q.dev.leave(q)
}

// Start implements Starter.
func (q *QP) Start(c *Conn, ended func(silent bool)) error {
	fd, err := takeSocket(c)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() != transport.Init || q.dead || q.SendCQ.Broken() || q.RecvCQ.Broken() {
		_ = unix.Close(fd)
		return transport.ErrState
	}
	q.machine(c.Params)
	q.fd, q.ended, q.params, q.near = fd, ended, c.Params, near{}
	q.eof, q.shut, q.room, q.deaf, q.silent = false, false, false, false, false
	q.keepAlive()
	q.traceBegin(c)
	q.state.Store(uint32(transport.RTS))
	q.Up.StateChanged(transport.RTS)
	if err := q.loop.add(q, fd); err != nil {
		q.ended = nil
		q.m.OnEOF()
		q.m.OnPosted()
		q.close()
		return err
	}
	q.Memory.RLock()
	q.traceData(false, c.rest)
	q.m.Feed(c.rest)
	q.Memory.RUnlock()
	q.drive()
	if c.Params.Initiator {
		q.nudge(0)
	} else if c.Params.RTR == 0 {
		q.release()
	}
	return nil
}

// nudges are the pauses before an initiator looks whether it has sent anything since: the first look is after 10 ms,
// the others may send a nudge, after 50 ms, 250 ms and 1.25 s.
var nudges = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond, time.Second}

// nudge has the machine send a nudge after a pause without messages of this side.
//
// +checklocks:q.mu
func (q *QP) nudge(n int) {
	m, fd := q.m, q.fd
	time.AfterFunc(nudges[n], func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.m != m || q.fd != fd {
			return
		}
		if m.Nudge() {
			q.drive()
		}
		if n+1 < len(nudges) {
			q.nudge(n + 1)
		}
	})
}

// releaseTime is how long a responder waits for the initiator's first message, in a connection without peer-to-peer
// mode, before it sends its own.
const releaseTime = time.Second

// release lets a responder send first if the initiator has the reply and sends nothing.
//
// +checklocks:q.mu
func (q *QP) release() {
	m, fd := q.m, q.fd
	time.AfterFunc(releaseTime, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.m != m || q.fd != fd {
			return
		}
		if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil && n > 0 {
			q.release() // the reply is not acknowledged
		} else if m.Release() {
			q.drive()
		}
	})
}

// SetKeepAlive makes TCP check the peer after each time idle without a segment, in whole seconds, at least 1; 0 ends
// that. A peer that does not answer keepCount checks of keepPause is lost, and so is one that has not acknowledged data
// for as long, idle included: TCP does not check while data is outstanding.
func (q *QP) SetKeepAlive(idle time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = idle
	q.keepAlive()
}

const (
	keepCount = 5
	keepPause = 1 // s
	// maxKeepIdle is TCP's limit, s.
	maxKeepIdle = 32767
)

// keepAlive sets the options of the socket. Errors leave the check out.
//
// +checklocks:q.mu
func (q *QP) keepAlive() {
	if q.fd < 0 {
		return
	}
	on, patience := 0, 0
	if q.idle > 0 {
		s := min(int((q.idle+time.Second-1)/time.Second), maxKeepIdle)
		on, patience = 1, (s+keepCount*keepPause)*1000
		_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, s)
		_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepPause)
		_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount)
	}
	_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, patience) // ms
	_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, on)
}

// takeSocket takes the socket out of Go's poller.
func takeSocket(c *Conn) (fd int, err error) {
	defer c.tcp.Close()
	_ = c.tcp.SetNoDelay(true)
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

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

// PostSend calls post, which adds work requests to the locked send queue, and sends them.
func (q *QP) PostSend(post func(*transport.SendQueue) error) error {
	q.SQ.Lock()
	if s := q.State(); s != transport.RTS && s != transport.Err {
		q.SQ.Unlock()
		return transport.ErrState
	}
	err := post(q.SQ)
	q.SQ.Publish()
	q.SQ.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drive()
	return err
}

// PostedRecv must be called after receives were posted to the QP's own queue: in ERR they are flushed.
func (q *QP) PostedRecv() {
	if q.State() != transport.Err {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m != nil {
		q.m.OnPosted()
	}
}

// onEvent runs the QP for an event of one of its sockets, or none. The device's turn is held.
func (q *QP) onEvent(buf []byte, socket int, readable bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m == nil {
		return
	}
	if q.near.Duplex != nil {
		q.onNear(socket, readable)
	}
	if (readable || q.near.in) && q.fd >= 0 {
		q.receive(buf)
	}
	q.drive()
	if q.near.in && !q.eof && !q.near.hot && !q.near.Sleep() {
		q.loop.again(q)
	}
}

// receive reads the socket, a bounded number of bytes. The set is one of levels: it reports again what is left.
//
// +checklocks:q.mu
func (q *QP) receive(buf []byte) {
	q.Memory.RLock()
	defer q.Memory.RUnlock()
	whole, direct := buf, true
	for left := rxTurn; left > 0 && !q.eof; {
		var place []byte
		if buf = whole; q.near.in && !q.params.CRC {
			buf = whole[:nearPiece]
		}
		if d := q.m.Direct(); d != nil {
			if direct && len(d) >= directMin {
				place = d
			} else {
				q.m.Placed(0)
			}
		}
		n, err := q.read(place, buf)
		if n > 0 {
			k := min(n, len(place))
			q.traceData(false, place[:k], buf[:n-k])
		}
		if place != nil {
			q.m.Placed(min(max(n, 0), len(place)))
		}
		switch {
		case n > 0:
			if n > len(place) {
				q.m.Feed(buf[:n-len(place)])
				q.onSignal()
			}
			left -= n
			if n < len(place)+len(buf) {
				return // the socket was empty a moment ago
			}
		case err == unix.EAGAIN:
			return
		case err == unix.EINTR:
		case err == unix.EFAULT && place != nil:
			direct = false // Feed finds where the memory ends
		default:
			q.eof = true
			if err == nil {
				q.traceEnd(false, pcap.FlagFIN)
			} else {
				q.traceEnd(false, pcap.FlagRST)
			}
			q.end(err)
		}
	}
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

// unanswered reports whether an error of a socket says that TCP has given up. A host that is switched off is
// unreachable in its own subnet, where nobody answers for it.
func unanswered(err error) bool {
	return err == unix.ETIMEDOUT || err == unix.EHOSTUNREACH || err == unix.ENETUNREACH
}

// read reads into memory of the program, and what follows into buf.
//
// +checklocks:q.mu
func (q *QP) read(place, buf []byte) (int, error) {
	if q.near.in {
		return q.readNear(place, buf)
	}
	if place == nil {
		return unix.Read(q.fd, buf)
	}
	return readv(q.fd, place, buf)
}

// drive sends what can be sent, and does what follows from the machine's state.
//
// +checklocks:q.mu
func (q *QP) drive() {
	if q.m == nil {
		return
	}
	if q.m.State() == transport.Err {
		q.m.OnPosted()
	}
	if q.fd >= 0 && !q.shut {
		q.send()
	}
	if q.m.State() == transport.RTS && (q.SendCQ.Broken() || q.RecvCQ.Broken()) {
		q.m.Move()
		q.Up.Event(transport.EventQPFatal)
	}
	q.settle()
	q.offerNear()
}

// send writes to the socket, a bounded number of bytes.
//
// +checklocks:q.mu
func (q *QP) send() {
	q.Memory.RLock()
	defer q.Memory.RUnlock()
	sent, full := 0, false
	for sent < txTurn && !full {
		q.vec = q.m.Vectors(q.vec[:0])
		if len(q.vec) == 0 {
			break
		}
		n, err := q.write(q.vec)
		if err == nil {
			q.traceVectors(q.vec, n)
		}
		clear(q.vec)
		switch err {
		case nil:
			q.m.Written(n)
			q.switchOut()
			sent += n
		case unix.EINTR:
		case unix.EAGAIN:
			full = true
		case unix.EFAULT:
			q.m.OnFault()
		default:
			q.flush()
			q.lose(err)
			return
		}
	}
	q.flush()
	q.m.Keep()
	more := sent >= txTurn || q.m.Draining()
	if full && q.near.out {
		full, more = false, more || !q.near.AwaitRoom()
	}
	if full != q.room || q.eof != q.deaf { // the end of the peer's direction would be an event for ever
		q.room, q.deaf = full, q.eof
		q.loop.watch(q.fd, !q.eof, full)
	}
	if more {
		q.loop.again(q)
	}
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

// host is how the machine reports.
type host QP

// Raise implements iwarp.Host.
func (h *host) Raise(ev transport.Event) { h.Up.Event(ev) }

// StateChanged implements iwarp.Host. The machine moves to ERR only.
func (h *host) StateChanged(s transport.State) {
	h.state.Store(uint32(s))
	if !(*QP)(h).moving() {
		h.Up.StateChanged(s)
	}
}

// moving reports whether the program moves the QP. The lock is held: the machine calls.
//
// +checklocksignore
func (q *QP) moving() bool { return q.quiet }
