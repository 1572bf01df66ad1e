package sock

import (
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// The functions of this file are for the tests of rsocket and rsocket/socket, which bring sockets into states that
// a real device is in rarely. Nothing else calls them.

// Unserved returns an acceptor that no ID belongs to, and a function that puts a connection into its queue without
// a wake-up.
func Unserved() (a *Acceptor, enqueue func()) {
	a = &Acceptor{queue: make(chan *Stream, 1), done: make(chan struct{})}
	return a, func() { a.queue <- nil }
}

// Queued counts the connections that wait for Accept.
func (a *Acceptor) Queued() int { return len(a.queue) }

// UDPConn returns the UDP socket; nil before there is one.
func (d *Datagram) UDPConn() *net.UDPConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.udp
}

// TakeSendSlots waits until the QP of a peer is known, and then takes all send slots, as if the device had not
// sent what is in them. release returns them, one of them by a send to a QP that does not exist.
func (d *Datagram) TakeSendSlots() (release func() error) {
	for {
		if release = d.tryTakeSendSlots(); release != nil {
			return release
		}
		time.Sleep(time.Millisecond)
	}
}

func (d *Datagram) tryTakeSendSlots() (release func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress()
	for _, dst := range d.dests {
		if dst.ah != nil && len(dst.q.free) == dst.q.slots {
			q, slot, others := dst.q, dst.q.free[0], dst.q.free[1:]
			q.free = nil
			return func() error {
				d.mu.Lock()
				defer d.mu.Unlock()
				q.free = others
				return q.sendToNobody(slot, dst.ah)
			}
		}
	}
	return nil
}

func (q *datagramQP) sendToNobody(slot int, ah *verbs.AH) error {
	_, off := q.sendSlot(slot)
	return q.qp.PostSend(verbs.SendWR{
		WRID: wrSend | uint64(slot), Opcode: verbs.WRSend, SGList: []verbs.SGE{q.mr.SGE(off, rs.HeaderLen4)},
		AH: ah, RemoteQPN: 0xABCDE,
	})
}

// LoseAddress gives the QPs another local address, as if the device had lost theirs, until restore is called.
func (d *Datagram) LoseAddress() (restore func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := map[*datagramQP]netip.Addr{}
	for _, q := range d.qps {
		old[q] = q.local
		q.local = netip.MustParseAddr("203.0.113.9")
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for q, addr := range old {
			q.local = addr
		}
	}
}

// KnowsQP reports whether messages to a peer go to its QP.
func (d *Datagram) KnowsQP(to netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	dst := d.dests[d.zoned(to)]
	return dst != nil && dst.ah != nil
}

// Meet tells the socket the QP of another one, as its answer does. The other socket has a QP.
func (d *Datagram) Meet(other *Datagram) error {
	addr, qpn := other.Local(), uint32(0)
	other.mu.Lock()
	for _, q := range other.qps {
		qpn = q.qp.QPN()
	}
	other.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	dst, err := d.dest(addr)
	if err == nil {
		dst.learn(qpn)
	}
	return err
}

// DeliverTwo queues two messages with one wake-up, as if the second had arrived before the token of the first was
// taken.
func (d *Datagram) DeliverTwo(from netip.AddrPort, first, second string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, datagramMsg{from: from, data: []byte(first)})
	d.deliver(datagramMsg{from: from, data: []byte(second)})
	d.pooled += 2
}

// Watchers counts the waiters of Watch.
func (a *Acceptor) Watchers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.others)
}
