package sock

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/rs"
)

// Datagram is a datagram socket: a UDP socket of the system, whose address is the socket's, and a UD QP for each
// local address in use. The first message to a peer goes by UDP and contains the number of the QP; when the peer has
// answered with its own, messages go from QP to QP, except those that are longer than a packet.
type Datagram struct {
	hub   *Hub
	v4    bool // the family of addresses
	slots int  // of each QP, and of the queue

	mu sync.Mutex
	// +checklocks:mu
	udp *net.UDPConn
	// +checklocks:mu
	options []udpOption // the last of each name
	// +checklocks:mu
	to netip.AddrPort
	// The UDP socket is connected in the system.
	// +checklocks:mu
	connected bool
	// +checklocks:mu
	qps map[netip.Addr]*datagramQP
	// +checklocks:mu
	dests map[netip.AddrPort]*dest
	// +checklocks:mu
	strangers int // of dests: those that the program has not sent to
	// +checklocks:mu
	queue []datagramMsg
	// +checklocks:mu
	pooled int // messages in the queue that came by UDP
	// +checklocks:mu
	closed bool
	ended  sync.WaitGroup

	read  direction
	write direction
	// +checklocks:mu
	others waiters
}

// datagramMsg is a message in the receive queue.
type datagramMsg struct {
	from netip.AddrPort
	data []byte
	qp   *datagramQP // that has the data in slot; nil for a message by UDP
	slot int
}

const (
	// maxDests bounds the remembered peers. A forgotten peer is resolved again.
	maxDests = 4096
)

// NewDatagram makes a socket for IPv4 or IPv6. The caller has joined the hub; Close leaves it.
func NewDatagram(b *Hub, v4 bool, o Options) *Datagram {
	slots := max(1, min(o.RecvBuf/rs.DatagramMax, o.RQSize))
	d := &Datagram{hub: b, v4: v4, slots: slots, qps: map[netip.Addr]*datagramQP{}, dests: map[netip.AddrPort]*dest{}}
	d.read.waiter, d.write.waiter = NewWaiter(), NewWaiter()
	return d
}

// max returns the largest message in bytes.
func (d *Datagram) max() int {
	if d.v4 {
		return rs.DatagramMax - rs.HeaderLen4
	}
	return rs.DatagramMax - rs.HeaderLen6
}

// Bind opens the UDP socket at an address.
func (d *Datagram) Bind(addr netip.AddrPort) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.udp != nil {
		return Fail("rbind", syscall.EINVAL, "the socket is bound")
	}
	return d.open(addr)
}

// open makes the UDP socket if there is none. mu is held.
//
// +checklocks:d.mu
func (d *Datagram) open(addr netip.AddrPort) error {
	if d.closed {
		return net.ErrClosed
	}
	if d.udp != nil {
		return nil
	}
	c, err := listenUDP(d.v4, addr, d.options)
	if err != nil {
		return err
	}
	d.udp = c
	d.ended.Go(func() { d.receiveUDP(c) })
	return nil
}

// Connect sets the destination of Send, and the only accepted source.
func (d *Datagram) Connect(to netip.AddrPort) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !to.IsValid() || to.Addr().Unmap().Is4() != d.v4 {
		return Fail("rconnect", syscall.EINVAL, "%v: must be of the family of the socket", to)
	}
	to = d.zoned(to)
	var at netip.AddrPort
	if d.udp == nil {
		// The peer must see the address of the RDMA device.
		if local, err := d.route(to); err == nil {
			at = netip.AddrPortFrom(local, 0)
		}
	}
	if err := d.open(at); err != nil {
		return err
	}
	if d.shared() { // the system gives its messages to this socket, and those of others to another one
		if err := connectUDP(d.udp, to); err != nil {
			return err
		}
		d.connected = true
	}
	d.to = to
	return nil
}

// Disconnect removes the destination: the socket receives from all again.
func (d *Datagram) Disconnect() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	if d.connected {
		if err := disconnectUDP(d.udp); err != nil {
			return err
		}
	}
	d.to, d.connected = netip.AddrPort{}, false
	return nil
}

// Peer returns the destination; the zero AddrPort without one.
func (d *Datagram) Peer() netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.to
}

// Local returns the local address; the unspecified one before the UDP socket is opened.
func (d *Datagram) Local() netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.udp == nil {
		if d.v4 {
			return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		}
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return unmapped(d.udp.LocalAddr().(*net.UDPAddr).AddrPort())
}

// Send sends a message to the destination of Connect.
func (d *Datagram) Send(b []byte, p WaitMode) (int, error) {
	to := d.Peer()
	switch {
	case d.IsClosed():
		return 0, net.ErrClosed
	case !to.IsValid():
		return 0, syscall.EDESTADDRREQ
	}
	return d.SendTo(b, to, p)
}

// SendTo sends a message.
func (d *Datagram) SendTo(b []byte, to netip.AddrPort, p WaitMode) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to = d.zoned(to)
	switch {
	case d.closed:
		return 0, net.ErrClosed
	case len(b) > d.max():
		return 0, Fail("rsendto", syscall.EMSGSIZE, "%d bytes: must be at most %d", len(b), d.max())
	case p.expired():
		return 0, os.ErrDeadlineExceeded
	case !to.Addr().IsValid() || to.Addr().Is4() != d.v4 || to.Port() == 0:
		return 0, Fail("rsendto", syscall.EINVAL, "%v: must have a port, and the family of the socket", to)
	}
	if err := d.open(netip.AddrPort{}); err != nil {
		return 0, err
	}
	dst, err := d.dest(to)
	if err != nil {
		return 0, err
	}
	if !dst.sent {
		dst.sent = true
		d.strangers--
	}
	for {
		switch sent, err := dst.send(d, b); {
		case err != nil:
			return 0, err
		case sent:
			if len(dst.q.free) > 0 {
				d.write.waiter.Wake() // for the next waiter
			}
			return len(b), nil
		}
		if err := d.pause(&d.write.waiter, &p); err != nil {
			return 0, err
		}
		if d.closed {
			return 0, net.ErrClosed
		}
	}
}

// RecvFrom receives a message. The part that does not fit in b is lost.
func (d *Datagram) RecvFrom(b []byte, flags RecvFlags, p WaitMode) (int, netip.AddrPort, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open(netip.AddrPort{}); err != nil {
		return 0, netip.AddrPort{}, err
	}
	for {
		switch {
		case d.closed:
			return 0, netip.AddrPort{}, net.ErrClosed
		case p.expired():
			return 0, netip.AddrPort{}, os.ErrDeadlineExceeded
		}
		if len(d.queue) > 0 {
			m := d.queue[0]
			n := min(len(b), len(m.data))
			ok := mr.TryCopy(b, m.data)
			if flags&Peek == 0 {
				d.drop()
			}
			if len(d.queue) > 0 {
				d.read.waiter.Wake() // for the next waiter
			}
			if !ok {
				return 0, m.from, errBuffer
			}
			return n, m.from, nil
		}
		if err := d.pause(&d.read.waiter, &p); err != nil {
			return 0, netip.AddrPort{}, err
		}
	}
}

// drop removes the first message of the queue. mu is held.
//
// +checklocks:d.mu
func (d *Datagram) drop() {
	m := d.queue[0]
	d.queue[0] = datagramMsg{}
	if d.queue = d.queue[1:]; len(d.queue) == 0 {
		d.queue = nil
	}
	if m.qp != nil {
		m.qp.postRecv(m.slot)
	} else {
		d.pooled--
	}
}

// deliver queues a message, unless the socket is connected to another peer. It reports whether it did. mu is held.
//
// +checklocks:d.mu
func (d *Datagram) deliver(m datagramMsg) bool {
	if d.to.IsValid() && m.from != d.to {
		return false
	}
	d.queue = append(d.queue, m)
	d.read.waiter.Wake()
	d.others.Wake()
	return true
}

// progress processes the completions of the QPs, and reports whether there were any. mu is held.
//
// +checklocks:d.mu
func (d *Datagram) progress() (any bool) {
	for _, q := range d.qps {
		any = q.progress(d) || any
	}
	return any
}

// pause waits for a change, as Stream.pause does. Meanwhile the goroutines of the QPs process completions. mu is
// held, but not during the sleep.
//
// +checklocks:d.mu
func (d *Datagram) pause(w *Waiter, p *WaitMode) error {
	switch {
	case d.progress():
		return nil
	case p.Nonblock:
		return errWouldBlock
	case p.expired():
		return os.ErrDeadlineExceeded
	case d.spin(p):
		return nil
	}
	d.mu.Unlock()
	var over <-chan struct{}
	if p.deadline != nil {
		over = p.deadline.wait()
	}
	var err error
	select {
	case <-w.C:
	case <-over:
		err = os.ErrDeadlineExceeded
	}
	d.mu.Lock()
	if d.closed {
		w.Wake() // for the next waiter
	}
	p.spin = Spin{}
	return err
}

// spin reports whether the spin budget is not used up.
//
// +checklocks:d.mu
func (d *Datagram) spin(p *WaitMode) bool {
	if len(d.qps) == 0 {
		return false
	}
	if !p.spin.begun() {
		p.spin.Begin(Config().Polling, nil)
	}
	if !p.spin.Busy() {
		return false
	}
	d.mu.Unlock()
	d.mu.Lock()
	return true
}

// receiveUDP processes the messages of the UDP socket until it is closed.
func (d *Datagram) receiveUDP(c *net.UDPConn) {
	buf := make([]byte, rs.UDPMax) // longer messages are truncated (W-DS-11)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			if d.IsClosed() {
				return
			}
			continue // an ICMP message about an unreachable peer
		}
		op, qpn, payload, ok := rs.ParseUDPHeader(buf[:n], d.v4)
		if ok {
			d.onUDP(op, qpn, payload, unmapped(from))
		}
	}
}

// IsClosed reports whether Close was called.
func (d *Datagram) IsClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// onUDP processes a message of the UDP socket. It names the sender's QP, and may have data. A connected socket ignores
// all senders but its peer.
func (d *Datagram) onUDP(op rs.Op, qpn uint32, payload []byte, from netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.to.IsValid() && from != d.to {
		return
	}
	dst, err := d.dest(from)
	if err == nil && (dst.qpn != qpn || dst.ah == nil) {
		dst.learn(qpn)
	}
	if op != rs.OpData {
		return
	}
	if err == nil {
		dst.answer(d) // W-DS-07
	}
	if d.pooled == d.slots {
		return // no room (R-IO-18)
	}
	d.deliver(datagramMsg{from: from, data: append([]byte(nil), payload...)})
	d.pooled++
}

// Close closes the UDP socket, destroys the QPs and leaves the hub.
func (d *Datagram) Close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	if d.udp != nil {
		_ = d.udp.Close()
	}
	d.queue = nil
	qps := d.qps
	d.qps = map[netip.Addr]*datagramQP{}
	d.read.waiter.Wake()
	d.write.waiter.Wake()
	d.others.Wake()
	for _, dst := range d.dests {
		dst.forget()
	}
	for _, q := range qps {
		q.drain()
	}
	d.mu.Unlock()
	for _, q := range qps {
		q.close()
	}
	d.ended.Wait()
	d.hub.Leave()
}

func (d *Datagram) PollEvents() (e Events) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return PollNval
	}
	d.progress()
	if len(d.queue) > 0 {
		e |= PollIn
	}
	room := true
	for _, q := range d.qps {
		room = room && len(q.free) > 0
	}
	if room {
		e |= PollOut
	}
	return e
}

func (d *Datagram) Watch(w *Waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.open(netip.AddrPort{})
	d.others.add(w)
}

func (d *Datagram) Unwatch(w *Waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others.remove(w)
}

func (d *Datagram) Token() <-chan struct{} { return nil }
func (d *Datagram) OnToken()               {}
func (d *Datagram) OnBell()                {}

// Reading returns the mode of a receive that waits until the read deadline.
func (d *Datagram) Reading() WaitMode { return WaitMode{deadline: &d.read.deadline} }

// Writing returns the mode of a send that waits until the write deadline.
func (d *Datagram) Writing() WaitMode { return WaitMode{deadline: &d.write.deadline} }

// SetDeadline sets the deadline of reading, of writing or of both; the zero time stands for none.
func (d *Datagram) SetDeadline(t time.Time, read, write bool) error {
	if d.IsClosed() {
		return net.ErrClosed
	}
	setDeadlines(t, &d.read, read, &d.write, write)
	return nil
}
