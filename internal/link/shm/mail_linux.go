package shm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A message about a connection names the process that it is for, so it can go through the ring to that process
// (decision 52).

// detours has the connections whose last message went over the other link, by of, because the rings were not ready or
// were full. Their next messages do so too. Through the ring they might overtake it.
type detours [1 << detourBits]uint32

const detourBits = 10

// of returns the place of a connection. Two connections may have the same.
func (d *detours) of(conn uint32) *uint32 { return &d[conn*0x9E3779B1>>(32-detourBits)] }

// sendMail moves the datagrams of a batch for QP 1 of processes of this host into rings, where that is possible.
func (p *port) sendMail(b *link.TxBatch) {
	left := b.Packets[:0]
	for i := range b.Packets {
		t := b.Packets[i]
		data := b.Buf[t.Off : t.Off+t.Len-wire.ICRCLen]
		if wire.BTH(data).DestQPN() != wire.GSIQPN || !p.post(t.Path, data) {
			left = append(left, t)
		}
	}
	b.Packets = left
}

// post writes a packet for QP 1 into a ring. It reports false if the packet must go over the other link.
func (p *port) post(path *link.Path, pkt []byte) bool {
	qpn, conn, ok := p.link.mail.Recipient(pkt)
	if !ok || path.Dst.IsMulticast() {
		return false
	}
	detour := p.detours.of(conn)
	if *detour == conn {
		return false
	}
	rings := p.routeTo(routeKey{path.Dst, qpn}).rings.Load()
	if rings != nil && rings.end.Load() == ringsOpen {
		to := rings.tx[p.index][rings.table.find(qpn)]
		if b, lost := to.place(path, len(pkt), kindPacket); b != nil && !lost {
			copy(b, pkt)
			p.placed(to, len(pkt))
			return true
		}
	}
	*detour = conn
	return false
}

// SetScreen sets what drops management packets early; see link.Screener.
func (l *Link) SetScreen(s link.Screen) {
	if s == nil {
		l.screen.Store(nil)
	} else {
		l.screen.Store(&s)
	}
	l.Link.Capabilities().Screener.SetScreen(s)
}

// screened reports whether the screen drops a packet for QP 1, BTH to pad.
func (l *Link) screened(pkt []byte) bool {
	const mads = wire.BTHLen + wire.DETHLen
	s := l.screen.Load()
	return s != nil && len(pkt) == mads+wire.MADLen && (*s).Drop(pkt[mads:])
}
