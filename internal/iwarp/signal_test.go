package iwarp

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// A signal arrives between two messages, and programs see nothing of it.
func TestSignal(t *testing.T) {
	for _, crc := range []bool{false, true} {
		a, b := pair(t, Params{CRC: crc}, 4096, 0)
		a.post(1, transport.OpWrite, at(b, 0), a.sge(0, 100))
		a.qp.Signal(Signal{Offer, 1<<63 | 5})
		a.post(2, transport.OpWrite, at(b, 0), a.sge(0, 0))
		if s := b.qp.TakeSignal(); s.Kind != 0 {
			t.Errorf("%+v before a byte has arrived", s)
		}
		b.qp.Feed(a.drain())
		if s := b.qp.TakeSignal(); s != (Signal{Offer, 1<<63 | 5}) {
			t.Errorf("the signal is %+v", s)
		}
		if s := b.qp.TakeSignal(); s.Kind != 0 {
			t.Errorf("%+v a second time", s)
		}
		if n := b.qp.Counters.RxWriteRequests; n != 2 || len(a.done) != 2 || len(b.done)+len(b.events) != 0 {
			t.Errorf("%d requests, completions %v and %v, events %v", n, list(a.done), list(b.done), b.events)
		}
		if _, ok := a.qp.BeforeSwitch(); ok {
			t.Error("an Offer is no Switch")
		}
	}
}

// A responder sends no signal before the first segment of the initiator.
func TestSignalOfAResponderWaits(t *testing.T) {
	a, b := pair(t, Params{}, 4096, 0)
	b.qp.Signal(Signal{Switch, 1})
	if len(b.drain()) != 0 {
		t.Error("the responder has sent first")
	}
	a.post(1, transport.OpWrite, at(b, 0), a.sge(0, 1))
	b.qp.Feed(a.drain())
	if a.qp.Feed(b.drain()); a.qp.TakeSignal() != (Signal{Switch, 1}) {
		t.Error("there is no signal after it")
	}
}

// The end of a Switch divides the bytes that are sent, wherever the stream stops taking them, and also if a Terminate
// follows: it comes after a Switch of which a byte was taken, and in place of any other.
func TestBeforeSwitch(t *testing.T) {
	marker := iwarp.FPDULen(iwarp.TaggedLen)
	for _, dies := range []bool{false, true} {
		for taken := range marker {
			a, b := pair(t, Params{}, 4096, 0)
			a.qp.Signal(Signal{Switch, 9})
			all := bytes.Join(a.qp.Vectors(nil), nil)
			if n, ok := a.qp.BeforeSwitch(); !ok || int(n) != marker || len(all) != marker {
				t.Fatalf("%d bytes, %v, of %d", n, ok, len(all))
			}
			a.qp.Written(taken)
			if dies {
				a.qp.Feed([]byte{0, 1, 0, 0})
			} else {
				a.post(1, transport.OpWrite, at(b, 0), a.sge(0, 100))
			}
			n, ok := a.qp.BeforeSwitch()
			rest := a.drain()
			if dies && taken == 0 {
				if m, before := sent(t, rest); ok || m == nil || before != 0 {
					t.Errorf("nothing was sent: %d, %v, then % x", n, ok, rest)
				}
				continue
			}
			if !ok || int(n) != marker-taken {
				t.Fatalf("%d bytes were sent: %d, %v are left of %d", taken, n, ok, marker)
			}
			b.qp.Feed(append(all[:taken:taken], rest[:n]...))
			if s := b.qp.TakeSignal(); s != (Signal{Switch, 9}) {
				t.Errorf("%+v has arrived", s)
			}
			if m, _ := sent(t, rest[n:]); dies != (m != nil) || len(rest) == int(n) {
				t.Errorf("dies %v: behind the Switch are % x", dies, rest[n:])
			}
			a.qp.Switched()
			if _, ok := a.qp.BeforeSwitch(); ok {
				t.Error("there is another Switch")
			}
		}
	}
}

// A stream that ends in the middle of a Switch has none to come.
func TestSwitchOfAnEndedStream(t *testing.T) {
	a, _ := pair(t, Params{}, 4096, 0)
	a.qp.Signal(Signal{Switch, 9})
	a.qp.Vectors(nil)
	a.qp.Written(3)
	a.qp.OnEOF()
	if n, ok := a.qp.BeforeSwitch(); ok || len(a.drain()) > 0 {
		t.Errorf("%d bytes are left", n)
	}
}
