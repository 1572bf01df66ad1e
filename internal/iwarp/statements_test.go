package iwarp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// segments returns the segments of a stream.
func segments(t *testing.T, b []byte) (list []iwarp.Segment) {
	t.Helper()
	for len(b) > 0 {
		f, err := iwarp.ParseFPDU(b)
		if err != nil {
			t.Fatal(err)
		}
		list, b = append(list, iwarp.Segment(f.ULPDU())), b[len(f):]
	}
	return list
}

// A request that asks for markers is rejected, and neither frame of this side asks for them.
func TestI_MPA_14_NoMarkers(t *testing.T) {
	const flags = 16 // byte of a start-up frame
	_, out := Initiate(1, Options{CRC: true, IRD: 1, ORD: 1})
	if out[flags]&0x80 != 0 {
		t.Errorf("the request asks for markers: % x", out)
	}
	s := Respond(1)
	if step, _ := s.OnBytes(out); step != Asked {
		t.Fatalf("step %d", step)
	}
	if reply, _ := s.Accept(Options{}); reply[flags]&0x80 != 0 {
		t.Errorf("the reply asks for markers: % x", reply)
	}
	out[flags] |= 0x80
	step, reply := Respond(1).OnBytes(out)
	f, _, err := iwarp.ParseStart(reply, true)
	if step != Failed || err != nil || !f.Reject {
		t.Errorf("a request with markers: step %d, reply %+v, %v", step, f, err)
	}
}

// Several FPDUs in one piece, and pieces of any length, give the same messages.
func TestI_MPA_15_AnySplit(t *testing.T) {
	for _, crc := range []bool{false, true} {
		a, _ := pair(t, Params{CRC: crc, IRD: 2, ORD: 2}, 4096, 128)
		for i := range a.mem {
			a.mem[i] = byte(i * 7)
		}
		for i := range uint64(4) {
			a.post(i, transport.OpSend, nil, a.sge(int(i)*300, 250))
		}
		all := a.drain()
		for n := 1; n <= len(all); n++ {
			_, b := pair(t, Params{CRC: crc, IRD: 2, ORD: 2}, 4096, 128)
			for i := range uint64(4) {
				b.recv(i, b.sge(int(i)*300, 300))
			}
			for rest := all; len(rest) > 0; {
				k := min(n, len(rest))
				b.qp.Feed(rest[:k])
				rest = rest[k:]
			}
			if got := list(b.done); len(got) != 4 || len(b.events) != 0 {
				t.Fatalf("pieces of %d bytes: completions %v, events %v", n, got, b.events)
			}
			for i := range 4 {
				if !bytes.Equal(a.mem[i*300:i*300+250], b.mem[i*300:i*300+250]) {
					t.Fatalf("pieces of %d bytes: message %d differs", n, i)
				}
			}
		}
	}
}

// A Read Request is one segment of 46 bytes, and its response goes to the sink that it names.
func TestI_DDP_03_ReadRequest(t *testing.T) {
	a, b := pair(t, Params{IRD: 1, ORD: 1}, 4096, 0)
	a.post(1, transport.OpRead, at(b, 512), a.sge(1024, 100))
	all := a.drain()
	got := segments(t, all)
	if len(got) != 1 || len(got[0]) != iwarp.UntaggedLen+28 || got[0][0] != 0x41 || got[0][1] != 0x41 {
		t.Fatalf("the request is %v", got)
	}
	d, be := got[0].Payload(), binary.BigEndian
	if be.Uint32(d) != a.reg.LKey || be.Uint64(d[4:]) != testBase+1024 || be.Uint32(d[12:]) != 100 ||
		be.Uint32(d[16:]) != b.reg.RKey || be.Uint64(d[20:]) != testBase+512 {
		t.Errorf("the request has % x", d)
	}
	b.qp.Feed(all)
	answer := segments(t, b.drain())
	if len(answer) != 1 || !answer[0].Tagged() || answer[0].STag() != a.reg.LKey || answer[0].TO() != testBase+1024 ||
		len(answer[0].Payload()) != 100 {
		t.Errorf("the response is %v", answer)
	}
}

// A WRITE takes no receive of its target and gives it no completion.
func TestI_DDP_05_WriteIsSilent(t *testing.T) {
	a, b := pair(t, Params{}, 4096, 0)
	b.recv(1, b.sge(0, 10))
	a.post(2, transport.OpWrite, at(b, 100), a.sge(0, 1000))
	b.qp.Feed(a.drain())
	if len(b.done) != 0 || len(b.events) != 0 || b.rq.Posted() != 1 {
		t.Errorf("the target has completions %v, events %v, %d receives", list(b.done), b.events, b.rq.Posted())
	}
	if got := list(a.done); len(got) != 1 || got[0] != "2" {
		t.Errorf("the WRITE completes as %v", got)
	}
}

// WRITEs and READs of no bytes do not look at their STags.
func TestI_DDP_06_NoBytesNoSTag(t *testing.T) {
	a, b := pair(t, Params{IRD: 1, ORD: 1}, 4096, 0)
	wrong := func(w *transport.SendWQE) { w.RemoteAddr, w.RKey = 1<<40, 0xdead }
	a.post(1, transport.OpWrite, wrong)
	a.post(2, transport.OpRead, wrong)
	b.qp.Feed(a.drain())
	a.qp.Feed(b.drain())
	if got := list(a.done); len(got) != 2 || got[0] != "1" || got[1] != "2" || len(b.events) != 0 {
		t.Errorf("completions %v, events of the target %v", got, b.events)
	}
}

// Keep takes the program's memory out of what is to be sent.
func TestKeepCopies(t *testing.T) {
	a, b := pair(t, Params{}, 8192, 0)
	b.recv(1, b.sge(0, 8192))
	for i := range a.mem {
		a.mem[i] = 1
	}
	a.post(1, transport.OpSend, nil, a.sge(0, 8192))
	v := a.qp.Vectors(nil)
	b.qp.Feed(v[0])
	a.qp.Written(len(v[0])) // the header
	a.qp.Keep()
	clear(a.mem)
	b.qp.Feed(a.drain())
	if len(b.done) != 1 || b.mem[0] != 1 || b.mem[8191] != 1 {
		t.Errorf("completions %v, memory %d to %d", list(b.done), b.mem[0], b.mem[8191])
	}
}

// An initiator that sends nothing after its first messages sends WRITEs of no bytes, which change nothing at its peer,
// also if the peer has sent something.
func TestNudge(t *testing.T) {
	a, b := pair(t, Params{}, 4096, 0)
	if a.qp.Nudge() || b.qp.Nudge() {
		t.Error("a QP that has sent nothing sends a nudge")
	}
	b.recv(1, b.sge(0, 10))
	a.post(2, transport.OpSend, nil, a.sge(0, 10))
	all := a.drain()
	if a.qp.Nudge() {
		t.Error("a QP that has just sent something sends a nudge")
	}
	b.qp.released = true // as siw, which does not wait for the first message
	a.recv(5, a.sge(0, 10))
	b.post(6, transport.OpSend, nil, b.sge(0, 10))
	a.qp.Feed(b.drain())
	if !a.qp.Nudge() {
		t.Fatal("there is no nudge")
	}
	more := a.drain()
	if s := segments(t, more); len(s) != 1 || s[0].Opcode() != iwarp.Write || len(s[0].Payload()) != 0 {
		t.Errorf("the nudge is %v", s)
	}
	b.qp.Feed(all)
	b.qp.Feed(more)
	a.recv(3, a.sge(0, 10))
	b.post(4, transport.OpSend, nil, b.sge(0, 10))
	a.qp.Feed(b.drain())
	if len(a.done) != 3 || len(b.done) != 3 || len(a.events)+len(b.events) != 0 {
		t.Errorf("completions %v and %v, events %v and %v", list(a.done), list(b.done), a.events, b.events)
	}
	if !a.qp.Nudge() || len(segments(t, a.drain())) != 1 {
		t.Error("there is no second nudge")
	}
	a.post(7, transport.OpWrite, at(b, 0), a.sge(0, 10))
	a.drain()
	if a.qp.Nudge() {
		t.Error("there is a nudge after a message")
	}
}
