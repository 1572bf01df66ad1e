package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// payload is the data of a packet: bytes, or memory of the peer's process.
type payload struct {
	bytes []byte // nil if away is not
	away  *link.Away
}

func (p payload) len() int {
	if p.away != nil {
		return p.away.N
	}
	return len(p.bytes)
}

// copy copies the bytes from at on to dst, user memory, as many as there are and dst has room for. It returns false if
// the program has unmapped dst. If memory of the peer's process cannot be read, which includes that the program has
// unmapped dst, the payload is void; see payloadIntact.
func (p payload) copy(dst []byte, at int) (ok bool) {
	if p.away == nil {
		_, ok = mr.Copy(dst, p.bytes[at:])
		return ok
	}
	p.away.Read(dst[:min(len(dst), p.away.N-at)], at)
	return true
}

// intact reports whether the payload was still valid after it was copied. e is that of its packet.
func (p payload) intact(e link.Epoch) bool { return !e.Over() && (p.away == nil || !p.away.Failed()) }

// copyPayload is copyPieces for a packet that tx has just allocated and that stays as it is. If the packet carries an
// ICRC, a payload in one piece is checksummed while it is copied, so it is read once instead of twice.
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
	return copyPieces(b, head, pieces...)
}

// copyPieces copies the pieces of user memory and the pad bytes into b, a packet with head bytes before them.
//
// It returns false if the program has unmapped the memory. The packet cannot be taken back, so it becomes one that its
// receiver drops.
func copyPieces(b []byte, head int, pieces ...[]byte) bool {
	data := b[head:]
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
