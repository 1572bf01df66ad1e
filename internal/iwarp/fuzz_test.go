package iwarp

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// FuzzQP gives a QP with READs outstanding any stream, in pieces. Bytes of the input may be replaced by its keys, and
// the CRCs are made right, so that the fuzzer reaches what is behind them. The QP must keep to its own memory, send
// only well-formed segments and at most one Terminate, and complete each work request once.
func FuzzQP(f *testing.F) {
	_, all := victim(f, false)
	for i, b := range all {
		var seed []byte
		for _, seg := range b.segs {
			seed = append(seed, byte(len(seg)))
			seed = append(seed, seg...)
		}
		f.Add(seed, uint8(i), uint8(1+i%9))
	}
	f.Fuzz(func(t *testing.T, b []byte, mode, chunk uint8) {
		p := Params{Initiator: mode&1 != 0, CRC: mode&2 != 0, IRD: 2, ORD: 2, RTR: iwarp.RTR(mode >> 2 & 1)}
		s := newSide(t, p, 1000)
		guard := bytes.Repeat([]byte{0x55}, 100)
		s.region(guard, 0x5000, testPD, mr.LocalWrite)
		for i := range uint64(3) {
			s.recv(i, s.sge(100*int(i), 10), s.sge(200, 20))
		}
		s.post(10, transport.OpRead, nil, s.sge(0, 10))
		s.post(11, transport.OpCmpSwap, nil, s.sge(16, 8))
		out := s.drain()
		raw := b
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			seg := b[1 : 1+n]
			b = b[1+n:]
			stream := iwarp.AppendFPDU(nil, seg, true)
			for len(stream) > 0 {
				k := min(int(chunk)+1, len(stream))
				if d := s.qp.Direct(); len(d) > 0 && mode&8 != 0 {
					k, _ = mr.Copy(d, stream[:k])
					s.qp.Placed(k)
				} else {
					s.qp.Placed(0)
					s.qp.Feed(stream[:k])
				}
				stream = stream[k:]
			}
			out = append(out, s.drain()...)
		}
		s.qp.Feed(raw) // the same without framing
		out = append(out, s.drain()...)
		if s.qp.State() == transport.RTS {
			s.qp.OnEOF()
		}
		out = append(out, s.drain()...)
		sent(t, out)
		if !bytes.Equal(guard, bytes.Repeat([]byte{0x55}, 100)) {
			t.Fatal("memory that the peer may not write was written")
		}
		seen := map[uint64]bool{}
		for _, e := range s.done {
			if seen[e.WRID] {
				t.Fatalf("%d completes twice", e.WRID)
			}
			seen[e.WRID] = true
		}
		if len(seen) != 5 {
			t.Fatalf("completions %v", list(s.done))
		}
	})
}
