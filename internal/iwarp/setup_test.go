package iwarp

import (
	"bytes"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

var every = iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead

// startUp runs a start-up whose frames arrive in pieces of n bytes. It returns what both sides agreed on.
func startUp(t *testing.T, n int, client, server Options) (c, s *Setup, stepC, stepS Step) {
	t.Helper()
	c, out := Initiate(1, client)
	s = Respond(1)
	stepS = deliver(s, out, n)
	if stepS != Asked {
		t.Fatalf("the request gives step %d, code %v", stepS, s.Code())
	}
	out, ok := s.Accept(server)
	if !ok {
		t.Fatal("Accept is refused")
	}
	return c, s, deliver(c, out, n), s.step
}

func deliver(s *Setup, b []byte, n int) (step Step) {
	for len(b) > 0 {
		k := min(n, len(b))
		step, _ = s.OnBytes(b[:k])
		b = b[k:]
	}
	return step
}

func TestSetupAgrees(t *testing.T) {
	wr := iwarp.RTRWrite | iwarp.RTRRead
	for _, c := range []struct {
		name           string // the statements I-MPA-...
		client, server Options
		c, s           Params
	}{
		{"I_MPA_08_depths", Options{IRD: 3, ORD: 9}, Options{IRD: 4, ORD: 8, MaxIRD: 16},
			Params{IRD: 3, ORD: 9}, Params{IRD: 9, ORD: 3}},
		{"I_MPA_08_depths_bounded", Options{IRD: 0, ORD: 100}, Options{IRD: 4, ORD: 8, MaxIRD: 16},
			Params{ORD: 16}, Params{IRD: 16}},
		{"I_MPA_03_CRC_of_the_client", Options{CRC: true}, Options{}, Params{CRC: true}, Params{CRC: true}},
		{"I_MPA_03_CRC_of_the_server", Options{}, Options{CRC: true}, Params{CRC: true}, Params{CRC: true}},
		{"I_MPA_07_peer_to_peer", Options{PeerToPeer: true, RTR: every}, Options{RTR: wr},
			Params{RTR: iwarp.RTRWrite}, Params{RTR: iwarp.RTRWrite}},
		{"I_MPA_08_read_if_no_write", Options{PeerToPeer: true, RTR: every &^ iwarp.RTRWrite},
			Options{RTR: every},
			Params{RTR: iwarp.RTRRead}, Params{RTR: iwarp.RTRRead}},
		{"revision_1", Options{Rev: 1, IRD: 1, ORD: 2, PeerToPeer: true, RTR: every},
			Options{IRD: 3, ORD: 4, RTR: every},
			Params{IRD: 1, ORD: 2}, Params{IRD: 3, ORD: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{1, 7, 1000} {
				c.client.Private, c.server.Private = []byte("ask"), []byte("answer")
				x, y, stepC, stepS := startUp(t, n, c.client, c.server)
				c.c.Initiator = true
				if stepC != Established || stepS != Established || x.Params() != c.c || y.Params() != c.s {
					t.Errorf("steps %d, %d: %+v and %+v, want %+v and %+v", stepC, stepS,
						x.Params(), y.Params(), c.c, c.s)
				}
				if string(x.Peer().Private) != "answer" || string(y.Peer().Private) != "ask" {
					t.Errorf("private data %q, %q", x.Peer().Private, y.Peer().Private)
				}
				if x.Deadline() != 0 || y.Deadline() != 0 {
					t.Error("a timer runs although the start-up is complete")
				}
			}
		})
	}
}

// TestI_MPA_11_Reject checks that a refusal reaches the initiator with its private data.
func TestI_MPA_11_Reject(t *testing.T) {
	for _, rev := range []uint8{1, 2} {
		c, out := Initiate(1, Options{Rev: rev})
		s := Respond(1)
		if step, _ := s.OnBytes(out); step != Asked {
			t.Fatalf("step %d", step)
		}
		out, ok := s.Reject([]byte("no"))
		if step, _ := c.OnBytes(out); !ok || step != Refused || string(c.Peer().Private) != "no" {
			t.Errorf("revision %d: step %d, private data %q", rev, step, c.Peer().Private)
		}
		if _, ok := s.Accept(Options{}); ok {
			t.Error("a request can be accepted after it was rejected")
		}
	}
}

// TestI_MPA_06_Timeouts checks the two time-outs, and that none runs while the user decides.
func TestI_MPA_06_Timeouts(t *testing.T) {
	const start = int64(1000)
	c, out := Initiate(start, Options{})
	s := Respond(start)
	if c.Deadline()-start != int64(10*time.Second) || s.Deadline()-start != int64(5*time.Second) {
		t.Errorf("deadlines %d and %d", c.Deadline(), s.Deadline())
	}
	if c.OnTimeout(c.Deadline()-1) != Waiting || c.OnTimeout(c.Deadline()) != Failed || !c.TimedOut() {
		t.Error("the initiator does not give up at its deadline")
	}
	if step, _ := s.OnBytes(out); step != Asked || s.Deadline() != 0 || s.OnTimeout(1<<62) != Asked {
		t.Error("a timer runs while the user decides")
	}
	late := Respond(start)
	late.OnBytes(out[:10])
	if late.OnTimeout(late.Deadline()) != Failed || late.Code() != iwarp.MPALost || late.OnClosed() != Failed {
		t.Error("the responder does not give up at its deadline")
	}
	lost, _ := Initiate(start, Options{})
	if lost.OnClosed() != Failed || lost.TimedOut() {
		t.Error("a lost connection does not end the start-up")
	}
}

// TestI_MPA_05_ExtraBytes checks that a byte too many before the exchange is complete ends it. The reply completes it.
func TestI_MPA_05_ExtraBytes(t *testing.T) {
	c, out := Initiate(1, Options{})
	s := Respond(1)
	if step, _ := s.OnBytes(append(bytes.Clone(out), 0)); step != Failed || s.Code() != iwarp.MPAStart {
		t.Errorf("a byte behind the request: step %d, %v", step, s.Code())
	}
	s = Respond(1)
	s.OnBytes(out)
	if step, _ := s.OnBytes([]byte{0}); step != Failed || s.Code() != iwarp.MPAStart {
		t.Errorf("a byte before the reply: step %d, %v", step, s.Code())
	}
	s = Respond(1)
	s.OnBytes(out)
	answer, _ := s.Accept(Options{})
	if step, _ := c.OnBytes(append(answer, 7)); step != Established || !bytes.Equal(c.Rest(), []byte{7}) {
		t.Errorf("a byte behind the reply: step %d, rest % x", step, c.Rest())
	}
}

// TestI_MPA_01_I_MPA_04_BadFrames gives both sides frames that they must refuse. A request with markers or an unknown
// revision is answered with a refusal.
func TestI_MPA_01_I_MPA_04_BadFrames(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      iwarp.Start
		answer bool
	}{
		{"markers", iwarp.Start{Markers: true, Rev: 2, Enhanced: true}, true},
		{"revision 0", iwarp.Start{Rev: 0}, true},
		{"revision 3", iwarp.Start{Rev: 3}, true},
		{"a reply", iwarp.Start{Reply: true, Rev: 1}, false},
	} {
		s := Respond(1)
		step, out := s.OnBytes(c.f.Append(nil))
		if step != Failed || s.Code() != iwarp.MPAStart || (out != nil) != c.answer {
			t.Errorf("%s: step %d, %v, answer %x", c.name, step, s.Code(), out)
		}
		if f, _, err := iwarp.ParseStart(out, true); c.answer && (err != nil || !f.Reject || f.Rev < 1 || f.Rev > 2) {
			t.Errorf("%s: the answer is %+v, %v", c.name, f, err)
		}
	}
	for name, f := range map[string]iwarp.Start{
		"markers": {Reply: true, Markers: true, Rev: 1}, "revision 0": {Reply: true},
		"revision 3": {Reply: true, Rev: 3},
		"a request":  {Rev: 1},
	} {
		c, _ := Initiate(1, Options{})
		if step, _ := c.OnBytes(f.Append(nil)); step != Failed || c.Code() != iwarp.MPAStart {
			t.Errorf("reply with %s: step %d, %v", name, step, c.Code())
		}
	}
	old, _ := Initiate(1, Options{ORD: 3})
	if step, _ := old.OnBytes((&iwarp.Start{Reply: true, Rev: 1}).Append(nil)); step != Established ||
		old.Params().ORD != 3 {
		t.Errorf("a responder of revision 1: step %d", step)
	}
}

// TestI_MPA_09_TerminateOfTheInitiator checks the two replies that an initiator answers with a Terminate.
func TestI_MPA_09_TerminateOfTheInitiator(t *testing.T) {
	for _, crc := range []bool{false, true} {
		for want, f := range map[iwarp.Code]iwarp.Start{
			iwarp.MPADepths: {ORD: 5, IRD: 1, PeerToPeer: true, RTR: iwarp.RTRWrite},
			iwarp.MPANoRTR:  {ORD: 4, IRD: 1, PeerToPeer: true},
		} {
			f.Reply, f.Enhanced, f.Rev = true, true, 2
			c, _ := Initiate(1, Options{IRD: 4, ORD: 4, PeerToPeer: true, RTR: every, CRC: crc})
			step, out := c.OnBytes(f.Append(nil))
			p, err := iwarp.ParseFPDU(out)
			if step != Failed || c.Code() != want || err != nil {
				t.Fatalf("step %d, %v, %v", step, c.Code(), err)
			}
			m, err := iwarp.ParseTerminate(iwarp.Segment(p.ULPDU()).Payload())
			if err != nil || m.Code != want || p.Intact() != crc {
				t.Errorf("Terminate %+v, %v, CRC %v", m, err, p.Intact())
			}
		}
	}
}

// TestSetupWithSIW replays the start-up of siw's captures in both roles.
func TestSetupWithSIW(t *testing.T) {
	for _, name := range captures.IWARPNames() {
		client, server := captures.ReadIWARP(t, name)
		_, n, _ := iwarp.ParseStart(client, false)
		_, m, _ := iwarp.ParseStart(server, true)
		s := Respond(1)
		if step, _ := s.OnBytes(client[:n]); step != Asked {
			t.Fatalf("%s: step %d", name, step)
		}
		f, _, _ := iwarp.ParseStart(server, true)
		out, _ := s.Accept(Options{IRD: int(f.IRD), ORD: int(f.ORD), MaxIRD: 128, RTR: every, Private: f.Private})
		if !bytes.Equal(out, server[:m]) {
			t.Errorf("%s: the answer to siw's request is\n%x, siw's is\n%x", name, out, server[:m])
		}
		q, _, _ := iwarp.ParseStart(client, false)
		c, out := Initiate(1, Options{CRC: q.CRC, IRD: int(q.IRD), ORD: int(q.ORD), PeerToPeer: q.PeerToPeer,
			RTR: q.RTR, Private: q.Private})
		if !bytes.Equal(out, client[:n]) {
			t.Errorf("%s: the request is\n%x, siw's is\n%x", name, out, client[:n])
		}
		if step, _ := c.OnBytes(server[:m]); step != Established || c.Params().CRC != q.CRC {
			t.Errorf("%s: step %d, %+v", name, step, c.Params())
		}
	}
}

// FuzzSetup gives both sides any bytes, in two pieces.
func FuzzSetup(f *testing.F) {
	for _, name := range captures.IWARPNames() {
		client, server := captures.ReadIWARP(f, name)
		f.Add(client[:min(64, len(client))], 5, false)
		f.Add(server[:min(64, len(server))], 30, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int, reply bool) {
		s := Respond(1)
		if reply {
			s, _ = Initiate(1, Options{IRD: 4, ORD: 4, PeerToPeer: true, RTR: every})
		}
		cut = min(max(cut, 0), len(b))
		s.OnBytes(b[:cut])
		step, _ := s.OnBytes(b[cut:])
		p := s.Params()
		if step == Established && (p.ORD > 4 || p.IRD != 4 || !reply) {
			t.Fatalf("%+v", p)
		}
		if step == Asked && s.Deadline() != 0 {
			t.Fatal("a timer runs while the user decides")
		}
	})
}
