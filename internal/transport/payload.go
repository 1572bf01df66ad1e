package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// copyPayload copies the pieces of user memory and the pad bytes into b, a packet that tx has just allocated with
// head bytes of headers. If the packet carries an ICRC, a payload in one piece is checksummed while it is copied, so
// it is read once instead of twice.
func copyPayload(tx *link.TxBatch, b []byte, head int, pieces ...[]byte) {
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
