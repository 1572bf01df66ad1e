package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// grhLen is the length in bytes of the GRH in front of a received UD message.
const grhLen = 40

// datagramQP is the UD QP of a local address. It is guarded by Datagram.mu. Its goroutine waits for completions
// while no call polls.
type datagramQP struct {
	id    *rdmacm.ID
	local netip.Addr
	zone  string // of its link-local peers; messages do not contain it
	ch    *verbs.CompChannel
	cq    *verbs.CQ
	qp    *verbs.QP
	mr    *verbs.MR
	mem   []byte // slots of receives, then slots of sends
	slots int
	mtu   int   // bytes of the largest message that the QP sends
	free  []int // send slots
	gone  bool
	over  chan struct{} // closed with the QP
}

const recvSlot = grhLen + rs.DatagramMax

// newDatagramQP makes a QP with the same number of receive and send slots.
func newDatagramQP(h *rdmacm.Host, local netip.Addr, slots int) (q *datagramQP, err error) {
	q = &datagramQP{local: local, slots: slots, over: make(chan struct{})}
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
	if q.mtu, err = smallestMTU(dev); err != nil {
		return q, err
	}
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

// smallestMTU returns the smallest path MTU of a device's ports, in bytes.
func smallestMTU(dev *verbs.Context) (int, error) {
	attr, err := dev.QueryDevice()
	least := verbs.MTU4096
	for i := uint8(1); i <= attr.PhysPortCnt && err == nil; i++ {
		var port verbs.PortAttr
		port, err = dev.QueryPort(i)
		least = min(least, port.ActiveMTU)
	}
	return least.Bytes(), err
}

// wrSend marks the WRID of a send; the rest is the slot.
const wrSend = 1 << 32

// postRecv posts the receive of a slot.
func (q *datagramQP) postRecv(slot int) {
	if !q.gone {
		_ = q.qp.PostRecv(verbs.RecvWR{WRID: uint64(slot), SGList: []verbs.SGE{q.mr.SGE(slot*recvSlot, recvSlot)}})
	}
}

// sendSlot returns the memory of a send slot and its offset.
func (q *datagramQP) sendSlot(slot int) ([]byte, int) {
	off := q.slots*recvSlot + slot*rs.DatagramMax
	return q.mem[off : off+rs.DatagramMax], off
}

// progress processes completions, and reports whether there were any.
//
// +checklocks:d.mu
func (q *datagramQP) progress(d *Datagram) (any bool) {
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
				d.write.waiter.Wake()
				d.others.Wake()
			case wc.Status != verbs.WCSuccess:
			case !q.received(d, slot, int(wc.ByteLen)):
				q.postRecv(slot)
			}
		}
	}
	return any
}

// received processes a received message. It reports whether the message keeps its slot. The address in the header must
// be that of the packet: its sender could name any other one, also that of the only peer of a connected socket.
//
// +checklocks:d.mu
func (q *datagramQP) received(d *Datagram, slot, n int) bool {
	if n < grhLen {
		return false
	}
	from, payload, ok := rs.ParseHeader(q.mem[slot*recvSlot+grhLen : slot*recvSlot+n])
	if !ok || from.Addr().Is4() != d.v4 || wire.GRH(q.mem[slot*recvSlot:][:grhLen]).SrcIP() != from.Addr() {
		return false
	}
	return d.deliver(datagramMsg{from: within(from, q.zone), data: payload, qp: q, slot: slot})
}

// watch processes completions while no call polls, until the channel is closed.
func (q *datagramQP) watch(d *Datagram) {
	for {
		cq, err := q.ch.GetEvent(context.Background())
		if errors.Is(err, syscall.EIO) {
			q.look(d)
		}
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

// look is watch for a QP whose device was removed, which has no events any more. The device may come back, and peers
// send to the QP that they know.
func (q *datagramQP) look(d *Datagram) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-q.over:
			return
		case <-tick.C:
		}
		d.mu.Lock()
		q.progress(d)
		d.mu.Unlock()
	}
}

// lookEvery is the interval of looks.
const lookEvery = 100 * time.Millisecond

// drainTime bounds the wait of Close for posted sends.
const drainTime = 100 * time.Millisecond

// drain waits until the device has sent what was posted, and marks the QP as unusable. Datagram.mu is held.
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
				q.free = append(q.free, int(uint32(wc.WRID)))
			}
		}
	}
	q.gone = true
}

// close destroys the QP, once.
func (q *datagramQP) close() {
	close(q.over)
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

// dest is a peer: the local QP that sends to it, and once the peer has sent its QP number, that number and the
// address handle.
type dest struct {
	to  netip.AddrPort
	q   *datagramQP
	qpn uint32
	ah  *verbs.AH

	sent bool // the program has sent to it
}

// dest returns the dest of a peer, and makes one if necessary. mu is held.
//
// +checklocks:d.mu
func (d *Datagram) dest(to netip.AddrPort) (*dest, error) {
	if dst := d.dests[to]; dst != nil {
		return dst, nil
	}
	local, err := d.localFor(to)
	if err != nil {
		return nil, err
	}
	q := d.qps[local]
	if q == nil {
		if q, err = newDatagramQP(d.hub.Host, local, d.slots); err != nil {
			return nil, err
		}
		d.qps[local] = q
		d.ended.Go(func() { q.watch(d) })
	}
	if zone := to.Addr().Zone(); zone != "" {
		q.zone = zone
	}
	if len(d.dests) >= maxDests {
		d.evict()
	}
	dst := &dest{to: to, q: q}
	d.dests[to] = dst
	d.strangers++
	return dst, nil
}

// evict forgets a peer: if possible one that the program has not sent to, whose address may be forged.
//
// +checklocks:d.mu
func (d *Datagram) evict() {
	var victim *dest
	for _, victim = range d.dests {
		if !victim.sent || d.strangers == 0 {
			break
		}
	}
	if !victim.sent {
		d.strangers--
	}
	victim.forget()
	delete(d.dests, victim.to)
}

// localFor returns the local address toward a peer: the address of the socket, or that of the route.
//
// +checklocks:d.mu
func (d *Datagram) localFor(to netip.AddrPort) (netip.Addr, error) {
	if a := d.udp.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(); !a.IsUnspecified() {
		return a, nil
	}
	return d.route(to)
}

// route returns the local address of the route to a peer. It does not wait for the peer's link address: the source of a
// datagram may be forged, and the socket would wait for hosts that do not exist. A link-local address has the zone of
// the peer, which selects the interface.
func (d *Datagram) route(to netip.AddrPort) (netip.Addr, error) {
	found, err := seam.Toward(d.hub.Host, to.Addr())
	local := found.(netip.Addr)
	if err == nil && isLinkLocal(local) {
		local = local.WithZone(to.Addr().Zone())
	}
	return local, err
}

// forget destroys the address handle.
func (dst *dest) forget() {
	if dst.ah != nil {
		_ = dst.ah.Close()
		dst.ah = nil
	}
}

// learn stores the peer's QP number and resolves its path. Without a path data goes by UDP (W-DS-10).
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

// path returns the address vector of the peer.
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

// send sends a message to the peer: to its QP if the number is known and the message fits a packet, which it must to
// leave the QP in RTS. It reports whether there was room.
//
// +checklocks:d.mu
func (dst *dest) send(d *Datagram, b []byte) (bool, error) {
	if dst.ah == nil || rs.HeaderLen(dst.q.local)+len(b) > dst.q.mtu {
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
	n := len(head) + len(b)
	if !mr.TryCopy(mem[len(head):], b) {
		return true, errBuffer
	}
	err := q.qp.PostSend(verbs.SendWR{
		WRID: wrSend | uint64(slot), Opcode: verbs.WRSend, SGList: []verbs.SGE{q.mr.SGE(off, n)},
		AH: dst.ah, RemoteQPN: dst.qpn, RemoteQKey: rdmacm.UDPQKey,
	})
	if err == nil {
		q.free = q.free[:len(q.free)-1]
	}
	return true, err
}

// answer sends the number of the local QP to the peer.
//
// +checklocks:d.mu
func (dst *dest) answer(d *Datagram) { _ = dst.byUDP(d, rs.OpCtrl, nil) }

// byUDP sends a message through the UDP socket.
//
// +checklocks:d.mu
func (dst *dest) byUDP(d *Datagram, op rs.Op, b []byte) error {
	msg := rs.AppendUDPHeader(make([]byte, 0, rs.DatagramMax), op, dst.q.qp.QPN(), dst.q.local)
	head := len(msg)
	if msg = slices.Grow(msg, len(b))[:head+len(b)]; !mr.TryCopy(msg[head:], b) {
		return errBuffer
	}
	_, err := d.udp.WriteToUDPAddrPort(msg, dst.to)
	return err
}
