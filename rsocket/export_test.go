package rsocket

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// WakeUpEvery sets wake_up_interval until the test is over.
func WakeUpEvery(t *testing.T, d time.Duration) { configured(t, func(c *defaults) { c.wakeUp = d }) }

// TakeSendSlots uses all send slots of a datagram socket that knows one peer's QP, or is about to, as if the device had not sent what is in
// them. release gives them back, one of them by sending a message to nobody.
func (s *Socket) TakeSendSlots() (release func() error) { return s.dg.takeSendSlots() }

// TakeSendSlots is the same for a PacketConn.
func (c *PacketConn) TakeSendSlots() (release func() error) { return c.d.takeSendSlots() }

func (d *datagram) takeSendSlots() (release func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
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
		d.mu.Unlock()
		time.Sleep(time.Millisecond)
		d.mu.Lock()
	}
}

func (q *datagramQP) sendToNobody(slot int, ah *verbs.AH) error {
	_, off := q.sendSlot(slot)
	return q.qp.PostSend(verbs.SendWR{
		WRID: wrSend | uint64(slot), Opcode: verbs.WRSend, SGList: []verbs.SGE{q.mr.SGE(off, rs.HeaderLen4)}, AH: ah, RemoteQPN: 0xABCDE,
	})
}

// LoseAddress has the QPs of a datagram socket begin at another address than theirs, as if the device had lost it, until restore is
// called.
func LoseAddress(c net.PacketConn) (restore func()) {
	d := c.(*PacketConn).d
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []func()
	for _, q := range d.qps {
		old := q.local
		q.local = netip.MustParseAddr("203.0.113.9")
		list = append(list, func() { q.local = old })
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, f := range list {
			f()
		}
	}
}

// KnowsQP tells whether messages of a datagram socket to a peer go to its QP.
func KnowsQP(c net.PacketConn, to net.Addr) bool {
	d := c.(*PacketConn).d
	d.mu.Lock()
	defer d.mu.Unlock()
	dst := d.dests[d.zoned(addrPort(to))]
	return dst != nil && dst.ah != nil
}

// DeliverTwo delivers two messages with one wake-up, as it is when the second comes before anybody has taken the token of the first.
func (c *PacketConn) DeliverTwo(from net.Addr, first, second string) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, datagramMsg{from: addrPort(from), data: []byte(first)})
	d.deliver(datagramMsg{from: addrPort(from), data: []byte(second)})
	d.pooled += 2
}
