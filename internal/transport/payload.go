package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// copyPayload copies the pieces of user memory and the pad bytes into b, a packet that tx has just allocated with
// head bytes of headers. If the packet carries an ICRC, a payload in one piece is checksummed while it is copied, so
// it is read once instead of twice.
//
// It returns false if the program has unmapped the memory. The packet cannot be taken back, so it becomes one that its
// receiver drops.
func copyPayload(tx *link.TxBatch, b []byte, head int, pieces ...[]byte) bool {
	data := b[head:]
	if wire.SumsWhileCopying && len(pieces) == 1 && len(pieces[0]) >= wire.LeastSum+15 && tx.Sums(b) {
		n := len(pieces[0])
		sum, ok := mr.CopySum(data, pieces[0])
		if !ok {
			return spoil(b, head)
		}
		clear(data[n:])
		tx.Summed(wire.Sum(sum, data[n:]), len(data))
		return true
	}
	for _, p := range pieces {
		n, ok := mr.Copy(data, p)
		if !ok {
			return spoil(b, head)
		}
		data = data[n:]
	}
	clear(data) // the pad
	return true
}

// spoil gives a packet an invalid P_Key and no content. It returns false.
func spoil(b []byte, head int) bool {
	wire.BTH(b).SetPKey(0)
	clear(b[head:])
	return false
}
