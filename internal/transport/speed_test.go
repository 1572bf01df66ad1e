package transport

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// mill posts and acknowledges work requests in a loop, without checks.
type mill struct {
	*sender
	ack  [wire.BTHLen + wire.AETHLen]byte
	resp []byte
	rx   link.RxPacket
	done uint32
}

func (m *mill) Push(e *CQE) { m.qp.SQ.Release(e.Slot); m.done++ }

func newMill(tb testing.TB, typ Type) *mill {
	var t testing.T
	m := &mill{}
	m.sender = newSender(&t, typ, func(c *Config, a *Attr) {
		c.SendCQ = m
		a.MTU = 4096
		if typ == UD {
			c.PortMTU = func() int { return 4096 }
		}
	})
	m.resp = make([]byte, wire.BTHLen+wire.AETHLen+4096)
	m.rx = link.RxPacket{Src: dstAddr, Dst: srcAddr}
	return m
}

// turn posts n requests, sends them and acknowledges them.
func (m *mill) turn(op Op, n, size int, sge SGE) {
	q := m.qp.SQ
	q.Lock()
	for range n {
		w := q.Next()
		w.Op, w.Flags, w.Length = op, 0, uint32(size)
		w.SGEs = append(w.SGEs, sge)
		q.More(w)
		w.Path, w.RemoteQPN = m.qp.path, 5
		q.Commit()
	}
	q.Publish()
	q.Unlock()
	for m.qp.Pending() {
		m.qp.Transmit(m.now, m.tx, 256)
		m.tx.Reset()
		r := &m.qp.req
		if m.qp.Type != RC || r.nxt == r.una {
			continue
		}
		if op == OpRead {
			m.answer()
			continue
		}
		wire.BTH(m.ack[:]).Put(wire.Ack, 0, 0xFFFF, m.qp.Num, psn.Add(r.nxt, -1), 0)
		wire.AETH(m.ack[wire.BTHLen:]).Put(wire.SynAck, 0)
		m.rx.Data = m.ack[:]
		m.qp.OnPacket(m.now, &m.rx)
	}
}

// answer sends the responses of all outstanding READs, each of which fits one packet.
func (m *mill) answer() {
	for r := &m.qp.req; r.nxt != r.una; {
		n := int(r.sq.At(r.head).Length)
		m.rx.Data = m.resp[:wire.BTHLen+wire.AETHLen+n]
		wire.BTH(m.rx.Data).Put(wire.ReadRespOnly, 0, 0xFFFF, m.qp.Num, r.una, 0)
		wire.AETH(m.rx.Data[wire.BTHLen:]).Put(wire.SynAck, 0)
		m.qp.OnPacket(m.now, &m.rx)
	}
}

var speedCases = []struct {
	name string
	typ  Type
	op   Op
	n    int // requests per turn
	size int
}{
	{"RC/SEND/8", RC, OpSend, 32, 8},
	{"RC/WRITE/8", RC, OpWrite, 32, 8},
	{"RC/WRITE/4096", RC, OpWrite, 32, 4096},
	{"RC/WRITE/1MiB", RC, OpWrite, 1, 1 << 20},
	{"RC/READ/8", RC, OpRead, 32, 8},
	{"RC/READ/4096", RC, OpRead, 32, 4096},
	{"UC/SEND/8", UC, OpSend, 32, 8},
	{"UD/SEND/8", UD, OpSend, 32, 8},
}

// In a steady state no work request allocates.
func TestRequesterAllocatesNothing(t *testing.T) {
	for _, c := range speedCases {
		m := newMill(t, c.typ)
		sge := SGE{Addr: memBase, Length: uint32(c.size), LKey: m.mem.LKey}
		before := m.done
		if n := testing.AllocsPerRun(20, func() { m.turn(c.op, c.n, c.size, sge) }); n != 0 {
			t.Errorf("%s: %v allocations for %d requests", c.name, n, c.n)
		}
		if m.done-before != 21*uint32(c.n) {
			t.Errorf("%s: %d requests completed", c.name, m.done-before)
		}
	}
}

func BenchmarkRequester(b *testing.B) {
	for _, c := range speedCases {
		b.Run(c.name, func(b *testing.B) {
			m := newMill(b, c.typ)
			sge := SGE{Addr: memBase, Length: uint32(c.size), LKey: m.mem.LKey}
			b.ReportAllocs()
			b.SetBytes(int64(c.size))
			b.ResetTimer()
			for i := 0; i < b.N; i += c.n {
				m.turn(c.op, c.n, c.size, sge)
			}
		})
	}
}
