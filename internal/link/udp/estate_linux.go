package udp

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Bequeath makes room for what the other processes of the path's address send for this one; see link.Heirs.
func (l *Link) Bequeath(path *link.Path) link.Bequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var m *member
	for a := range l.members {
		if a.WithZone("") == path.Src.Unmap().WithZone("") {
			m = l.members[a]
		}
	}
	if m == nil {
		return nil
	}
	if s := m.group.Bequeath(l.lanes[0], path.Dst, path.TClass, path.HopLimit); s != nil {
		return s
	}
	return nil
}

// Datagrams of the dead leave in bursts that a receive buffer has room for.
const (
	lastWords      = 32
	lastWordsPause = time.Millisecond
)

// speakFor sends what processes that have died have left at an address of ours.
func (l *Link) speakFor(a netip.Addr, left []host.Bequest) {
	const packet = wire.BTHLen + wire.DETHLen + wire.MADLen
	b := link.NewTxBatch(lastWords, lastWords*2*packet)
	for i := range left {
		w := &left[i]
		path := &link.Path{Src: a, Dst: w.To, TClass: w.TClass, HopLimit: w.HopLimit}
		pkt := b.Alloc(path, wire.GSIQPN, packet)
		clear(pkt)
		wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, wire.DefaultPKey, wire.GSIQPN, uint32(i), 0)
		wire.DETH(pkt[wire.BTHLen:]).Put(wire.GSIQKey, wire.GSIQPN)
		copy(pkt[wire.BTHLen+wire.DETHLen:], w.MAD)
		if b.Count() == lastWords || i == len(left)-1 {
			l.ports[0].Send(b)
			time.Sleep(lastWordsPause)
		}
	}
}
