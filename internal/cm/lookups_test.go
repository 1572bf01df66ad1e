package cm

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// TestFloodOfLookups: while forged look-ups come faster than the program answers, a look-up is taken when its sender
// repeats it, as each honest sender does.
func TestFloodOfLookups(t *testing.T) {
	m := New(Config{Seed: [32]byte{8: 4}})
	now := int64(1000 * millisecond)
	m.guard.now = func() int64 { return now }
	if _, err := m.Listen(0, ListenParams{Service: simUDP, UD: true}, new(Batch)); err != nil {
		t.Fatal(err)
	}
	look := func(from netip.Addr, n uint32) []byte {
		msg := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindSIDRREQ, uint64(n))
		cmmsg.SIDRREQ(msg.Data()).Put(n, wire.DefaultPKey, simUDP)
		msg.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(from, 7), hereAddr))
		return msg
	}
	var out Batch
	var waiting []*ID // of the program
	taken, passed := false, 0
	send := func(from netip.Addr, mad []byte) {
		if m.Guard().Drop(mad) {
			return
		}
		passed++
		m.OnMAD(now, 0, from, hereAddr, mad, &out)
		for _, e := range out.Events {
			waiting = append(waiting, e.ID)
			taken = taken || e.ID.path.Dst == honestAddr
		}
		out.Reset()
	}
	forged := uint32(0)
	for ms := range 1200 {
		for range 20 { // 20,000 a second
			forged++
			from := netip.AddrFrom4([4]byte{198, 18, byte(forged >> 8), byte(forged)})
			send(from, look(from, forged))
		}
		if ms == 200 || ms == 780 { // again after 0.58 s
			send(honestAddr, look(honestAddr, 0x7777))
		}
		if ms%2 == 0 && len(waiting) > 0 { // the program answers 500 a second
			m.Taken(waiting[0])
			if err := m.Answer(now, waiting[0], &AnswerParams{QPN: 5}, &out); err != nil {
				t.Fatal(err)
			}
			waiting = waiting[1:]
			out.Reset()
		}
		now += millisecond
	}
	if !taken {
		t.Errorf("a look-up that was repeated was not taken; %d wait, %+v", len(waiting), m.Counters)
	}
	// The backlog, 64 new ones, and 1,000 a second.
	if most := MaxBacklog + guardRequestBurst + 1300; passed > most {
		t.Errorf("%d of %d look-ups reach the machine, want %d at most", passed, forged, most)
	}
}
