package rsocket

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// grhLen is what a UD receive has in front of the message.
const grhLen = 40

// datagramQP is the UD QP for a local address. It is guarded by datagram.mu. A goroutine of its own waits for the CQ while nobody
// polls.
type datagramQP struct {
	id    *rdmacm.ID
	local netip.Addr
	zone  string // of its link-local peers: messages do not tell it
	ch    *verbs.CompChannel
	cq    *verbs.CQ
	qp    *verbs.QP
	mr    *verbs.MR
	mem   []byte // slots of receives, then slots of sends
	slots int
	free  []int // send slots
	gone  bool
}

const recvSlot = grhLen + rs.DatagramMax

// newDatagramQP makes the QP.
func newDatagramQP(h *rdmacm.Host, local netip.Addr, slots int) (q *datagramQP, err error) {
	q = &datagramQP{local: local, slots: slots}
	defer func() {
		if err != nil {
			q.close()
			q = nil
		}
	}()
	if q.id, err = h.CreateID(nil, rdmacm.PSUDP, nil); err != nil {
		return q, err
	}
	if err = q.id.BindAddr(netip.AddrPortFrom(local, 0)); err != nil {
		return q, err
	}
	dev := q.id.Verbs()
	if q.ch, err = dev.CreateCompChannel(); err != nil {
		return q, err
	}
	if q.cq, err = dev.CreateCQ(2*slots, &verbs.CQOptions{Channel: q.ch}); err != nil {
		return q, err
	}
	if q.mem, err = verbs.AllocBuffer(slots * (recvSlot + rs.DatagramMax)); err != nil {
		return q, err
	}
	if q.mr, err = q.id.PD().RegMR(q.mem, verbs.AccessLocalWrite); err != nil {
		return q, err
	}
	n := uint32(slots)
	err = q.id.CreateQP(nil, &verbs.QPInitAttr{
		SendCQ: q.cq, RecvCQ: q.cq, SigAll: true, Cap: verbs.QPCap{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return q, err
	}
	q.qp = q.id.QP()
	for i := range slots {
		q.free = append(q.free, i)
		q.postRecv(i)
	}
	return q, q.cq.ReqNotify(false)
}

// wrSend marks the WRID of a send; the rest is the slot.
const wrSend = 1 << 32

func (q *datagramQP) postRecv(slot int) {
	if !q.gone {
		_ = q.qp.PostRecv(verbs.RecvWR{WRID: uint64(slot), SGList: []verbs.SGE{q.mr.SGE(slot*recvSlot, recvSlot)}})
	}
}

// sendSlot is the memory of a send slot and where it begins.
func (q *datagramQP) sendSlot(slot int) ([]byte, int) {
	off := q.slots*recvSlot + slot*rs.DatagramMax
	return q.mem[off : off+rs.DatagramMax], off
}

// progress takes what has come.
func (q *datagramQP) progress(d *datagram) (any bool) {
	var wcs [16]verbs.WC
	for !q.gone {
		n, err := q.cq.Poll(wcs[:])
		if err != nil || n == 0 {
			break
		}
		any = true
		for i := range wcs[:n] {
			wc := &wcs[i]
			slot := int(uint32(wc.WRID))
			switch {
			case wc.WRID&wrSend != 0:
				q.free = append(q.free, slot)
				d.write.waiter.wake()
				d.others.wake()
			case wc.Status != verbs.WCSuccess:
			case !q.received(d, slot, int(wc.ByteLen)):
				q.postRecv(slot)
			}
		}
	}
	return any
}

// received takes a message. It tells whether the message keeps its slot.
func (q *datagramQP) received(d *datagram, slot, n int) bool {
	if n < grhLen {
		return false
	}
	from, payload, ok := rs.ParseHeader(q.mem[slot*recvSlot+grhLen : slot*recvSlot+n])
	if !ok || from.Addr().Is4() != (d.domain == Inet) {
		return false
	}
	return d.deliver(datagramMsg{from: within(from, q.zone), data: payload, qp: q, slot: slot})
}

// watch takes what comes while nobody polls, until the channel is closed.
func (q *datagramQP) watch(d *datagram) {
	for {
		cq, err := q.ch.GetEvent(context.Background())
		if err != nil {
			return
		}
		cq.AckEvents(1)
		d.mu.Lock()
		if q.gone || q.cq.ReqNotify(false) != nil {
			d.mu.Unlock()
			return
		}
		q.progress(d)
		d.mu.Unlock()
	}
}

// drainTime bounds the wait for sends that are under way when the socket is closed.
const drainTime = 100 * time.Millisecond

// drain lets the device send what was posted, and makes the QP unusable. datagram.mu is held.
func (q *datagramQP) drain() {
	end := time.Now().Add(drainTime)
	var wcs [16]verbs.WC
	for i := 0; len(q.free) < q.slots && time.Now().Before(end) && i < 1000; i++ {
		n, err := q.cq.Poll(wcs[:])
		if err != nil {
			break
		}
		for _, wc := range wcs[:n] {
			if wc.WRID&wrSend != 0 {
				q.free = append(q.free, 0)
			}
		}
	}
	q.gone = true
}

// close destroys the QP.
func (q *datagramQP) close() {
	if q.qp != nil {
		_ = q.id.DestroyQP()
	}
	if q.cq != nil {
		_ = q.cq.Close()
	}
	if q.ch != nil {
		_ = q.ch.Close()
	}
	if q.mr != nil {
		_ = q.mr.Close()
	}
	if q.mem != nil {
		_ = verbs.FreeBuffer(q.mem)
	}
	if q.id != nil {
		_ = q.id.Close()
	}
}

// dest is what is known of a peer: the QP on this side that talks to it, and when it has told its QP, that and the way to it.
type dest struct {
	to  netip.AddrPort
	q   *datagramQP
	qpn uint32
	ah  *verbs.AH
}

// dest finds or makes what is known of a peer. mu is held.
func (d *datagram) dest(to netip.AddrPort) (*dest, error) {
	if dst := d.dests[to]; dst != nil {
		return dst, nil
	}
	local, err := d.localFor(to)
	if err != nil {
		return nil, err
	}
	q := d.qps[local]
	if q == nil {
		if q, err = newDatagramQP(d.hub.host, local, d.slots); err != nil {
			return nil, err
		}
		d.qps[local] = q
		d.ended.Go(func() { q.watch(d) })
	}
	if zone := to.Addr().Zone(); zone != "" {
		q.zone = zone
	}
	if len(d.dests) >= maxDests {
		for a, old := range d.dests {
			old.forget()
			delete(d.dests, a)
			break
		}
	}
	dst := &dest{to: to, q: q}
	d.dests[to] = dst
	return dst, nil
}

// localFor is the local address toward a peer: that of the socket, or that which the route has.
func (d *datagram) localFor(to netip.AddrPort) (netip.Addr, error) {
	if a := d.udp.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(); !a.IsUnspecified() {
		return a, nil
	}
	return d.route(to)
}

// route is the local address that the way to a peer begins at.
func (d *datagram) route(to netip.AddrPort) (netip.Addr, error) {
	id, err := d.hub.host.CreateID(nil, rdmacm.PSUDP, nil)
	if err != nil {
		return netip.Addr{}, err
	}
	defer id.Close()
	if err := id.ResolveAddr(context.Background(), netip.AddrPort{}, to, resolveDatagram); err != nil {
		return netip.Addr{}, err
	}
	return id.LocalAddr().Addr(), nil
}

func (dst *dest) forget() {
	if dst.ah != nil {
		_ = dst.ah.Close()
		dst.ah = nil
	}
}

// learn takes the peer's QP, and finds the way to it. If there is none data goes by UDP (W-DS-10).
func (dst *dest) learn(qpn uint32) {
	dst.forget()
	attr, err := dst.path()
	if err != nil {
		return
	}
	if ah, err := dst.q.id.PD().CreateAH(&attr); err == nil {
		dst.ah, dst.qpn = ah, qpn
	}
}

// path is the way to the peer.
func (dst *dest) path() (a verbs.AHAttr, err error) {
	table, err := dst.q.id.Verbs().QueryGIDTable()
	if err != nil {
		return a, err
	}
	a = verbs.AHAttr{IsGlobal: true, PortNum: dst.q.id.PortNum(), GRH: verbs.GlobalRoute{
		DGID: verbs.GIDFromAddr(dst.to.Addr().WithZone("")), HopLimit: 64,
	}}
	own := verbs.GIDFromAddr(dst.q.local)
	for _, e := range table {
		if e.GID == own && e.Port == a.PortNum {
			a.GRH.SGIDIndex = e.Index
			return a, nil
		}
	}
	return a, syscall.EADDRNOTAVAIL
}

// send sends a message to the peer, by its QP if that is known. It tells whether there was room.
func (dst *dest) send(d *datagram, b []byte) (bool, error) {
	if dst.ah == nil {
		return true, dst.byUDP(d, rs.OpData, b)
	}
	q := dst.q
	if len(q.free) == 0 {
		return false, nil
	}
	slot := q.free[len(q.free)-1]
	mem, off := q.sendSlot(slot)
	port := d.udp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	head := rs.AppendHeader(mem[:0], netip.AddrPortFrom(q.local, port))
	n := len(head) + copy(mem[len(head):], b)
	err := q.qp.PostSend(verbs.SendWR{
		WRID: wrSend | uint64(slot), Opcode: verbs.WRSend, SGList: []verbs.SGE{q.mr.SGE(off, n)},
		AH: dst.ah, RemoteQPN: dst.qpn, RemoteQKey: rdmacm.UDPQKey,
	})
	if err == nil {
		q.free = q.free[:len(q.free)-1]
	}
	return true, err
}

// answer tells the peer the QP on this side.
func (dst *dest) answer(d *datagram) { _ = dst.byUDP(d, rs.OpCtrl, nil) }

func (dst *dest) byUDP(d *datagram, op rs.Op, b []byte) error {
	msg := rs.AppendUDPHeader(make([]byte, 0, rs.DatagramMax), op, dst.q.qp.QPN(), dst.q.local)
	_, err := d.udp.WriteToUDPAddrPort(append(msg, b...), dst.to)
	return err
}
