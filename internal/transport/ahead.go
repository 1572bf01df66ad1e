package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// aheadBytes limits the bytes that are read at once. One call that reads longer makes the peer wait for its
// acknowledgements.
const aheadBytes = 256 << 10

// readAhead reads the payload of the current packet, a whole WRITE without immediate data whose destination is dst,
// together with those of the WRITEs that follow it in its batch: a call for each costs more than the checks that are
// made twice. Each WRITE is executed in its turn nevertheless, and copies its payload if its destination is another one
// by then. A later WRITE can be refused in its turn, because its region ended meanwhile, or lost, because its sender
// took the payload back. Its bytes were then written while that was permitted, as those of a WRITE that came in time
// and was not acknowledged.
func (r *responder) readAhead(p wire.Packet, dst []byte) {
	a := r.data.away
	if a == nil || len(a.Batch) < 2 || a.InRun() || r.epoch.Over() || p.BTH().Opcode() != wire.WriteOnly {
		return
	}
	first, last := &a.Batch[0], a
	seq, total := psn.Add(r.epsn, r.span), a.N
	last.To = dst
	for i := range a.Batch[1:] {
		q := &a.Batch[1+i]
		if !alike(first, q) || wire.BTH(q.Data).PSN() != seq || total+q.Away.N > aheadBytes {
			break
		}
		h := wire.Packet(q.Data).RETH()
		if int(h.DMALen()) != q.Away.N {
			break
		}
		to, window, err := r.qp.Regions.CheckRemote(h.RKey(), h.Addr(), uint64(q.Away.N), r.pd, r.qp.id, mr.RemoteWrite)
		if err != nil || window != nil {
			window.Release()
			break
		}
		last.Next = q.Away
		last, last.Next.To = q.Away, to
		seq, total = psn.Add(seq, r.packets(uint32(q.Away.N))), total+q.Away.N
	}
	if last != a {
		a.ReadRun()
	}
}

// alike reports whether the payload of q is away too, and q passes the checks that the packet p of the same batch has
// passed, but for its PSN.
func alike(p, q *link.RxPacket) bool {
	if q.Away == nil || q.Epoch.Over() || q.Src != p.Src || q.Dst != p.Dst {
		return false
	}
	g, h := wire.BTH(p.Data), wire.BTH(q.Data)
	return g[0] == h[0] && g[1] == h[1] && g.PKey() == h.PKey() && g.DestQPN() == h.DestQPN()
}
