package iwarp

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// Time-outs of the start-up.
const (
	ReplyTimeout   = 10 * time.Second // the initiator waits for the reply
	RequestTimeout = 5 * time.Second  // the responder waits for the request
)

// MaxPrivate is the most private data of a user, in bytes, in an enhanced start-up frame.
const MaxPrivate = iwarp.MaxPrivate - 4

// Options is what one side brings to a start-up.
type Options struct {
	CRC        bool      // this side wants CRCs
	IRD, ORD   int       // the READs and atomics that it answers, and has outstanding, at a time
	MaxIRD     int       // responder: the most that it can answer, if the initiator asks for more than IRD
	PeerToPeer bool      // initiator: either side may send first
	RTR        iwarp.RTR // the first messages of a peer-to-peer connection that it can send, or receive
	Rev        uint8     // initiator: the revision to ask for; 0: iwarp.Rev2
	Private    []byte
}

// Params is what both sides of a connection have agreed on.
type Params struct {
	Initiator bool
	CRC       bool
	IRD, ORD  int
	RTR       iwarp.RTR // the message with which a peer-to-peer connection begins; 0: an ordinary connection
}

// Step is the result of an event of the start-up.
type Step uint8

// The steps.
const (
	Waiting     Step = iota
	Asked            // responder: the request has come; Accept or Reject answers it
	Established      // Params are valid
	Refused          // initiator: the peer has rejected the connection
	Failed           // see Code; the connection must be closed
)

// Setup is the start-up of MPA on one connection. After Established, Refused or Failed it is of no further use.
type Setup struct {
	initiator bool
	opt       Options
	step      Step
	buf       []byte      // the peer's frame, as far as it has arrived
	peer      iwarp.Start // the peer's frame
	rest      []byte      // initiator: what has come behind the reply
	params    Params
	deadline  int64
	code      iwarp.Code
	timeout   bool
}

// Initiate begins the start-up of an initiator at a time in ns. out is to be sent at once.
func Initiate(now int64, o Options) (s *Setup, out []byte) {
	if o.Rev == 0 {
		o.Rev = iwarp.Rev2
	}
	s = &Setup{initiator: true, opt: o, deadline: now + int64(ReplyTimeout)}
	f := iwarp.Start{CRC: o.CRC, Rev: o.Rev, Private: o.Private}
	if o.Rev >= iwarp.Rev2 {
		f.Enhanced, f.IRD, f.ORD = true, depth(o.IRD), depth(o.ORD)
		if f.PeerToPeer = o.PeerToPeer; f.PeerToPeer {
			f.RTR = o.RTR
		}
	}
	return s, f.Append(nil)
}

// Respond begins the start-up of a responder at a time in ns.
func Respond(now int64) *Setup { return &Setup{deadline: now + int64(RequestTimeout)} }

func depth(n int) uint16 { return uint16(min(max(n, 0), iwarp.MaxDepth)) }

// Deadline is the time in ns at which OnTimeout is due, 0 for never.
func (s *Setup) Deadline() int64 { return s.deadline }

// Peer is the peer's frame, valid from Asked, Established or Refused on. Its Private are the peer's private data.
func (s *Setup) Peer() *iwarp.Start { return &s.peer }

// Frame is the peer's frame as it came, without what follows it.
func (s *Setup) Frame() []byte { return s.buf[:len(s.buf)-len(s.rest)] }

// Params returns the agreed parameters, valid when Established.
func (s *Setup) Params() Params { return s.params }

// Code is why the start-up Failed, and TimedOut reports that the peer was silent.
func (s *Setup) Code() iwarp.Code { return s.code }
func (s *Setup) TimedOut() bool   { return s.timeout }

// Rest is what an initiator has received behind the reply. It is for the QP: siw as a responder does not wait for the
// initiator's first message.
func (s *Setup) Rest() []byte { return s.rest }

// OnBytes takes what the stream has delivered. out is to be sent, also if the start-up failed.
func (s *Setup) OnBytes(b []byte) (step Step, out []byte) {
	switch s.step {
	case Waiting:
	case Asked: // the initiator waits for the reply
		return s.fail(iwarp.MPAStart), nil
	default:
		return s.step, nil
	}
	s.buf = append(s.buf, b...)
	f, n, err := iwarp.ParseStart(s.buf, s.initiator)
	switch {
	case err == iwarp.ErrShort:
		return Waiting, nil
	case err != nil || n < len(s.buf) && !s.initiator: // an initiator may send more when it has the reply
		return s.fail(iwarp.MPAStart), nil
	}
	s.peer, s.deadline, s.rest = f, 0, s.buf[n:]
	if s.initiator {
		return s.onReply()
	}
	return s.onRequest()
}

// onRequest judges the request of an initiator. Markers and unknown revisions are rejected.
func (s *Setup) onRequest() (Step, []byte) {
	if s.peer.Markers || s.peer.Rev < iwarp.Rev1 || s.peer.Rev > iwarp.Rev2 {
		out := s.refusal(nil)
		return s.fail(iwarp.MPAStart), out
	}
	s.step = Asked
	return Asked, nil
}

// onReply judges the answer of a responder.
func (s *Setup) onReply() (Step, []byte) {
	p, o := &s.peer, &s.opt
	switch {
	case p.Reject:
		s.step = Refused
		return Refused, nil
	case p.Markers || p.Rev < iwarp.Rev1 || p.Rev > o.Rev:
		return s.fail(iwarp.MPAStart), nil
	}
	s.params = Params{Initiator: true, CRC: o.CRC || p.CRC, IRD: o.IRD, ORD: o.ORD}
	if p.Enhanced {
		if p.ORD != iwarp.DepthUnknown && int(p.ORD) > o.IRD {
			return s.fail(iwarp.MPADepths), s.terminate(iwarp.MPADepths)
		}
		if p.IRD != iwarp.DepthUnknown {
			s.params.ORD = min(o.ORD, int(p.IRD))
		}
		if o.PeerToPeer && p.PeerToPeer {
			if s.params.RTR = prefer(p.RTR & o.RTR); s.params.RTR == 0 {
				return s.fail(iwarp.MPANoRTR), s.terminate(iwarp.MPANoRTR)
			}
		}
	}
	s.step = Established
	return Established, nil
}

// prefer selects one of the first messages: a WRITE uses no resource of the peer, a READ one of its IRD.
func prefer(r iwarp.RTR) iwarp.RTR {
	for _, one := range []iwarp.RTR{iwarp.RTRWrite, iwarp.RTRRead, iwarp.RTRSend} {
		if r&one != 0 {
			return one
		}
	}
	return 0
}

// Accept answers the request that was Asked. Its ORD is reduced to what the initiator answers, and its IRD raised to
// what the initiator wants, as far as MaxIRD goes. The connection is established once out is sent; false reports that
// the start-up is in another state.
func (s *Setup) Accept(o Options) (out []byte, ok bool) {
	if s.step != Asked {
		return nil, false
	}
	p := &s.peer
	f := iwarp.Start{Reply: true, CRC: o.CRC || p.CRC, Rev: p.Rev, Enhanced: p.Enhanced, Private: o.Private}
	s.params = Params{CRC: f.CRC, IRD: o.IRD, ORD: o.ORD}
	if p.Enhanced {
		if p.ORD != iwarp.DepthUnknown {
			s.params.IRD = max(o.IRD, min(int(p.ORD), o.MaxIRD))
		}
		if p.IRD != iwarp.DepthUnknown {
			s.params.ORD = min(o.ORD, int(p.IRD))
		}
		if p.PeerToPeer {
			f.PeerToPeer = true
			f.RTR = prefer(p.RTR & o.RTR)
			s.params.RTR = f.RTR
		}
		f.IRD, f.ORD = depth(s.params.IRD), depth(s.params.ORD)
	}
	s.step = Established
	return f.Append(nil), true
}

// Reject answers the request that was Asked with a refusal. The connection is to be closed once out is sent.
func (s *Setup) Reject(private []byte) (out []byte, ok bool) {
	if s.step != Asked {
		return nil, false
	}
	out = s.refusal(private)
	s.step = Failed
	return out, true
}

func (s *Setup) refusal(private []byte) []byte {
	f := iwarp.Start{Reply: true, Reject: true, CRC: s.peer.CRC, Private: private,
		Rev: min(max(s.peer.Rev, iwarp.Rev1), iwarp.Rev2), Enhanced: s.peer.Enhanced && s.peer.Rev == iwarp.Rev2}
	return f.Append(nil)
}

// OnTimeout is called when Deadline has passed.
func (s *Setup) OnTimeout(now int64) Step {
	if s.step == Waiting && s.deadline != 0 && now >= s.deadline {
		s.timeout = true
		return s.fail(iwarp.MPALost)
	}
	return s.step
}

// OnClosed is called when the peer has closed the stream, or it was lost.
func (s *Setup) OnClosed() Step {
	if s.step == Waiting || s.step == Asked {
		return s.fail(iwarp.MPALost)
	}
	return s.step
}

func (s *Setup) fail(c iwarp.Code) Step {
	s.step, s.code, s.deadline = Failed, c, 0
	return Failed
}

// terminate returns the FPDU of a Terminate that is about no segment.
func (s *Setup) terminate(c iwarp.Code) []byte {
	seg := make([]byte, iwarp.UntaggedLen, iwarp.UntaggedLen+iwarp.TerminateLen)
	iwarp.PutUntagged(seg, iwarp.TerminateOp, true, 0, 1, 0)
	t := iwarp.Terminate{Code: c}
	return iwarp.AppendFPDU(nil, t.Append(seg), s.opt.CRC || s.peer.CRC)
}
