package iwarp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// tagged and untagged make segments.
func tagged(op iwarp.Opcode, last bool, stag uint32, to uint64, n int) []byte {
	b := make([]byte, iwarp.TaggedLen+n)
	iwarp.PutTagged(b, op, last, stag, to)
	for i := range n {
		b[iwarp.TaggedLen+i] = 0xEE
	}
	return b
}

func untagged(op iwarp.Opcode, last bool, msn, mo uint32, data []byte) []byte {
	b := make([]byte, iwarp.UntaggedLen, iwarp.UntaggedLen+len(data))
	iwarp.PutUntagged(b, op, last, 0, msn, mo)
	return append(b, data...)
}

func readData(d iwarp.Read) []byte {
	b := make([]byte, iwarp.ReadRequestLen)
	d.Put(b)
	return b
}

func atomicData(a iwarp.Atomic) []byte {
	b := make([]byte, iwarp.AtomicRequestLen)
	a.Put(b)
	return b
}

// set changes bytes of a segment.
func set(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }

// bad is a stream that must end with a Terminate.
type bad struct {
	name string
	segs [][]byte // all but the last are valid
	want iwarp.Code
	ddp  bool             // the Terminate has the header of the last segment
	read bool             // and of the Read Request
	recv transport.Status // of receive 1; Success: it is flushed
}

// victim is a server with regions that a peer may not use, and bad streams for it.
func victim(t testing.TB, crc bool) (s *side, list []bad) {
	s = newSide(t, Params{IRD: 1, ORD: 1, CRC: crc}, 1000)
	key := s.reg.RKey
	quiet := s.region(make([]byte, 100), 0x5000, testPD, mr.LocalWrite).RKey
	foreign := s.region(make([]byte, 100), 0x5000, testPD+1, mr.LocalWrite|allowed).RKey
	s.recv(1, s.sge(0, 10), s.sge(10, 10))
	s.recv(2, s.sge(0, 10))
	const none, end = 0xDEAD00, testBase + 1000
	w := func(stag uint32, to uint64, n int) [][]byte { return [][]byte{tagged(iwarp.Write, true, stag, to, n)} }
	r := func(stag uint32, to uint64, n uint32) [][]byte {
		d := readData(iwarp.Read{Size: n, SrcSTag: stag, SrcTO: to})
		return [][]byte{untagged(iwarp.ReadRequest, true, 1, 0, d)}
	}
	a := func(at iwarp.Atomic) [][]byte {
		return [][]byte{untagged(iwarp.AtomicRequest, true, 1, 0, atomicData(at))}
	}
	send := func(msn, mo uint32, last bool, n int) []byte {
		return untagged(iwarp.Send, last, msn, mo, make([]byte, n))
	}
	one := func(b []byte) [][]byte { return [][]byte{b} }
	full := ^uint64(0)
	return s, []bad{
		{"write, unknown STag", w(none, testBase, 5), iwarp.TaggedSTag, true, false, 0},
		{"write, before the region", w(key, testBase-1, 5), iwarp.TaggedBounds, true, false, 0},
		{"write, behind the region", w(key, end-4, 5), iwarp.TaggedBounds, true, false, 0},
		{"write, offset wraps", w(key, full-2, 5), iwarp.TaggedWrap, true, false, 0},
		{"write, other domain", w(foreign, 0x5000, 5), iwarp.TaggedStream, true, false, 0},
		{"write, no right", w(quiet, 0x5000, 5), iwarp.ReadAccess, true, false, 0},
		{"read, unknown STag", r(none, testBase, 5), iwarp.ReadSTag, true, true, 0},
		{"read, behind the region", r(key, end-4, 5), iwarp.ReadBounds, true, true, 0},
		{"read, offset wraps", r(key, full, 2), iwarp.ReadWrap, true, true, 0},
		{"read, other domain", r(foreign, 0x5000, 5), iwarp.ReadStream, true, true, 0},
		{"read, no right", r(quiet, 0x5000, 5), iwarp.ReadAccess, true, true, 0},
		{"read, too short", one(untagged(iwarp.ReadRequest, true, 1, 0, make([]byte, 27))),
			iwarp.OperationOther, true, false, 0},
		{"read, too long", one(untagged(iwarp.ReadRequest, true, 1, 0, make([]byte, 29))),
			iwarp.TooLong, true, false, 0},
		{"read, not the last segment", one(untagged(iwarp.ReadRequest, false, 1, 0, make([]byte, 28))),
			iwarp.OperationOther, true, false, 0},
		{"read, offset", one(untagged(iwarp.ReadRequest, true, 1, 4, make([]byte, 28))),
			iwarp.InvalidMO, true, false, 0},
		{"read, number 2", one(untagged(iwarp.ReadRequest, true, 2, 0, make([]byte, 28))),
			iwarp.InvalidMSN, true, false, 0},
		{"read, more than IRD", [][]byte{r(key, testBase, 5)[0], untagged(iwarp.ReadRequest, true, 2, 0,
			readData(iwarp.Read{Size: 5, SrcSTag: key, SrcTO: testBase}))}, iwarp.NoBuffer, true, false, 0},
		{"atomic, unknown STag", a(iwarp.Atomic{STag: none, TO: testBase}), iwarp.ReadSTag, true, false, 0},
		{"atomic, not aligned", a(iwarp.Atomic{STag: key, TO: testBase + 4}), iwarp.OperationOther, true, false, 0},
		{"atomic, mask", a(iwarp.Atomic{STag: key, TO: testBase, Mask: 1}), iwarp.OperationOther, true, false, 0},
		{"atomic, operation 1", a(iwarp.Atomic{Op: 1, STag: key, TO: testBase}), iwarp.OperationOther, true, false, 0},
		{"atomic, no right", a(iwarp.Atomic{STag: quiet, TO: 0x5000}), iwarp.ReadAccess, true, false, 0},
		{"send, number 0", one(send(0, 0, true, 1)), iwarp.InvalidMSN, true, false, 0},
		{"send, number 2", one(send(2, 0, true, 1)), iwarp.InvalidMSN, true, false, 0},
		{"send, offset", one(send(1, 1, true, 1)), iwarp.InvalidMO, true, false, 0},
		{"send, offset of the second segment", [][]byte{send(1, 0, false, 5), send(1, 4, true, 5)},
			iwarp.InvalidMO, true, false, 0},
		{"send, too long", one(send(1, 0, true, 21)), iwarp.TooLong, true, false, transport.LocLenErr},
		{"send, too long in two segments", [][]byte{send(1, 0, false, 20), send(1, 20, true, 1)},
			iwarp.TooLong, true, false, transport.LocLenErr},
		{"send, no receive", [][]byte{send(1, 0, true, 1), send(2, 0, true, 1), send(3, 0, true, 1)},
			iwarp.NoBuffer, true, false, 0},
		{"send, other operation in between", [][]byte{send(1, 0, false, 5), untagged(iwarp.SendSE, true, 1, 5, nil)},
			iwarp.UnexpectedOpcode, true, false, 0},
		{"send, nothing to invalidate", one(untagged(iwarp.SendInv, true, 1, 0, nil)),
			iwarp.CannotInvalidate, true, false, transport.LocAccessErr},
		{"immediate, too short", one(untagged(iwarp.Immediate, true, 1, 0, make([]byte, 7))),
			iwarp.OperationOther, true, false, 0},
		{"immediate, too long", one(untagged(iwarp.Immediate, true, 1, 0, make([]byte, 9))),
			iwarp.TooLong, true, false, 0},
		{"response without READ", one(tagged(iwarp.ReadResponse, true, key, testBase, 1)),
			iwarp.UnexpectedOpcode, true, false, 0},
		{"atomic response without atomic", one(untagged(iwarp.AtomicResponse, true, 1, 0, make([]byte, 12))),
			iwarp.UnexpectedOpcode, true, false, 0},
		{"DDP version, tagged", one(set(tagged(iwarp.Write, true, key, testBase, 1), 0, 0xC2)),
			iwarp.TaggedVersion, true, false, 0},
		{"DDP version, untagged", one(set(send(1, 0, true, 1), 0, 0x40)), iwarp.UntaggedVersion, true, false, 0},
		{"RDMAP version", one(set(send(1, 0, true, 1), 1, 0x83)), iwarp.RDMAPVersion, true, false, 0},
		{"opcode 12", one(set(send(1, 0, true, 1), 1, 0x4C)), iwarp.UnexpectedOpcode, true, false, 0},
		{"tagged send", one(tagged(iwarp.Send, true, key, testBase, 1)), iwarp.UnexpectedOpcode, true, false, 0},
		{"queue 1", one(set(send(1, 0, true, 1), 9, 1)), iwarp.InvalidQN, true, false, 0},
		{"queue 9", one(set(send(1, 0, true, 1), 9, 9)), iwarp.InvalidQN, true, false, 0},
		{"terminate, number 2", one(untagged(iwarp.TerminateOp, true, 2, 0, make([]byte, 4))),
			iwarp.InvalidMSN, true, false, 0},
		{"terminate, offset", one(untagged(iwarp.TerminateOp, true, 1, 1, make([]byte, 4))),
			iwarp.InvalidMO, true, false, 0},
		{"length 13", one(make([]byte, 13)), iwarp.MPALength, false, false, 0},
		{"length 0", one(nil), iwarp.MPALength, false, false, 0},
		{"untagged segment of 17 bytes", one(send(1, 0, true, 1)[:17]), iwarp.MPALength, false, false, 0},
	}
}

// TestI_TERM_03_Refusals gives a QP each malformed segment, whole and byte by byte. It must answer with one Terminate
// that names the right code and segment, execute nothing of it, and complete everything that is posted.
func TestI_TERM_03_Refusals(t *testing.T) {
	_, all := victim(t, false)
	for i := range all {
		for _, crc := range []bool{false, true} {
			for _, chunk := range []int{1 << 20, 1} {
				t.Run(fmt.Sprintf("%s/crc=%v/%d", all[i].name, crc, chunk), func(t *testing.T) {
					s, all := victim(t, crc)
					refused(t, s, all[i], crc, chunk)
				})
			}
		}
	}
}

func refused(t *testing.T, s *side, b bad, crc bool, chunk int) {
	var stream []byte
	for _, seg := range b.segs {
		stream = iwarp.AppendFPDU(stream, seg, crc)
	}
	last := b.segs[len(b.segs)-1]
	before := bytes.Clone(s.mem)
	feed(s, stream, chunk)
	s.qp.Feed([]byte("ignored"))
	m, n := sent(t, s.drain())
	switch {
	case m == nil:
		t.Fatal("no Terminate is sent")
	case m.Code != b.want:
		t.Errorf("Terminate %04x (%v), want %04x (%v)", m.Code, m.Code, b.want, b.want)
	case b.ddp != (m.DDP != nil) || b.read != (m.RDMAP != nil) || n != 0:
		t.Errorf("Terminate %+v after %d segments", m, n)
	case b.ddp && (!bytes.Equal(m.DDP, iwarp.Segment(last).Header()) || int(m.SegLen) != len(last)):
		t.Errorf("Terminate names %x, %d bytes", m.DDP, m.SegLen)
	case b.read && !bytes.Equal(m.RDMAP, last[iwarp.UntaggedLen:]):
		t.Errorf("Terminate names the READ %x", m.RDMAP)
	}
	if again, _ := sent(t, s.drain()); again != nil {
		t.Error("a second Terminate is sent")
	}
	if s.qp.State() != transport.Err || !s.qp.Finished() || !slices.Equal(s.events, []transport.Event{raised(b.want)}) {
		t.Errorf("state %d, finished %v, events %v", s.qp.State(), s.qp.Finished(), s.events)
	}
	if i := bytes.IndexByte(s.mem, 0xEE); i >= 0 {
		t.Errorf("byte %d was written", i)
	}
	if b.want != iwarp.TooLong && len(b.segs) == 1 && !bytes.Equal(before, s.mem) {
		t.Error("memory was changed")
	}
	flushed := 0
	for _, e := range s.done {
		switch {
		case e.WRID == 1 && b.recv != 0 && e.Status != b.recv:
			t.Errorf("the receive completes with %d, want %d", e.Status, b.recv)
		case e.Status == transport.WRFlushErr:
			flushed++
		}
		if e.Status != transport.Success && (e.Cause == nil || e.Cause.Reason == "") {
			t.Errorf("no reason is given for %d", e.WRID)
		}
	}
	if len(s.done) != 2 {
		t.Errorf("completions %v, want both receives", list(s.done))
	}
}

func feed(s *side, b []byte, chunk int) {
	for len(b) > 0 {
		n := min(chunk, len(b))
		s.qp.Feed(b[:n])
		b = b[n:]
	}
}

// TestI_MPA_13_BadCRC changes each bit of an FPDU with a CRC: nothing of it may take effect.
func TestI_MPA_13_BadCRC(t *testing.T) {
	probe := newSide(t, Params{CRC: true}, 100)
	good := iwarp.AppendFPDU(nil, tagged(iwarp.Write, true, probe.reg.RKey, testBase+8, 5), true)
	for bit := range 8 * len(good) {
		s := newSide(t, Params{CRC: true}, 100)
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		s.qp.Feed(b)
		s.qp.Feed(make([]byte, iwarp.MaxFPDU)) // a longer length waits for more bytes
		m, _ := sent(t, s.drain())
		if m == nil || m.Code != iwarp.MPACRC && m.Code != iwarp.MPALength || m.DDP != nil {
			t.Fatalf("bit %d: %+v", bit, m)
		}
		if !slices.Equal(s.events, []transport.Event{transport.EventQPReqErr}) {
			t.Fatalf("bit %d: events %v", bit, s.events)
		}
		if !bytes.Equal(s.mem, make([]byte, 100)) {
			t.Fatalf("bit %d: memory was changed", bit)
		}
	}
}

// TestResponses gives a QP with one READ outstanding the responses that it must refuse.
func TestResponses(t *testing.T) {
	resp := func(last bool, stag uint32, to uint64, n int) []byte {
		return tagged(iwarp.ReadResponse, last, stag, to, n)
	}
	for _, c := range []struct {
		name string
		segs func(key uint32) [][]byte
		want iwarp.Code
	}{
		{"other STag", func(k uint32) [][]byte { return [][]byte{resp(true, k+1, testBase, 10)} }, iwarp.TaggedSTag},
		{"other offset", func(k uint32) [][]byte { return [][]byte{resp(true, k, testBase+1, 10)} },
			iwarp.TaggedBounds},
		{"too long", func(k uint32) [][]byte { return [][]byte{resp(true, k, testBase, 11)} }, iwarp.TaggedBounds},
		{"too short", func(k uint32) [][]byte { return [][]byte{resp(true, k, testBase, 9)} }, iwarp.OperationOther},
		{"gap", func(k uint32) [][]byte {
			return [][]byte{resp(false, k, testBase, 4), resp(true, k, testBase+5, 5)}
		}, iwarp.TaggedBounds},
		{"two", func(k uint32) [][]byte {
			return [][]byte{resp(true, k, testBase, 10), resp(true, k, testBase, 10)}
		}, iwarp.UnexpectedOpcode},
		{"atomic", func(k uint32) [][]byte {
			return [][]byte{untagged(iwarp.AtomicResponse, true, 1, 0, make([]byte, 12))}
		}, iwarp.UnexpectedOpcode},
	} {
		s := newSide(t, Params{Initiator: true, IRD: 1, ORD: 1}, 1000)
		s.post(1, transport.OpRead, nil, s.sge(0, 10))
		s.drain()
		for _, seg := range c.segs(s.reg.LKey) {
			s.qp.Feed(iwarp.AppendFPDU(nil, seg, false))
		}
		if m, _ := sent(t, s.drain()); m == nil || m.Code != c.want {
			t.Errorf("%s: %+v, want %v", c.name, m, c.want)
		}
		if len(s.done) != 1 || !bytes.Equal(s.mem[10:], make([]byte, 990)) {
			t.Errorf("%s: completions %v, or memory was changed", c.name, list(s.done))
		}
	}
}

// TestI_TERM_01_AnswerToTerminate checks that a Terminate ends the QP without an answer, and that the READ which it is
// about fails with the status of its code.
func TestI_TERM_01_AnswerToTerminate(t *testing.T) {
	req := untagged(iwarp.ReadRequest, true, 2, 0, nil)
	for _, c := range []struct {
		t    iwarp.Terminate
		want string
	}{
		{iwarp.Terminate{Code: iwarp.ReadAccess, SegLen: 46, DDP: req, RDMAP: make([]byte, 28)}, "[1:5 2:10 3:5]"},
		{iwarp.Terminate{Code: iwarp.NoBuffer, SegLen: 46, DDP: req}, "[1:5 2:9 3:5]"},
		{iwarp.Terminate{Code: iwarp.UnexpectedOpcode, SegLen: 46, DDP: req}, "[1:5 2:9 3:5]"},
		{iwarp.Terminate{Code: iwarp.MPACRC}, "[1:5 2:5 3:5]"},
	} {
		s := newSide(t, Params{Initiator: true, IRD: 1, ORD: 2}, 1000)
		for i := range uint64(3) {
			s.post(1+i, transport.OpRead, nil, s.sge(0, 10))
		}
		s.drain()
		s.qp.Feed(iwarp.AppendFPDU(nil, untagged(iwarp.TerminateOp, true, 1, 0, c.t.Append(nil)), false))
		if b := s.drain(); len(b) > 0 {
			t.Errorf("a Terminate is answered with %x", b)
		}
		if got := fmt.Sprint(list(s.done)); got != c.want {
			t.Errorf("%v: completions %s, want %s", c.t.Code, got, c.want)
		}
		if m, sent, received := s.qp.Terminate(); sent || !received || m.Code != c.t.Code ||
			!slices.Equal(s.events, []transport.Event{transport.EventQPFatal}) {
			t.Errorf("%+v, %v, %v, events %v", m, sent, received, s.events)
		}
	}
}

// TestLocalErrors checks work requests that fail on their own side: those before them complete first.
func TestLocalErrors(t *testing.T) {
	bad := transport.SGE{Addr: testBase, Length: 5, LKey: 0xBAD00}
	for _, c := range []struct {
		name string
		op   transport.Op
		sges []transport.SGE
		want transport.Status
	}{
		{"key of a SEND", transport.OpSend, []transport.SGE{bad}, transport.LocProtErr},
		{"key of a READ", transport.OpRead, []transport.SGE{bad}, transport.LocProtErr},
		{"two SGEs of a READ", transport.OpRead, make([]transport.SGE, 2), transport.LocQPOpErr},
		{"SEND with immediate", transport.OpSendImm, nil, transport.LocQPOpErr},
		{"nothing to invalidate", transport.OpLocalInv, nil, transport.LocQPOpErr},
	} {
		x, y := pair(t, Params{IRD: 1, ORD: 1}, 1000, 0)
		x.post(1, transport.OpRead, at(y, 0), x.sge(0, 10))
		x.post(2, c.op, nil, c.sges...)
		x.post(3, transport.OpWrite, at(y, 0), x.sge(0, 10))
		y.qp.Feed(x.drain())
		if len(x.done) != 0 {
			t.Errorf("%s: completions %v before the READ is answered", c.name, list(x.done))
		}
		x.qp.Feed(y.drain())
		b := x.drain()
		if got, want := fmt.Sprint(list(x.done)), fmt.Sprintf("[1 2:%d 3:5]", c.want); got != want {
			t.Errorf("%s: completions %s, want %s", c.name, got, want)
		}
		if m, n := sent(t, b); m == nil || m.Code != iwarp.LocalCatastrophic || n != 0 {
			t.Errorf("%s: %+v after %d segments", c.name, m, n)
		}
		if len(x.events) > 0 { // the completion reports it
			t.Errorf("%s: events %v", c.name, x.events)
		}
	}
}

// TestOldestFailureCounts checks a work request that fails on its own side while an older READ waits, which then fails
// too: the READ has its own status, and the younger request is flushed.
func TestOldestFailureCounts(t *testing.T) {
	bad := transport.SGE{Addr: testBase, Length: 5, LKey: 0xBAD00}
	for name, c := range map[string]struct {
		fail func(x, y *side)
		want transport.Status
	}{
		"refused by the peer": {func(x, y *side) {
			x.post(1, transport.OpRead, func(w *transport.SendWQE) { w.RKey = 0xBAD00 }, x.sge(0, 10))
		}, transport.RemAccessErr},
		"buffer withdrawn": {func(x, y *side) {
			r := x.region(make([]byte, 10), testBase, testPD, mr.LocalWrite)
			x.post(1, transport.OpRead, at(y, 0), transport.SGE{Addr: testBase, Length: 10, LKey: r.LKey})
			x.qp.Vectors(nil)
			x.table.Remove(r)
		}, transport.LocProtErr},
	} {
		x, y := pair(t, Params{IRD: 1, ORD: 1}, 1000, 0)
		c.fail(x, y)
		x.post(2, transport.OpSend, nil, bad)
		x.post(3, transport.OpWrite, at(y, 0), x.sge(0, 10))
		y.qp.Feed(x.drain())
		x.qp.Feed(y.drain())
		x.drain()
		if got, want := fmt.Sprint(list(x.done)), fmt.Sprintf("[1:%d 2:5 3:5]", c.want); got != want {
			t.Errorf("%s: completions %s, want %s", name, got, want)
		}
		for i := range x.done {
			if f := x.done[i].Cause; i > 0 && (f == nil || f.First == nil || f.First.Status != c.want) {
				t.Errorf("%s: the cause of request %d is %+v", name, i+1, f)
			}
		}
	}
}

// TestPartlySent checks that an FPDU which is sent in part is completed before the Terminate, with the bytes that the
// memory had when the stream ended.
func TestPartlySent(t *testing.T) {
	c, s := pair(t, Params{IRD: 1, ORD: 1}, 1000, 0)
	for i := range c.mem {
		c.mem[i] = 0xAA
	}
	c.post(1, transport.OpWrite, at(s, 0), c.sge(0, 500))
	c.post(2, transport.OpWrite, at(s, 0), c.sge(0, 500))
	var all []byte
	for _, b := range c.qp.Vectors(nil) {
		all = append(all, b...)
	}
	all = all[:100:100]
	c.qp.Written(100)
	c.qp.Feed(iwarp.AppendFPDU(nil, set(tagged(iwarp.Write, true, 0, 0, 0), 0, 0xC3), false))
	if got := fmt.Sprint(list(c.done)); got != "[1:5 2:5]" {
		t.Errorf("completions %s", got)
	}
	clear(c.mem)
	all = append(all, c.drain()...)
	m, n := sent(t, all)
	if m == nil || m.Code != iwarp.TaggedVersion || n != 1 {
		t.Errorf("%+v after %d segments", m, n)
	}
	s.qp.Feed(all)
	if !bytes.Equal(s.mem[:500], bytes.Repeat([]byte{0xAA}, 500)) {
		t.Error("the FPDU was completed with other bytes")
	}
}

// TestOnEOF checks the end of the stream at each byte.
func TestOnEOF(t *testing.T) {
	probe := newSide(t, Params{}, 100)
	b := iwarp.AppendFPDU(nil, tagged(iwarp.Write, true, probe.reg.RKey, testBase, 5), false)
	for n := range len(b) + 1 {
		for _, crc := range []bool{false, true} {
			s := newSide(t, Params{CRC: crc}, 100)
			s.recv(1)
			s.qp.Feed(iwarp.AppendFPDU(nil, tagged(iwarp.Write, true, s.reg.RKey, testBase, 5), crc)[:n])
			s.qp.OnEOF()
			want := "the connection was lost within a message"
			if n == 0 || n == len(b) {
				want = "the peer has closed the connection"
			}
			if len(s.done) != 1 || s.done[0].Cause.Reason != want || len(s.drain()) > 0 {
				t.Errorf("after %d bytes: completions %v", n, s.done)
			}
		}
	}
}

// TestOnEOFBetweenSegments checks the end of the stream between two segments of a message.
func TestOnEOFBetweenSegments(t *testing.T) {
	for _, crc := range []bool{false, true} {
		p := Params{CRC: crc, ORD: 1, Initiator: true}
		for op, segment := range map[iwarp.Opcode]func(*side) []byte{
			iwarp.Write: func(s *side) []byte { return tagged(iwarp.Write, false, s.reg.RKey, testBase, 5) },
			iwarp.ReadResponse: func(s *side) []byte {
				return tagged(iwarp.ReadResponse, false, s.reg.LKey, testBase, 5)
			},
			iwarp.Send: func(*side) []byte { return untagged(iwarp.Send, false, 1, 0, []byte("part")) },
		} {
			s := newSide(t, p, 100)
			s.recv(1, s.sge(0, 50))
			s.post(2, transport.OpRead, nil, s.sge(0, 20))
			s.drain()
			s.qp.Feed(iwarp.AppendFPDU(nil, segment(s), crc))
			s.qp.OnEOF()
			const want = "the connection was lost within a message"
			if len(s.done) != 2 || s.done[0].Cause.Reason != want {
				t.Errorf("%v: completions %v", op, s.done)
			}
		}
	}
}

// TestReadOfWithdrawnMemory checks a READ whose memory is withdrawn before its response is sent.
func TestReadOfWithdrawnMemory(t *testing.T) {
	c, s := pair(t, Params{IRD: 2, ORD: 2}, 1000, 0)
	other := s.region(make([]byte, 100), 0, testPD, mr.LocalWrite|allowed)
	c.post(1, transport.OpRead, func(w *transport.SendWQE) { w.RKey = other.RKey }, c.sge(0, 100))
	s.qp.Feed(c.drain())
	if err := s.table.Remove(other); err != nil {
		t.Fatal(err)
	}
	b := s.drain()
	m, n := sent(t, b)
	if m == nil || m.Code != iwarp.ReadSTag || n != 0 || iwarp.ParseRead(m.RDMAP).SrcSTag != other.RKey {
		t.Fatalf("%+v after %d segments", m, n)
	}
	c.qp.Feed(b)
	if got, want := fmt.Sprint(list(c.done)), fmt.Sprintf("[1:%d]", transport.RemAccessErr); got != want {
		t.Errorf("completions %s, want %s", got, want)
	}
}

// TestWrongResponses gives a QP that waits for a READ the response to an atomic, and the reverse, and a response to
// another atomic: it answers with a Terminate and stores nothing.
func TestWrongResponses(t *testing.T) {
	read := func(stag uint32) []byte { return tagged(iwarp.ReadResponse, true, stag, testBase, 8) }
	atomic := func(id uint32) func(uint32) []byte {
		return func(uint32) []byte {
			b := make([]byte, iwarp.AtomicResponseLen)
			iwarp.PutAtomicResponse(b, id, 1<<63)
			return untagged(iwarp.AtomicResponse, true, 1, 0, b)
		}
	}
	for name, c := range map[string]struct {
		op     transport.Op
		answer func(stag uint32) []byte
		want   iwarp.Code
	}{
		"atomic for read":         {transport.OpRead, atomic(1), iwarp.UnexpectedOpcode},
		"atomic of another ID":    {transport.OpFetchAdd, atomic(2), iwarp.UnexpectedOpcode},
		"read for atomic":         {transport.OpFetchAdd, read, iwarp.UnexpectedOpcode},
		"read for another region": {transport.OpRead, func(stag uint32) []byte { return read(stag + 1) }, iwarp.TaggedSTag},
	} {
		s, peer := pair(t, Params{IRD: 1, ORD: 1}, 1000, 0)
		s.post(7, c.op, at(peer, 0), s.sge(0, 8))
		if len(s.drain()) == 0 {
			t.Fatalf("%s: no request is sent", name)
		}
		before := bytes.Clone(s.mem)
		feed(s, iwarp.AppendFPDU(nil, c.answer(s.reg.LKey), false), 1<<20)
		m, _ := sent(t, s.drain())
		if m == nil || m.Code != c.want {
			t.Errorf("%s: %+v, want the code %v", name, m, c.want)
		}
		if !bytes.Equal(s.mem, before) {
			t.Errorf("%s: memory was changed", name)
		}
		if len(s.done) != 1 || s.done[0].WRID != 7 || s.done[0].Status == transport.Success {
			t.Errorf("%s: completions %v", name, list(s.done))
		}
	}
}

// TestLastWQEOfASharedQueue checks that a QP with an SRQ reports once, when it fails, that it takes no more receives,
// and leaves those of the queue.
func TestLastWQEOfASharedQueue(t *testing.T) {
	s := newSide(t, Params{IRD: 1, ORD: 1}, 100)
	s.rq = transport.NewRecvQueue(64, 4, true, testPD)
	s.open(Params{IRD: 1, ORD: 1}, 0)
	s.recv(1, s.sge(0, 10))
	feed(s, iwarp.AppendFPDU(nil, tagged(iwarp.Write, true, 0xDEAD00, testBase, 5), false), 1<<20)
	s.drain()
	s.qp.Feed([]byte("ignored"))
	reached := 0
	for _, ev := range s.events {
		if ev == transport.EventQPLastWQEReached {
			reached++
		}
	}
	if reached != 1 || len(s.done) != 0 {
		t.Errorf("%d events, completions %v", reached, list(s.done))
	}
	var left transport.RecvWQE
	if !s.rq.Take(&left) || left.WRID != 1 {
		t.Errorf("the receive of the queue is gone")
	}
}
