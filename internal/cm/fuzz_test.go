package cm

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// FuzzOnMAD passes any datagram to a machine that has an ID in each state.
func FuzzOnMAD(f *testing.F) {
	for _, name := range []string{"rping", "cm_reject", "udaddy"} {
		for _, s := range sessions(f, name) {
			for _, c := range s {
				f.Add([]byte(c.msg), true)
			}
		}
	}
	f.Add(captures.Read(f, "rping")[4].Data, false)
	f.Fuzz(func(t *testing.T, mad []byte, fromPeer bool) {
		m, ids := crowd(t)
		src := thereAddr
		if !fromPeer {
			src = netip.MustParseAddr("10.9.9.9")
		}
		before := bytes.Clone(mad)
		var out Batch
		m.Wants(src, mad)
		m.OnMAD(0, 0, src, hereAddr, mad, &out)
		if !bytes.Equal(mad, before) {
			t.Fatal("the datagram was changed")
		}
		if len(out.Mail) > 2 || len(out.Events) > 1 {
			t.Fatalf("one datagram causes %d and %d events", len(out.Mail), len(out.Events))
		}
		closeAll(t, m, ids, &out)
	})
}

// crowd is a machine with an ID in each state. Communication IDs count from a1, the peer's from b1.
func crowd(t testing.TB) (*Machine, []*ID) {
	t.Helper()
	s := newStage(nil)
	var ids []*ID
	cases := [][]string{
		{"connect"}, {"connect", "REP"}, {"connect", "REP", "establish"}, {"connect", "REP", "establish", "disconnect"},
		{"connect", "REP", "establish", "DREQ"}, {"connect", "REP", "establish", "disconnect", "DREP"}, {"lookup"},
		{"REQ"}, {"REQ", "accept"}, {"REQ", "accept", "RTU"}, {"REQ", "reject"}, {"SIDR_REQ"}, {"SIDR_REQ", "answer"},
	}
	for _, l := range []ListenParams{{Service: cmmsg.PSTCP.Service(7471)},
		{Service: cmmsg.PSUDP.Service(7471), UD: true}, {Service: cmmsg.PSTCP.Service(7174)}} {
		if _, err := s.m.Listen(0, l, new(Batch)); err != nil {
			t.Fatal(err)
		}
	}
	for i, steps := range cases {
		id := s.m.NewID(nil)
		a := func() *args {
			n := []byte{'0' + byte(i/10), '0' + byte(i%10)}
			to := binary.BigEndian.AppendUint32(nil, uint32(0xA1+i))
			return &args{pairs: map[string]string{"id": "b" + string(n), "qp": "3" + string(n), "to": hexText(to)}}
		}
		for _, step := range steps {
			if call, ok := commands[step]; ok {
				x := a()
				delete(x.pairs, "id")
				if err := call(s, id, x); err != nil {
					t.Fatalf("%v, %s: %v", steps, step, err)
				}
				continue
			}
			x := a()
			x.words = []string{step}
			s.m.OnMAD(0, 0, thereAddr, hereAddr, s.message(x), &s.out)
			for _, e := range s.out.Events {
				id = e.ID
			}
		}
		s.out.Reset()
		ids = append(ids, id)
	}
	return s.m, ids
}

func hexText(b []byte) string {
	const digits = "0123456789abcdef"
	var s []byte
	for _, x := range b {
		s = append(s, digits[x>>4], digits[x&15])
	}
	return string(s)
}

// closeAll destroys all IDs and checks that nothing is left.
func closeAll(t testing.TB, m *Machine, ids []*ID, out *Batch) {
	t.Helper()
	for _, e := range out.Events {
		ids = append(ids, e.ID)
	}
	for _, id := range ids {
		m.Destroy(0, id, out)
	}
	out.Reset()
	for m.NextDeadline() != Never {
		m.OnTimer(m.NextDeadline(), out)
	}
	if len(out.Events) > 0 {
		t.Fatalf("event %v after everything was destroyed", out.Events[0].Type)
	}
	checkEmpty(t, m)
}

// FuzzMachine plays any program against any peer: calls, messages that nearly fit, and time.
func FuzzMachine(f *testing.F) {
	f.Add([]byte("connect REP establish disconnect DREP"))
	f.Add([]byte{0, 0, 1, 3, 2, 0, 3, 0, 0x80, 7, 0x81, 1})
	f.Fuzz(func(t *testing.T, program []byte) {
		s := newStage(nil)
		for _, ps := range []cmmsg.PortSpace{cmmsg.PSTCP, cmmsg.PSUDP} {
			if _, err := s.m.Listen(0, ListenParams{Service: ps.Service(7471), UD: ps == cmmsg.PSUDP,
				Backlog: NewBacklog(3)}, new(Batch)); err != nil {
				t.Fatal(err)
			}
		}
		var ids []*ID
		for len(program) >= 2 && len(ids) < 64 {
			op, arg := program[0], program[1]
			program = program[2:]
			ids = s.fuzzStep(t, op, arg, ids)
			for _, e := range s.out.Events {
				if e.Listener != nil {
					ids = append(ids, e.ID)
				} else if want := stateAfter[e.Type]; len(want) > 0 && !e.ID.State().is(want...) {
					t.Fatalf("event %v in state %v", e.Type, e.ID.State())
				}
			}
			s.out.Reset()
			if n := len(s.m.ids); n != s.m.live {
				t.Fatalf("%d IDs in the table, %d live", n, s.m.live)
			}
		}
		closeAll(t, s.m, ids, &s.out)
	})
}

// fuzzCalls are the calls of a program, in a fixed order.
var fuzzCalls = []string{
	"accept", "establish", "notify", "reject", "delay", "disconnect", "answer", "load-path", "answer-path", "destroy",
	"taken",
}

// fuzzStep is one call with one of the IDs, one message to one of them, or a wait.
func (s *stage) fuzzStep(t *testing.T, op, arg byte, ids []*ID) []*ID {
	if op == 0xFF {
		s.now += int64(arg) * 100 * millisecond
		for s.m.NextDeadline() <= s.now {
			s.m.OnTimer(s.now, &s.out)
		}
		return ids
	}
	if op >= 0x80 {
		k := cmmsg.KindREQ + cmmsg.Kind(op)%(cmmsg.KindAPR-cmmsg.KindREQ+1)
		a := &args{words: []string{k.String()}, pairs: map[string]string{
			"id": hexText([]byte{0xB0 + arg>>6}), "to": hexText([]byte{0xA1 + arg&15}), "qp": hexText([]byte{0x11 + arg>>4&1}),
		}}
		if arg&0x20 != 0 {
			a.pairs["about"] = []string{"REP", "other"}[arg&1]
		}
		s.m.OnMAD(s.now, 0, thereAddr, hereAddr, s.message(a), &s.out)
		return ids
	}
	a := &args{pairs: map[string]string{"qp": hexText([]byte{0x11 + arg>>4&1})}}
	if op < 8 || len(ids) == 0 {
		call := []string{"connect", "lookup"}[op&1]
		id := s.m.NewID(nil)
		if err := commands[call](s, id, a); err != nil {
			t.Fatal(err)
		}
		return append(ids, id)
	}
	_ = commands[fuzzCalls[int(op)%len(fuzzCalls)]](s, ids[int(arg)%len(ids)], a) // right or wrong
	return ids
}

// TestCrowd checks that crowd has an ID in each state.
func TestCrowd(t *testing.T) {
	m, ids := crowd(t)
	want := []State{
		StateREQSent, StateREPRcvd, StateEstablished, StateDREQSent, StateDREQRcvd, StateTimewait, StateSIDRREQSent,
		StateREQRcvd, StateREPSent, StateEstablished, StateIdle, StateSIDRREQRcvd, StateIdle,
	}
	for i, id := range ids {
		if id.State() != want[i] {
			t.Errorf("ID %d is %v, want %v", i, id.State(), want[i])
		}
	}
	if m.kept != 2 {
		t.Errorf("%d kept answers, want 2", m.kept)
	}
	var out Batch
	closeAll(t, m, ids, &out)
}

// TestDroppedMessagesDoNotAllocate: a flood of messages that the machine drops costs no memory.
func TestDroppedMessagesDoNotAllocate(t *testing.T) {
	s := newStage(t)
	l := ListenParams{Service: cmmsg.PSTCP.Service(7471), Backlog: NewBacklog(1)}
	if _, err := s.m.Listen(0, l, new(Batch)); err != nil {
		t.Fatal(err)
	}
	build := func(kind string, pairs ...string) []byte {
		return s.message(parseArgs(append([]string{kind}, pairs...)))
	}
	s.m.OnMAD(0, 0, thereAddr, hereAddr, build("REQ", "id=b0", "qp=30"), &s.out)
	s.out.Mail = make([]Mail, 0, 4)
	for name, mad := range map[string][]byte{
		"backlog full":       build("REQ", "id=b1", "qp=31"),
		"REQ again":          build("REQ", "id=b0", "qp=30"),
		"nobody listens":     build("REQ", "id=b1", "qp=31", "port=1"),
		"wrong GID":          build("REQ", "id=b1", "qp=31", "gid=10.0.0.3"),
		"stale":              build("REQ", "id=b1", "qp=30"),
		"nobody serves":      build("SIDR_REQ"),
		"REP for nothing":    build("REP", "to=77"),
		"DREQ for nothing":   build("DREQ", "to=77"),
		"RTU for nothing":    build("RTU", "to=77"),
		"REJ for nothing":    build("REJ", "to=77"),
		"MRA for nothing":    build("MRA", "to=77"),
		"malformed datagram": make([]byte, wire.MADLen),
	} {
		if n := testing.AllocsPerRun(10, func() {
			s.m.OnMAD(0, 0, thereAddr, hereAddr, mad, &s.out)
			s.out.Reset()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
