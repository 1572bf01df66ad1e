package iwarp

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// A QP that has sent and received long messages holds no buffer when nothing is on its way, and a bounded number while
// the stream takes nothing.
func TestBuffersOfAnIdleQP(t *testing.T) {
	for _, crc := range []bool{false, true} {
		c, s := pair(t, Params{IRD: 1, ORD: 1, CRC: crc}, 1<<20, 0)
		for i := range c.mem {
			c.mem[i] = byte(i >> 8)
		}
		for i := range uint64(20) {
			c.post(i, transport.OpWrite, at(s, 0), c.sge(0, 1<<20))
		}
		for range 3 { // a stream that takes nothing, and another call of the program
			c.qp.Vectors(nil)
			c.qp.Keep()
		}
		held := 0
		for _, g := range c.qp.out {
			held += cap(g.buf)
		}
		if most := maxSegments * iwarp.MaxFPDU; held == 0 || held > most {
			t.Errorf("crc=%v: %d bytes wait for the stream, want at most %d", crc, held, most)
		}
		feed(s, c.drain(), 1000)
		if !bytes.Equal(c.mem, s.mem) || len(c.done) != 20 {
			t.Errorf("crc=%v: other bytes arrived, or %d completions", crc, len(c.done))
		}
		for _, g := range append(c.qp.spare, c.qp.out...) {
			if g.buf != nil {
				t.Errorf("crc=%v: an idle QP holds %d bytes for sending", crc, cap(g.buf))
			}
		}
		if s.qp.whole != nil {
			t.Errorf("crc=%v: an idle QP holds %d bytes for receiving", crc, cap(s.qp.whole))
		}
	}
}
