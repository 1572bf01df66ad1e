package rsocket

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
)

// datagram is a datagram socket: a UDP socket of the system, whose address is the socket's, and a UD QP for each local address in
// use. The first message to a peer goes by UDP and tells it the QP; when the peer has answered with its own, messages go
// from QP to QP. mu guards everything.
type datagram struct {
	hub    *hub
	domain Domain
	slots  int // of each QP, and of the queue

	mu      sync.Mutex
	udp     *net.UDPConn
	options []udpOption // for the UDP socket to come
	to      netip.AddrPort
	qps     map[netip.Addr]*datagramQP
	dests   map[netip.AddrPort]*dest
	queue   []datagramMsg
	pooled  int // messages in the queue that came by UDP
	closed  bool
	ended   sync.WaitGroup

	read, write side
	others      waiters
}

type udpOption struct{ level, name, value int }

// datagramMsg is a message that has come and was not received yet.
type datagramMsg struct {
	from netip.AddrPort
	data []byte
	qp   *datagramQP // in whose slot the data is; nil for that of UDP
	slot int
}

const (
	// maxDests bounds the peers that are remembered. Whoever is forgotten is found again.
	maxDests = 4096
	// resolveDatagram is the time for each step of finding the way to a peer (W-DS-10).
	resolveDatagram = 2 * time.Second
)

func newDatagram(b *hub, domain Domain, o Options) (*datagram, error) {
	slots := max(1, min(o.RecvBuf/rs.DatagramMax, o.RQSize))
	d := &datagram{hub: b, domain: domain, slots: slots, qps: map[netip.Addr]*datagramQP{}, dests: map[netip.AddrPort]*dest{}}
	d.read.waiter, d.write.waiter = newWaiter(), newWaiter()
	return d, nil
}

// MaxDatagram4 and MaxDatagram6 are the largest messages of datagram sockets, by IPv4 and by IPv6. To a peer that has not told its QP yet,
// as it does after the first message, they go by UDP: librdmacm truncates those to 2032 and 2020 bytes.
const (
	MaxDatagram4 = rs.DatagramMax - rs.HeaderLen4
	MaxDatagram6 = rs.DatagramMax - rs.HeaderLen6
)

func (d *datagram) max() int {
	if d.domain == Inet {
		return MaxDatagram4
	}
	return MaxDatagram6
}

func (d *datagram) bind(addr netip.AddrPort) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.udp != nil {
		return fail("rbind", syscall.EINVAL, "the socket is bound")
	}
	return d.open(addr)
}

// open makes the UDP socket. mu is held.
func (d *datagram) open(addr netip.AddrPort) error {
	if d.closed {
		return net.ErrClosed
	}
	if d.udp != nil {
		return nil
	}
	network := "udp4"
	if d.domain == Inet6 {
		network = "udp6"
	}
	var at *net.UDPAddr
	if addr.IsValid() {
		at = net.UDPAddrFromAddrPort(addr)
	}
	c, err := net.ListenUDP(network, at)
	if err != nil {
		return err
	}
	d.udp = c
	for _, o := range d.options {
		_ = setUDP(c, o)
	}
	d.ended.Go(func() { d.receiveUDP(c) })
	return nil
}

func (d *datagram) setUDPOption(level, name, value int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := udpOption{level, name, value}
	if d.udp != nil {
		_ = setUDP(d.udp, o) // what the system does not know is the socket's own
		return nil
	}
	d.options = append(d.options, o)
	return nil
}

func (d *datagram) connect(to netip.AddrPort) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !to.IsValid() || to.Addr().Unmap().Is4() != (d.domain == Inet) {
		return fail("rconnect", syscall.EINVAL, "%v is of another family than the socket", to)
	}
	to = d.zoned(to)
	var at netip.AddrPort
	if d.udp == nil {
		// The peer must see the address of the RDMA device.
		if local, err := d.route(to); err == nil {
			at = netip.AddrPortFrom(local, 0)
		}
	}
	d.to = to
	return d.open(at)
}

func (d *datagram) peer() netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.to
}

func (d *datagram) local() netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.udp == nil {
		if d.domain == Inet {
			return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		}
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return unmapped(d.udp.LocalAddr().(*net.UDPAddr).AddrPort())
}

func (d *datagram) send(b []byte, p patience) (int, error) {
	to := d.peer()
	if !to.IsValid() {
		return 0, syscall.EDESTADDRREQ
	}
	return d.sendTo(b, to, p)
}

// sendTo sends a message.
func (d *datagram) sendTo(b []byte, to netip.AddrPort, p patience) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to = d.zoned(to)
	switch {
	case len(b) > d.max():
		return 0, fail("rsendto", syscall.EMSGSIZE, "%d bytes; %d are the most", len(b), d.max())
	case p.expired():
		return 0, os.ErrDeadlineExceeded
	case to.Addr().Is4() != (d.domain == Inet) || to.Port() == 0:
		return 0, fail("rsendto", syscall.EINVAL, "%v is no destination for the socket", to)
	}
	if err := d.open(netip.AddrPort{}); err != nil {
		return 0, err
	}
	dst, err := d.dest(to)
	if err != nil {
		return 0, err
	}
	for {
		switch sent, err := dst.send(d, b); {
		case err != nil:
			return 0, err
		case sent:
			if len(dst.q.free) > 0 {
				d.write.waiter.wake() // for the next one
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

// recvFrom receives a message. What does not fit in b is lost.
func (d *datagram) recvFrom(b []byte, flags Flags, p patience) (int, netip.AddrPort, error) {
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
		if len(d.queue) == 0 {
			d.progress()
		}
		if len(d.queue) > 0 {
			m := d.queue[0]
			n := copy(b, m.data)
			if flags&MsgPeek == 0 {
				d.drop()
			}
			if len(d.queue) > 0 {
				d.read.waiter.wake() // for the next one
			}
			return n, m.from, nil
		}
		if err := d.pause(&d.read.waiter, &p); err != nil {
			return 0, netip.AddrPort{}, err
		}
	}
}

// drop takes the first message out of the queue. mu is held.
func (d *datagram) drop() {
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

// deliver puts a message in the queue, unless the socket is connected to another peer. It tells whether it did. mu is held.
func (d *datagram) deliver(m datagramMsg) bool {
	if d.to.IsValid() && m.from != d.to {
		return false
	}
	d.queue = append(d.queue, m)
	d.read.waiter.wake()
	d.others.wake()
	return true
}

// progress takes what has come to the QPs. mu is held.
func (d *datagram) progress() (any bool) {
	for _, q := range d.qps {
		any = q.progress(d) || any
	}
	return any
}

// pause waits until there may be a change, as stream.pause does. The QPs' goroutines take what comes meanwhile. mu is held, but not
// while it sleeps.
func (d *datagram) pause(w *waiter, p *patience) error {
	switch {
	case d.progress():
		return nil
	case p.nonblock:
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
	case <-w.c:
	case <-over:
		err = os.ErrDeadlineExceeded
	}
	d.mu.Lock()
	if d.closed {
		w.wake() // for the next one
	}
	p.spun = time.Time{}
	return err
}

// spin tells whether the time of busy waiting is not over.
func (d *datagram) spin(p *patience) bool {
	if len(d.qps) == 0 || !p.busy(config().polling) {
		return false
	}
	d.mu.Unlock()
	d.mu.Lock()
	return true
}

// receiveUDP takes what comes to the UDP socket.
func (d *datagram) receiveUDP(c *net.UDPConn) {
	buf := make([]byte, rs.UDPMax) // longer ones are truncated (W-DS-11)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			if d.isClosed() {
				return
			}
			continue // an ICMP message about a peer that has gone
		}
		op, qpn, payload, ok := rs.ParseUDPHeader(buf[:n], d.domain == Inet)
		if ok {
			d.onUDP(op, qpn, payload, unmapped(from))
		}
	}
}

func (d *datagram) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// onUDP takes a message of the UDP socket: it tells the sender's QP, and may bring data.
func (d *datagram) onUDP(op rs.Op, qpn uint32, payload []byte, from netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
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
	if d.deliver(datagramMsg{from: from, data: append([]byte(nil), payload...)}) {
		d.pooled++
	}
}

// close ends everything.
func (d *datagram) close() {
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
	d.read.waiter.wake()
	d.write.waiter.wake()
	d.others.wake()
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
	d.hub.leave()
}

func (d *datagram) pollEvents() (e Events) {
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

func (d *datagram) watch(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.open(netip.AddrPort{})
	d.others.add(w)
}

func (d *datagram) unwatch(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others.remove(w)
}

func (d *datagram) token() <-chan struct{} { return nil }
func (d *datagram) onToken()               {}
