package iwarp

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// With CRCs the rest of an FPDU may be read without a copy, but none of it takes effect before all of it is there and
// its CRC is right.
func TestDirectChecksTheCRC(t *testing.T) {
	const size, first = 20000, 10
	for _, damaged := range []bool{false, true} {
		c, s := pair(t, Params{IRD: 1, ORD: 1, CRC: true}, size, 0)
		for i := range c.mem {
			c.mem[i] = byte(i>>8) + 1
		}
		s.recv(7, s.sge(0, 8))
		c.post(1, transport.OpWrite, at(s, 0), c.sge(0, size))
		all := c.drain()
		f, err := iwarp.ParseFPDU(all)
		if err != nil {
			t.Fatal(err)
		}
		if damaged {
			all[len(f)/2] ^= 1
		}
		if d := s.qp.Direct(); d != nil {
			t.Fatalf("%d bytes may be read before the length is known", len(d))
		}
		s.qp.Feed(all[:first])
		for at := first; at < len(f); {
			d := s.qp.Direct()
			if len(d) != len(f)-at {
				t.Fatalf("after %d of %d bytes %d may be read", at, len(f), len(d))
			}
			if !bytes.Equal(s.mem, make([]byte, size)) {
				t.Fatalf("after %d of %d bytes some have taken effect", at, len(f))
			}
			n := copy(d, all[at:min(at+7000, len(f))])
			s.qp.Placed(n)
			at += n
		}
		if s.qp.whole != nil {
			t.Errorf("damaged=%v: the buffer is kept", damaged)
		}
		s.qp.Feed(all[len(f):])
		if got := bytes.Equal(s.mem, c.mem); got == damaged {
			t.Errorf("damaged=%v: the bytes arrived: %v", damaged, got)
		}
		if dead := s.qp.State() != transport.RTS; dead != damaged {
			t.Errorf("damaged=%v: state %v", damaged, s.qp.State())
		}
		if !damaged {
			continue
		}
		if len(s.done) != 1 || s.done[0].Status != transport.WRFlushErr || s.done[0].Cause.First == nil {
			t.Errorf("the receive completes with %+v: must be flushed, after a failure", s.done)
		}
	}
}
