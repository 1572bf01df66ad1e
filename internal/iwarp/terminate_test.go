package iwarp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// told are the codes of the RFCs, with the status of the READ that a Terminate names.
var told = map[transport.Status][]iwarp.Code{
	transport.RemAccessErr: {iwarp.ReadSTag, iwarp.ReadBounds, iwarp.ReadAccess, iwarp.ReadStream, iwarp.ReadWrap,
		iwarp.CannotInvalidate, iwarp.ProtectionOther},
	transport.RemInvReqErr: {iwarp.RDMAPVersion, iwarp.UnexpectedOpcode, iwarp.StreamError, iwarp.GlobalError,
		iwarp.OpCannotInvalidate, iwarp.OperationOther, iwarp.InvalidQN, iwarp.NoBuffer, iwarp.InvalidMSN, iwarp.InvalidMO,
		iwarp.TooLong, iwarp.UntaggedVersion},
	transport.RemOpErr: {iwarp.LocalCatastrophic, iwarp.DDPCatastrophic},
}

// toldNothing are the codes of Terminates that name no READ: those of tagged segments, and those of MPA.
var toldNothing = []iwarp.Code{iwarp.TaggedSTag, iwarp.TaggedBounds, iwarp.TaggedStream, iwarp.TaggedWrap,
	iwarp.TaggedVersion, iwarp.MPALost, iwarp.MPACRC, iwarp.MPALength, iwarp.MPAStart, iwarp.MPACatastrophic}

// A Terminate of each code ends the QP with QP_FATAL. The READ that it names gets the status of the code, everything
// else is flushed; a Terminate that names a WRITE, or nothing, flushes all. Each completion has the code's text.
func TestI_TERM_02_I_TERM_03_EachCodeReceived(t *testing.T) {
	read := untagged(iwarp.ReadRequest, true, 2, 0, nil)
	write := tagged(iwarp.Write, true, 7, testBase, 0)
	covered := map[iwarp.Code]bool{iwarp.MPADepths: true, iwarp.MPANoRTR: true} // of the start-up
	for status, list := range told {
		for _, c := range list {
			covered[c] = true
			m := iwarp.Terminate{Code: c, SegLen: 46, DDP: read}
			if c.Layer() == 0 {
				m.RDMAP = make([]byte, iwarp.ReadRequestLen)
			}
			isTold(t, m, fmt.Sprintf("[1:5 2:%d 3:5]", status))
			if c != iwarp.UnexpectedOpcode { // TestI_TERM_04_TerminatesOfTheKernel
				isTold(t, iwarp.Terminate{Code: c}, "[1:5 2:5 3:5]")
			}
		}
	}
	for _, c := range toldNothing {
		covered[c] = true
		m := iwarp.Terminate{Code: c}
		if c.Layer() == 1 {
			m.SegLen, m.DDP = 14, write
		}
		isTold(t, m, "[1:5 2:5 3:5]")
	}
	for c := range iwarp.Code(0x3000) {
		if c.Known() && !covered[c] {
			t.Errorf("no test has %04x (%v)", uint16(c), c)
		}
	}
}

func isTold(t *testing.T, m iwarp.Terminate, want string) {
	t.Helper()
	s := newSide(t, Params{Initiator: true, IRD: 1, ORD: 2}, 1000)
	for i := range uint64(3) {
		s.post(1+i, transport.OpRead, nil, s.sge(0, 10))
	}
	s.drain()
	s.qp.Feed(iwarp.AppendFPDU(nil, untagged(iwarp.TerminateOp, true, 1, 0, m.Append(nil)), false))
	if b := s.drain(); len(b) > 0 || !s.qp.Finished() {
		t.Errorf("%v is answered with %x", m.Code, b)
	}
	if got := fmt.Sprint(list(s.done)); got != want {
		t.Errorf("%04x (%v): completions %s, want %s", uint16(m.Code), m.Code, got, want)
	}
	if s.qp.State() != transport.Err || !slices.Equal(s.events, []transport.Event{transport.EventQPFatal}) {
		t.Errorf("%04x: state %v, events %v", uint16(m.Code), s.qp.State(), s.events)
	}
	for _, e := range s.done {
		if text := "the peer has terminated the stream: " + m.Code.String(); e.Cause == nil || e.Cause.Reason != text {
			t.Errorf("%04x: the reason is %+v, want %q", uint16(m.Code), e.Cause, text)
		}
	}
}

// raised is the event of the side that sends a code.
func raised(c iwarp.Code) transport.Event {
	switch c {
	case iwarp.ReadSTag, iwarp.ReadBounds, iwarp.ReadAccess, iwarp.ReadStream, iwarp.ReadWrap, iwarp.CannotInvalidate,
		iwarp.TaggedSTag, iwarp.TaggedBounds, iwarp.TaggedStream, iwarp.TaggedWrap, iwarp.TaggedVersion:
		return transport.EventQPAccessErr
	case iwarp.LocalCatastrophic:
		return transport.EventQPFatal
	default:
		return transport.EventQPReqErr
	}
}

// The malformed segments of the other tests bring each code that a QP sends: all but those of the start-up, of a lost
// connection, and those that name no fault of the peer.
func TestI_TERM_02_I_TERM_03_EachCodeSent(t *testing.T) {
	covered := map[iwarp.Code]bool{
		iwarp.MPACRC: true, iwarp.LocalCatastrophic: true, // TestI_MPA_13_BadCRC, TestLocalErrors
		iwarp.MPADepths: true, iwarp.MPANoRTR: true, // TestI_MPA_09_TerminateOfTheInitiator
	}
	_, all := victim(t, false)
	for _, b := range all {
		covered[b.want] = true
	}
	never := []iwarp.Code{iwarp.ProtectionOther, iwarp.StreamError, iwarp.GlobalError, iwarp.OpCannotInvalidate,
		iwarp.DDPCatastrophic, iwarp.MPALost, iwarp.MPAStart, iwarp.MPACatastrophic}
	for c := range iwarp.Code(0x3000) {
		if c.Known() && covered[c] == slices.Contains(never, c) {
			t.Errorf("%04x (%v): covered %v", uint16(c), c, covered[c])
		}
	}
}

// A READ whose buffer was withdrawn before the response comes fails on this side, as the stream does.
func TestWithdrawnBufferOfARead(t *testing.T) {
	c, s := pair(t, Params{IRD: 1, ORD: 1}, 1000, 0)
	mine := c.region(make([]byte, 100), 0x5000, testPD, mr.LocalWrite)
	c.post(1, transport.OpRead, at(s, 0), transport.SGE{Addr: 0x5000, Length: 100, LKey: mine.LKey})
	s.qp.Feed(c.drain())
	if err := c.table.Remove(mine); err != nil {
		t.Fatal(err)
	}
	c.qp.Feed(s.drain())
	if m, n := sent(t, c.drain()); m == nil || m.Code != iwarp.LocalCatastrophic || m.DDP != nil || n != 0 {
		t.Errorf("%+v after %d segments", m, n)
	}
	if got, want := fmt.Sprint(list(c.done)), fmt.Sprintf("[1:%d]", transport.LocProtErr); got != want {
		t.Errorf("completions %s, want %s", got, want)
	}
	if !slices.Equal(c.events, []transport.Event{raised(iwarp.LocalCatastrophic)}) {
		t.Errorf("events %v", c.events)
	}
}
