package sock

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Stream is one end of a connection: the state machine of internal/rs, the objects of its device, and the waiting
// goroutines.
//
// mu guards the state. reading and writing are locked before mu; their owners copy data without mu. Every call with
// a reason processes completions for all. While no call is under way no goroutine does: the device places and
// acknowledges data by itself.
type Stream struct {
	hub  *Hub
	id   *rdmacm.ID
	opts Options
	poll time.Duration // the spin budget of a call; at most 0 for none

	reading fairLock // locked by the reader
	writing fairLock // locked by the writer
	read    direction
	write   direction

	mu sync.Mutex
	// +checklocks:mu
	state streamState
	// +checklocks:mu
	err error // of a connection that could not be made, or has failed
	// +checklocks:mu
	m *rs.Stream
	// +checklocks:mu
	peerKnown bool // a request has had the peer's parameters
	// +checklocks:mu
	established bool // the connection was made, and may have ended
	// +checklocks:mu
	closed bool // Close was called
	// +checklocks:mu
	stopWriting bool // the writer must return EPIPE
	// +checklocks:mu
	placing bool // the writer writes to IO maps
	// +checklocks:mu
	acceptor *Acceptor // gets the stream when its handshake has ended; nil afterwards, and for clients
	// +checklocks:mu
	errTold bool // TakeError has returned err
	// +checklocks:mu
	qpEnded bool // the QP is in ERR, because the connection is over
	// +checklocks:mu
	tries int    // attempts to resolve the address or the route
	route []byte // replaces route resolution

	res   resources
	words bool // message words come by SENDs (words.go)
	// +checklocks:mu
	armed bool // the CQ was asked for an event, which has not come yet
	// +checklocks:mu
	unposted int // receives that were consumed and not posted again
	// +checklocks:mu
	nextRecv int // with words: the receive to post next
	// +checklocks:mu
	sentOnce bool // something was posted since the last keepalive
	// +checklocks:mu
	keepalive *time.Timer
	// +checklocks:mu
	others   waiters // goroutines that neither read nor write
	asleep   sleepers
	patience Patience

	// +checklocks:mu
	publish publishing
}

// direction has the deadline and the waiter of reading or of writing.
type direction struct {
	deadline deadline
	waiter   Waiter
}

type streamState uint8

const (
	streamNew streamState = iota
	streamConnecting
	streamConnected
	streamFailed // err has the reason
	streamClosed // its objects are destroyed
)

// NewStream returns a stream without a connection. The caller has joined the hub; Close leaves it.
func NewStream(b *Hub, opts Options) *Stream {
	st := &Stream{hub: b, opts: opts, poll: opts.Polling}
	st.reading.init()
	st.writing.init()
	st.read.waiter, st.write.waiter = NewWaiter(), NewWaiter()
	return st
}

// resources are the objects of a stream's device.
type resources struct {
	ch    *verbs.CompChannel
	event <-chan struct{}
	cq    *verbs.CQ
	qp    *verbs.QP
	mem   []byte // receive buffer, send buffer, tables and receives, in this order
	free  func() // frees mem
	rbuf  []byte
	sbuf  []byte
	table []byte
	recvs []byte // with words: the memory of the receives
	words *wordRecvs
	word  [wordLen]byte
	mrs   [4]*verbs.MR
	sges  [2]verbs.SGE // of pieces
	// inline has the bytes of an inline message of several buffers. The owner of writing uses it.
	inline []byte
}

const rbufMR, sbufMR, tableMR, recvsMR = 0, 1, 2, 3

// setUp makes the objects, once the ID has a device, and posts the receives. mu is held.
//
// +checklocks:st.mu
func (st *Stream) setUp() (err error) {
	dev := st.id.Verbs()
	if st.opts, err = st.opts.effective(dev); err != nil {
		return err
	}
	o, r := &st.opts, &st.res
	st.words = requests(dev) > 1
	if r.ch, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	r.event = r.ch.Ready()
	seam.OnEvent(r.ch, st.asleep.wake)
	recvs := o.RQSize + spareRecvs
	if r.cq, err = dev.CreateCQ(o.SQSize*requests(dev)+recvs, &verbs.CQOptions{Channel: r.ch}); err != nil {
		return err
	}
	if err = r.register(st.id.PD(), o, st.words); err != nil {
		return err
	}
	init := &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, SigAll: true, Cap: verbs.QPCap{
		MaxSendWR: uint32(o.SQSize * requests(dev)), MaxRecvWR: uint32(recvs), MaxSendSGE: 2, MaxRecvSGE: 1,
		MaxInlineData: uint32(max(o.Inline, minInline)),
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

// register allocates the memory and registers it with the device.
func (r *resources) register(pd *verbs.PD, o *Options, words bool) (err error) {
	const align = 64
	table := (o.RecvBuf + o.SendBuf + align - 1) &^ (align - 1)
	recvs := table + rs.TableLen(rs.Unscale(rs.Scale(o.IOMaps)))
	total := recvs
	if words {
		total += wordLen * (o.RQSize + spareRecvs)
	}
	if r.mem, r.free, err = allocate(total); err != nil {
		return err
	}
	r.rbuf, r.sbuf, r.table = r.mem[:o.RecvBuf:o.RecvBuf], r.mem[o.RecvBuf:o.RecvBuf+o.SendBuf], r.mem[table:recvs]
	r.recvs = r.mem[recvs:total]
	const remote = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	for _, m := range []struct {
		i      int
		buf    []byte
		access verbs.AccessFlags
	}{{rbufMR, r.rbuf, remote}, {sbufMR, r.sbuf, verbs.AccessLocalWrite}, {tableMR, r.table, remote},
		{recvsMR, r.recvs, verbs.AccessLocalWrite}} {
		if len(m.buf) == 0 {
			continue
		}
		if r.mrs[m.i], err = pd.RegMR(m.buf, m.access); err != nil {
			return err
		}
	}
	return nil
}

// connData returns the private data of the request or of the reply.
func (st *Stream) connData() []byte {
	r, o := &st.res, &st.opts
	d := rs.ConnData{
		Flags: rs.HostFlags(), Credits: uint16(o.RQSize), IOMaps: rs.Scale(o.IOMaps),
		Table: rs.SGE{Addr: r.mrs[tableMR].Addr(), Key: r.mrs[tableMR].RKey(), Length: rs.TableEntries},
		Data:  rs.SGE{Addr: r.mrs[rbufMR].Addr(), Key: r.mrs[rbufMR].RKey(), Length: uint32(o.RecvBuf / 2)},
	}
	return d.Append(make([]byte, 0, rs.ConnDataLen))
}

// release destroys all objects. No call uses them: reading and writing were free after closed was set, and later
// owners of mu find streamClosed.
func (st *Stream) release() {
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
	publish := st.publish
	st.publish = publishing{}
	st.mu.Unlock()
	if st.id != nil {
		if st.res.qp != nil {
			_ = st.id.DestroyQP()
		}
	}
	publish.release()
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
	st.hub.Leave()
}

// fail ends the connection with an error. mu is held.
//
// +checklocks:st.mu
func (st *Stream) fail(err error) {
	if st.state == streamFailed || st.state == streamClosed {
		return
	}
	st.state, st.err = streamFailed, err
	st.wakeAll()
	st.endHandshake()
}

// endHandshake passes the stream to its acceptor, once. mu is held.
//
// +checklocks:st.mu
func (st *Stream) endHandshake() {
	if a := st.acceptor; a != nil {
		st.acceptor = nil
		a.onReady(st)
	}
}

// breakOff is fail for a peer that broke the protocol. It also disconnects. mu is held.
//
// +checklocks:st.mu
func (st *Stream) breakOff(err error) {
	st.fail(&verbs.Error{Op: "rsocket", Obj: st.name(), Errno: syscall.EPROTO, Err: err})
	if st.id != nil {
		_ = st.id.Disconnect(background)
	}
}

// wakeAll wakes all waiters. mu is held.
//
// +checklocks:st.mu
func (st *Stream) wakeAll() {
	st.read.waiter.Wake()
	st.write.waiter.Wake()
	st.others.Wake()
}

func (st *Stream) name() string {
	if st.id == nil {
		return "stream"
	}
	return fmt.Sprintf("%v-%v", st.id.LocalAddr(), st.id.PeerAddr())
}

// IsConnecting reports whether the connection is being made.
func (st *Stream) IsConnecting() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.state == streamConnecting
}

// IsOver reports whether there was a connection, or an attempt, that has ended.
func (st *Stream) IsOver() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed || st.state == streamFailed || st.state == streamConnected && st.m.Disconnected()
}

// TakeError returns the error that ended the connection, once.
func (st *Stream) TakeError() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.errTold {
		return nil
	}
	st.errTold = st.err != nil
	return st.err
}

// LocalAddr returns the local address.
func (st *Stream) LocalAddr() netip.AddrPort { return st.id.LocalAddr() }

// PeerAddr returns the address of the peer.
func (st *Stream) PeerAddr() netip.AddrPort { return st.id.PeerAddr() }

// recvs are receives without memory: message words come as immediate data.
var recvs [64]verbs.RecvWR

// postRecvs posts a receive for each one that was consumed. mu is held.
//
// +checklocks:st.mu
func (st *Stream) postRecvs() error {
	for st.unposted > 0 {
		list := recvs[:min(st.unposted, len(recvs))]
		if st.words {
			list = st.nextRecvs(len(list))
		}
		n := len(list)
		if err := st.res.qp.PostRecv(list...); err != nil {
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
//
// +checklocks:st.mu
func (st *Stream) postControls() {
	for {
		c, ok := st.m.NextControl()
		if !ok {
			return
		}
		st.postMessage(&verbs.SendWR{
			WRID: wrControl, Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: c.Payload[:c.N], ImmData: c.Word,
			RemoteAddr: c.Remote.Addr, RKey: c.Remote.Key,
		})
	}
}

// post posts a request, for which there is room. mu is held.
//
// +checklocks:st.mu
func (st *Stream) post(wr *verbs.SendWR) {
	st.sentOnce = true
	if err := st.res.qp.PostSend(*wr); err != nil {
		st.fail(err)
	}
}

// pieces returns the SGEs of data in the send buffer. They are valid until the next call.
func (r *resources) pieces(d *rs.Data) []verbs.SGE {
	list := r.sges[:0]
	for _, b := range d.Buf {
		if b.Len > 0 {
			list = append(list, r.mrs[sbufMR].SGE(b.Off, b.Len))
		}
	}
	return list
}

// SetKeepalive starts to check an idle peer at intervals of every; 0 ends it.
func (st *Stream) SetKeepalive(every time.Duration) {
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

// keepAlive sends a WRITE of 0 bytes if no request was posted during the interval (W-RS-12). A peer that is gone
// does not acknowledge it.
func (st *Stream) keepAlive(every time.Duration) {
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

// onEvent processes an event of the connection manager.
func (st *Stream) onEvent(ev *cmEvent) {
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
			st.fail(connectError(endError(ev.Type)))
			return
		}
		st.progress() // data that arrived before can still be read
		st.m.Disconnect()
		st.wakeAll()
	}
}

// endError is the reason of an event that ends a connection before it is made.
func endError(t rdmacm.EventType) error {
	if t == rdmacm.EventDeviceRemoval {
		return errGone
	}
	return syscall.ECONNRESET
}

// onEstablished starts the connection. A client gets the peer's parameters from the private data, a server has them
// from the request. mu is held.
//
// +checklocks:st.mu
func (st *Stream) onEstablished(private []byte) {
	if st.state != streamConnecting {
		return
	}
	if !st.peerKnown {
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
	st.endHandshake()
}

// versionError returns the error of private data that cannot be parsed.
func versionError(err error) error {
	errno := syscall.EPROTO
	if errors.Is(err, rs.ErrVersion) {
		errno = syscall.ENOTSUP
	}
	return &verbs.Error{Op: "connect", Errno: errno, Err: err}
}

// Hub returns the hub of the stream's host.
func (st *Stream) Hub() *Hub { return st.hub }

// SetRoute makes Connect use a route instead of resolving one: an array of struct ibv_path_data. It is called
// before Connect.
func (st *Stream) SetRoute(route []byte) { st.route = route }

// Options returns the sizes in use.
func (st *Stream) Options() Options {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.opts
}

// Paths returns the paths in use.
func (st *Stream) Paths() []rdmacm.PathRec { return st.id.Route().PathRec }

// Reading returns the mode of a read that waits until the read deadline.
func (st *Stream) Reading() WaitMode { return WaitMode{deadline: &st.read.deadline} }

// Writing returns the mode of a write that waits until the write deadline.
func (st *Stream) Writing() WaitMode { return WaitMode{deadline: &st.write.deadline} }

// SetDeadline sets the deadline of reading, of writing or of both; the zero time stands for none.
func (st *Stream) SetDeadline(t time.Time, read, write bool) error {
	if st.IsClosed() {
		return net.ErrClosed
	}
	setDeadlines(t, &st.read, read, &st.write, write)
	return nil
}
