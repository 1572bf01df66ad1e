package rsocket

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// stream is one end of a connection: the state machine of internal/rs, the objects that it works on, and those who wait.
//
// mu guards the state. One goroutine at a time reads and one writes (reading, writing, before mu); they copy without mu. Whoever has a
// reason takes what has come from the CQ, for all. Nobody does while no call is under way: the device places data and
// acknowledges it by itself.
type stream struct {
	hub  *hub
	id   *rdmacm.ID
	opts Options
	poll time.Duration // busy waiting before a call sleeps

	reading, writing turn
	read, write      side

	mu          sync.Mutex
	state       streamState
	err         error // why the connection could not be made, or has failed
	m           *rs.Stream
	established bool   // it was connected once
	closed      bool   // by the program
	stopWriting bool   // whoever writes must give up
	placing     bool   // whoever writes does it to IO maps
	ready       func() // called once when the connection is made or has failed; mu is held
	errTold     bool   // by SO_ERROR
	qpEnded     bool   // the QP is in ERR, as the connection is over
	tries       int    // of resolving the address or the route
	route       []byte // of the program, instead of resolving one

	res       resources
	armed     bool // the CQ was asked for an event, which has not come yet
	unposted  int  // receives that were consumed and not posted again
	sentOnce  bool // something was posted since the last keepalive
	keepalive *time.Timer
	others    waiters // who waits for anything else than to read or to write

	publish publishing
}

// side is what reading and writing have each.
type side struct {
	deadline deadline
	waiter   waiter
}

// waiter is a goroutine that waits for a change.
type waiter struct {
	c  chan struct{} // with room for one token
	on bool          // guarded by stream.mu
}

func newWaiter() waiter { return waiter{c: make(chan struct{}, 1)} }

func (w *waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// waiters are goroutines that wait for the same thing. Whoever has them guards them.
type waiters []*waiter

func (l *waiters) add(w *waiter) { *l = append(*l, w) }

func (l *waiters) remove(w *waiter) {
	*l = slices.DeleteFunc(*l, func(o *waiter) bool { return o == w })
}

func (l waiters) wake() {
	for _, w := range l {
		w.wake()
	}
}

type streamState uint8

const (
	streamNew streamState = iota
	streamConnecting
	streamConnected
	streamFailed // err says why
	streamClosed // its objects are gone
)

func newStream(b *hub, opts Options) *stream {
	st := &stream{hub: b, opts: opts, poll: opts.Polling}
	st.reading.init()
	st.writing.init()
	st.read.waiter, st.write.waiter = newWaiter(), newWaiter()
	return st
}

// resources are the objects of a stream's device.
type resources struct {
	ch    *verbs.CompChannel
	event <-chan struct{}
	cq    *verbs.CQ
	qp    *verbs.QP
	mem   []byte // receive buffer, send buffer and tables, in this order
	free  func() // gives mem back
	rbuf  []byte
	sbuf  []byte
	table []byte
	mrs   [3]*verbs.MR
	sges  [2]verbs.SGE // of pieces
}

const rbufMR, sbufMR, tableMR = 0, 1, 2

// setUp makes the objects when the ID has a device, and posts the receives. mu is held.
func (st *stream) setUp() (err error) {
	dev := st.id.Verbs()
	if st.opts, err = st.opts.effective(dev); err != nil {
		return err
	}
	o, r := &st.opts, &st.res
	if r.ch, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	r.event = r.ch.Ready()
	recvs := o.RQSize + spareRecvs
	if r.cq, err = dev.CreateCQ(o.SQSize+recvs, &verbs.CQOptions{Channel: r.ch}); err != nil {
		return err
	}
	if err = r.register(st.id.PD(), o); err != nil {
		return err
	}
	init := &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, SigAll: true, Cap: verbs.QPCap{
		MaxSendWR: uint32(o.SQSize), MaxRecvWR: uint32(recvs), MaxSendSGE: 2, MaxRecvSGE: 1, MaxInlineData: uint32(max(o.Inline, minInline)),
	}}
	if err = st.id.CreateQP(nil, init); err != nil {
		return err
	}
	r.qp = st.id.QP()
	o.Inline = int(init.Cap.MaxInlineData)
	st.m = rs.New(rs.Params{
		SQ: o.SQSize, RQ: o.RQSize, SendBuf: o.SendBuf, RecvBuf: o.RecvBuf, Table: r.table,
		Ring: rs.SGE{Addr: r.mrs[rbufMR].Addr(), Key: r.mrs[rbufMR].RKey()},
	})
	st.unposted = recvs
	return st.postRecvs()
}

// register gets the memory and makes it known to the device.
func (r *resources) register(pd *verbs.PD, o *Options) (err error) {
	const align = 64
	table := (o.RecvBuf + o.SendBuf + align - 1) &^ (align - 1)
	total := table + rs.TableLen(rs.Unscale(rs.Scale(o.IOMaps)))
	if r.mem, r.free, err = allocate(total); err != nil {
		return err
	}
	r.rbuf, r.sbuf, r.table = r.mem[:o.RecvBuf:o.RecvBuf], r.mem[o.RecvBuf:o.RecvBuf+o.SendBuf], r.mem[table:total]
	const remote = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	for _, m := range []struct {
		i      int
		buf    []byte
		access verbs.AccessFlags
	}{{rbufMR, r.rbuf, remote}, {sbufMR, r.sbuf, verbs.AccessLocalWrite}, {tableMR, r.table, remote}} {
		if r.mrs[m.i], err = pd.RegMR(m.buf, m.access); err != nil {
			return err
		}
	}
	return nil
}

// connData is what the peer is told.
func (st *stream) connData() []byte {
	r, o := &st.res, &st.opts
	d := rs.ConnData{
		Flags: rs.HostFlags(), Credits: uint16(o.RQSize), IOMaps: rs.Scale(o.IOMaps),
		Table: rs.SGE{Addr: r.mrs[tableMR].Addr(), Key: r.mrs[tableMR].RKey(), Length: rs.TableEntries},
		Data:  rs.SGE{Addr: r.mrs[rbufMR].Addr(), Key: r.mrs[rbufMR].RKey(), Length: uint32(o.RecvBuf / 2)},
	}
	return d.Append(make([]byte, 0, rs.ConnDataLen))
}

// release destroys everything. Nobody uses it any more: reading and writing are held, and what comes to mu finds streamClosed.
func (st *stream) release() {
	st.mu.Lock()
	if st.state == streamClosed {
		st.mu.Unlock()
		return
	}
	st.state = streamClosed
	if st.keepalive != nil {
		st.keepalive.Stop()
	}
	st.wakeAll()
	st.mu.Unlock()
	if st.id != nil {
		if st.res.qp != nil {
			_ = st.id.DestroyQP()
		}
	}
	st.publish.release()
	for _, mr := range st.res.mrs {
		if mr != nil {
			_ = mr.Close()
		}
	}
	if st.res.cq != nil {
		_ = st.res.cq.Close()
	}
	if st.res.ch != nil {
		_ = st.res.ch.Close()
	}
	if st.res.mem != nil {
		st.res.free()
	}
	if st.id != nil {
		_ = st.id.Close()
	}
	st.hub.leave()
}

// fail ends the connection for a reason. mu is held.
func (st *stream) fail(err error) {
	if st.state == streamFailed || st.state == streamClosed {
		return
	}
	st.state, st.err = streamFailed, err
	st.wakeAll()
	st.tellReady()
}

// tellReady calls ready, once.
func (st *stream) tellReady() {
	if f := st.ready; f != nil {
		st.ready = nil
		f()
	}
}

// breakOff is fail for a peer that has broken the protocol: it is told that the connection is over.
func (st *stream) breakOff(err error) {
	st.fail(&Error{Op: "rsocket", Obj: st.name(), Errno: syscall.EPROTO, Err: err})
	if st.id != nil {
		_ = st.id.Disconnect(background)
	}
}

// wakeAll wakes everybody who waits. mu is held.
func (st *stream) wakeAll() {
	st.read.waiter.wake()
	st.write.waiter.wake()
	st.others.wake()
}

func (st *stream) name() string {
	if st.id == nil {
		return "stream"
	}
	return fmt.Sprintf("%v-%v", st.id.LocalAddr(), st.id.PeerAddr())
}

func (st *stream) isConnecting() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.state == streamConnecting
}

// isOver tells whether there is no connection any more, or never will be.
func (st *stream) isOver() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed || st.state == streamFailed || st.state == streamConnected && st.m.Disconnected()
}

// takeError is why the connection has failed, told once.
func (st *stream) takeError() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.errTold {
		return nil
	}
	st.errTold = st.err != nil
	return st.err
}

func (st *stream) localAddr() netip.AddrPort { return st.id.LocalAddr() }
func (st *stream) peerAddr() netip.AddrPort  { return st.id.PeerAddr() }

// recvs are receives without memory: message words come as immediate data.
var recvs [64]verbs.RecvWR

// postRecvs posts as many receives as were consumed. mu is held.
func (st *stream) postRecvs() error {
	for st.unposted > 0 {
		n := min(st.unposted, len(recvs))
		if err := st.res.qp.PostRecv(recvs[:n]...); err != nil {
			return err
		}
		st.unposted -= n
	}
	return nil
}

// Completions say by their WRID what was posted, and how much of the send buffer it takes.
const (
	wrData = uint64(iota+1) << 32 // and maps and riowrite
	wrControl
	wrKeepalive
	wrKinds = ^uint64(1<<32 - 1)
)

// postControls posts the control messages that are due. mu is held.
func (st *stream) postControls() {
	for {
		c, ok := st.m.NextControl()
		if !ok {
			return
		}
		st.post(&verbs.SendWR{
			WRID: wrControl, Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: c.Payload[:c.N], ImmData: c.Word,
			RemoteAddr: c.Remote.Addr, RKey: c.Remote.Key,
		})
	}
}

// post posts a request, for which there is room. mu is held.
func (st *stream) post(wr *verbs.SendWR) {
	st.sentOnce = true
	if err := st.res.qp.PostSend(*wr); err != nil {
		st.fail(err)
	}
}

// pieces are the SGEs of data in the send buffer. They are valid until the next call.
func (r *resources) pieces(d *rs.Data) []verbs.SGE {
	list := r.sges[:0]
	for _, b := range d.Buf {
		if b.Len > 0 {
			list = append(list, r.mrs[sbufMR].SGE(b.Off, b.Len))
		}
	}
	return list
}

// startKeepalive begins to look after the peer.
func (st *stream) startKeepalive(every time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.keepalive != nil {
		st.keepalive.Stop()
		st.keepalive = nil
	}
	if every > 0 && st.state != streamClosed {
		st.keepalive = time.AfterFunc(every, func() { st.keepAlive(every) })
	}
}

// keepAlive sends a WRITE of nothing if nothing else was sent for so long (W-RS-12). A peer that has gone does not acknowledge it.
func (st *stream) keepAlive(every time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.keepalive == nil || st.state > streamConnected || st.state == streamConnected && st.m.Disconnected() {
		return
	}
	st.progress()
	if !st.sentOnce && st.state == streamConnected && st.m.Keepalive() {
		st.post(&verbs.SendWR{WRID: wrKeepalive, Opcode: verbs.WRRDMAWrite})
	}
	st.sentOnce = false
	st.keepalive.Reset(every)
}

// onEvent takes an event of the connection manager.
func (st *stream) onEvent(ev *cmEvent) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.state == streamClosed || st.state == streamFailed {
		return
	}
	switch ev.Type {
	case rdmacm.EventAddrResolved, rdmacm.EventRouteResolved, rdmacm.EventAddrError, rdmacm.EventRouteError:
		st.onResolved(ev)
	case rdmacm.EventEstablished:
		st.onEstablished(ev.Conn.PrivateData)
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected:
		st.fail(connectError(ev.Err))
	case rdmacm.EventDisconnected, rdmacm.EventDeviceRemoval:
		if st.state != streamConnected {
			st.fail(connectError(syscall.ECONNRESET))
			return
		}
		st.progress() // what came before is still there
		st.m.Disconnect()
		st.wakeAll()
	}
}

// onEstablished begins the connection. A client learns from the private data what a server knows from the request.
func (st *stream) onEstablished(private []byte) {
	if st.state != streamConnecting {
		return
	}
	if private != nil {
		peer, err := rs.ParseConnData(private)
		if err != nil {
			st.fail(versionError(err))
			_ = st.id.Disconnect(background)
			return
		}
		st.m.Connect(peer)
	}
	st.state, st.established = streamConnected, true
	st.postControls()
	st.wakeAll()
	st.tellReady()
}

// versionError is the error of connection data that is not understood.
func versionError(err error) error {
	errno := syscall.EPROTO
	if errors.Is(err, rs.ErrVersion) {
		errno = syscall.ENOTSUP
	}
	return &Error{Op: "connect", Errno: errno, Err: err}
}
