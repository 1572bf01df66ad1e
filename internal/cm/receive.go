package cm

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// OnMAD takes a datagram that came to QP 1 from src to the device's address dst, with P_Key and Q_Key checked. pkey is
// the device's key that permitted it; 0 means the default. A bad one is dropped and counted.
func (m *Machine) OnMAD(now int64, pkey uint16, src, dst netip.Addr, mad []byte, out *Batch) {
	msg, err := cmmsg.Parse(mad)
	if err != nil || !src.IsValid() || !dst.IsValid() {
		m.Counters.RxMalformed++
		return
	}
	m.Counters.Rx.add(msg.Kind())
	m.answers.now = now
	back := link.Path{Src: dst, Dst: src, PKey: pkey}
	switch msg.Kind() {
	case cmmsg.KindREQ:
		m.onREQ(now, &back, msg, out)
	case cmmsg.KindMRA:
		m.onMRA(now, &back, msg)
	case cmmsg.KindREJ:
		m.onREJ(now, &back, msg, out)
	case cmmsg.KindREP:
		m.onREP(now, &back, msg, out)
	case cmmsg.KindRTU:
		m.onRTU(&back, msg, out)
	case cmmsg.KindDREQ:
		m.onDREQ(now, &back, msg, out)
	case cmmsg.KindDREP:
		m.onDREP(now, &back, msg, out)
	case cmmsg.KindSIDRREQ:
		m.onSIDRREQ(now, &back, msg, out)
	case cmmsg.KindSIDRREP:
		m.onSIDRREP(&back, msg, out)
	case cmmsg.KindLAP:
		m.onLAP(&back, msg, out)
	case cmmsg.KindAPR:
		m.onAPR(&back, msg, out)
	}
}

// find finds the connection with both communication IDs of a message. The message must come from its peer.
func (m *Machine) find(back *link.Path, msg cmmsg.Msg) *ID {
	id := m.ids[msg.RemoteID()]
	switch {
	case id == nil:
		m.Counters.RxUnmatched++
		return nil
	case !id.ownPath(back):
		m.Counters.RxSpoofed++
		return nil
	case id.remoteID != msg.LocalID():
		m.Counters.RxUnmatched++
		return nil
	}
	return id
}

// Wants reports whether a datagram from src belongs to a connection, a look-up or a listener of this machine, or to a
// listener that has just ended. If several machines share a device's QP 1, the one that wants a datagram gets it. A
// datagram that none wants goes to one of them, always the same, which refuses it.
func (m *Machine) Wants(src netip.Addr, mad []byte) bool {
	msg, err := cmmsg.Parse(mad)
	if err != nil || !src.IsValid() {
		return false
	}
	gid := cmmsg.GID(src)
	switch msg.Kind() {
	case cmmsg.KindREQ:
		r := cmmsg.REQ(msg.Data())
		return m.peers[peerKey{gid, r.LocalGUID(), r.LocalID()}] != nil || m.serves(r.ServiceID())
	case cmmsg.KindSIDRREQ:
		r := cmmsg.SIDRREQ(msg.Data())
		return m.sidr[sidrKey{gid, r.RequestID()}] != nil || m.serves(r.ServiceID())
	case cmmsg.KindSIDRREP:
		return m.ids[msg.LocalID()] != nil
	case cmmsg.KindREJ:
		if r := cmmsg.REJ(msg.Data()); r.Reason() == cmmsg.RejTimeout && len(r.ARI()) >= 8 {
			return m.peers[peerKey{gid, be.Uint64(r.ARI()), r.LocalID()}] != nil
		}
	}
	return m.ids[msg.RemoteID()] != nil
}
