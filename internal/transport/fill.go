package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// fill copies user memory, pieces, and the pad into b, the place that tx has just given a packet with head bytes of headers. Where the packet
// gets an ICRC, a payload in one piece is summed on the way: it is read once instead of twice.
func fill(tx *link.TxBatch, b []byte, head int, pieces ...[]byte) {
	data := b[head:]
	if wire.SumsWhileCopying && len(pieces) == 1 && len(pieces[0]) >= wire.LeastSum+15 && tx.Sums(b) {
		n := len(pieces[0])
		sum := mr.CopySum(data, pieces[0])
		clear(data[n:])
		tx.Summed(wire.Sum(sum, data[n:]), len(data))
		return
	}
	for _, p := range pieces {
		data = data[mr.Copy(data, p):]
	}
	clear(data) // the pad
}
