package transport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A reader of rendezvous messages is a QP with a list of tags. Its completions are kept.
type rndvStage struct {
	*hostile
	got []CQE
}

const (
	rndvTag  = 0x1122334455667788
	rndvCtx  = 0x01020304
	rndvAddr = 0x9008
	rndvKey  = 0x123
)

// newRndv returns a QP with MTU 512 and one buffer of 2000 bytes for tag 0.
func newRndv(t *testing.T) *rndvStage {
	t.Helper()
	h := &rndvStage{hostile: newHostile(t, []byte{kindTags, 1, 128, 0xC4})}
	h.quiet = false
	cq := pushFunc(func(e *CQE) {
		h.got = append(h.got, *e)
		h.stage.Push(e)
	})
	h.qp.RecvCQ, h.qp.resp.cq = cq, cq
	h.add(1, 2000)
	return h
}

// add adds a buffer for any tag.
func (h *rndvStage) add(wrid uint64, n uint32) {
	h.t.Helper()
	r := h.regions[regLocal]
	op := TagOp{
		Op: TagAdd, RecvWRID: wrid, Tag: rndvTag, Mask: ^uint64(0), SGEs: []SGE{{Addr: r.Base, Length: n, LKey: r.LKey}},
	}
	if err := h.tags.Do(&op); err != nil {
		h.t.Fatal(err)
	}
}

// bring delivers a packet and sends the answers.
func (h *rndvStage) bring(op wire.Opcode, psn uint32, data []byte) {
	h.t.Helper()
	p, err := wire.Parse((&wire.Fields{
		Opcode: wire.RC | op, PKey: wire.DefaultPKey, DestQPN: stageQPN, PSN: psn, AckReq: op < wire.ReadRespFirst,
		Syndrome: wire.SynAck, Payload: data,
	}).Build())
	if err != nil {
		h.t.Fatal(err)
	}
	h.log = nil
	h.deliver(p, "")
	h.transmit(1 << 20)
}

// request is a rendezvous request for n bytes, with extra bytes of the program.
func request(n uint32, extra int) []byte {
	b := make([]byte, wire.TMHLen+wire.RVHLen+extra)
	wire.TMH(b).Put(wire.TMRndv, rndvCtx, rndvTag)
	wire.RVH(b[wire.TMHLen:]).Put(rndvAddr, rndvKey, n)
	return b
}

// sentOnly checks the packets that were sent, without acknowledgements.
func (h *rndvStage) sentOnly(want ...string) {
	h.t.Helper()
	var got []string
	for _, l := range h.log {
		if strings.HasPrefix(l, "> ") && !strings.HasPrefix(l, "> ACK") {
			got = append(got, l)
		}
	}
	same(h.t, "packets", got, want)
}

// next takes the next completion.
func (h *rndvStage) next() CQE {
	h.t.Helper()
	if len(h.got) == 0 {
		h.t.Fatalf("no completion: %v", h.log)
	}
	e := h.got[0]
	h.got = h.got[1:]
	if e.QP != h.qp || e.QPN != stageQPN || e.RQ != h.rq {
		h.t.Errorf("the completion is of QP %#x: %+v", e.QPN, e)
	}
	return e
}

// The QP reads a rendezvous message into the buffer that its tag matches, and tells the sender. The match completes at
// once, the buffer with the data. Neither the READ nor the response takes a slot of the program for ever.
func TestV_SRQX_01_RendezvousIsRead(t *testing.T) {
	h := newRndv(t)
	data := patterned(1100, 7)
	at := uint32(0) // PSN of the next request of the QP
	for round := range uint64(10) {
		if round > 0 {
			h.add(round+1, 2000)
		}
		h.bring(wire.SendOnly, h.qp.resp.epsn, request(1100, 10))
		if !h.has("> ACK") {
			t.Errorf("the request is not acknowledged: %v", h.log)
		}
		h.sentOnly(fmt.Sprintf("> RDMA READ REQUEST psn=%d ackreq va=0x9008 rkey=0x123 len=1100", at))
		e := h.next()
		if e.Status != Success || e.Op != CQTMRecv || e.Flags != TMMatch || e.WRID != round+1 || e.Tag != rndvTag ||
			e.AppCtx != rndvCtx || e.ByteLen != 0 || e.Tags != h.tags {
			t.Fatalf("match: %+v", e)
		}
		if h.qp.Scratch.sent != (CQE{}) {
			t.Errorf("the next completion of a SEND has fields of the match: %+v", h.qp.Scratch.sent)
		}
		if n := h.tags.used.Load(); n != 1 {
			t.Errorf("%d buffers in use while one is read", n)
		}
		h.bring(wire.ReadRespFirst, at, data[:512])
		h.bring(wire.ReadRespMiddle, at+1, data[512:1024])
		if len(h.got) != 0 {
			t.Fatalf("completed before the last packet: %+v", h.got)
		}
		h.sentOnly()
		fin := make([]byte, wire.TMHLen)
		wire.TMH(fin).Put(wire.TMFin, rndvCtx, rndvTag)
		h.bring(wire.ReadRespLast, at+2, data[1024:])
		h.sentOnly(fmt.Sprintf("> SEND ONLY psn=%d ackreq data=%s", at+3, dataText(fin)))
		e = h.next()
		if e.Status != Success || e.Op != CQTMRecv || e.Flags != TMDataValid || e.WRID != round+1 || e.Tag != rndvTag ||
			e.AppCtx != rndvCtx || e.ByteLen != 1100 || e.Tags != h.tags {
			t.Fatalf("data: %+v", e)
		}
		if !bytes.Equal(h.regions[regLocal].Buf[:1100], data) {
			t.Error("wrong bytes")
		}
		h.bring(wire.Ack, at+3, nil)
		if len(h.got) != 0 || h.tags.used.Load() != 0 || h.qp.SQ.polled.Load() != h.qp.SQ.Posted() {
			t.Fatalf("%d completions, %d buffers in use, slots free to %d of %d", len(h.got), h.tags.used.Load(),
				h.qp.SQ.polled.Load(), h.qp.SQ.Posted())
		}
		at += 4
	}
}

// A READ that the sender refuses completes the buffer with the error.
func TestRendezvousThatFails(t *testing.T) {
	h := newRndv(t)
	h.bring(wire.SendOnly, h.qp.resp.epsn, request(1100, 0))
	h.next()
	if err := h.doLine(fmt.Sprintf("in ACK psn=0 syndrome=%#x", wire.SynAccess)); err != nil {
		t.Fatal(err)
	}
	e := h.next()
	if e.Status != RemAccessErr || e.WRID != 1 || e.ByteLen != 0 || e.Cause == nil || e.Cause.Status != RemAccessErr {
		t.Errorf("%+v", e)
	}
	if h.qp.State() != Err || len(h.got) != 0 || h.tags.used.Load() != 0 {
		t.Errorf("state %v, completions %+v, %d buffers in use", h.qp.State(), h.got, h.tags.used.Load())
	}
}

// RESET drops a READ under way without a completion, and its buffer is free.
func TestRendezvousThenReset(t *testing.T) {
	h := newRndv(t)
	h.bring(wire.SendOnly, h.qp.resp.epsn, request(1100, 0))
	h.next()
	if err := h.qp.Modify(0, &Attr{State: Reset}, MaskState); err != nil {
		t.Fatal(err)
	}
	if len(h.got) != 0 || h.tags.used.Load() != 0 {
		t.Errorf("completions %+v, %d buffers in use", h.got, h.tags.used.Load())
	}
	h.connect()
	h.add(2, 2000)
	h.bring(wire.SendOnly, h.qp.resp.epsn, request(10, 0))
	if e := h.next(); e.WRID != 2 || e.Flags != TMMatch {
		t.Errorf("after RESET: %+v", e)
	}
	h.sentOnly("> RDMA READ REQUEST psn=0 ackreq va=0x9008 rkey=0x123 len=10")
}

// fill posts requests and sends them.
func (h *rndvStage) fill(list ...SendWQE) {
	q := h.qp.SQ
	q.Lock()
	for _, w := range list {
		*q.Next() = w
		q.Commit()
	}
	q.Publish()
	q.Unlock()
	h.transmit(1 << 20)
}

// A QP that cannot read gives the request to the program: in the buffer if it fits, else as an unexpected message.
func TestRendezvousThatTheProgramReads(t *testing.T) {
	for _, c := range []struct {
		name string
		room uint32
		make func(h *rndvStage)
		sw   bool // in the buffer
	}{
		{"no READ permitted", 32, func(h *rndvStage) { h.qp.attr.MaxRdAtomic = 0 }, true},
		{"the buffer is too small", 31, func(h *rndvStage) { h.qp.attr.MaxRdAtomic = 0 }, false},
		{"SQD", 32, func(h *rndvStage) { h.qp.req.drain() }, true},
		{"too many messages are read", 32, func(h *rndvStage) { h.qp.SQ.own.used = OwnRequests - 1 }, true},
		{"a failure waits", 32, func(h *rndvStage) { h.fill(SendWQE{}, SendWQE{Op: OpCmpSwap, Length: 4}) }, true},
	} {
		h := newRndv(t)
		if err := h.qp.Modify(0, &Attr{State: Reset}, MaskState); err != nil {
			t.Fatal(err)
		}
		h.connect()
		h.tags.Do(&TagOp{Op: TagDel, Handle: h.tags.entries[h.tags.first].handle})
		h.add(1, c.room)
		r := h.regions[regLocal]
		if err := h.rq.Post(9, []SGE{{Addr: r.Base + 2048, Length: 100, LKey: r.LKey}}); err != nil {
			t.Fatal(err)
		}
		c.make(h)
		b := request(1100, 0)
		h.bring(wire.SendOnly, h.qp.resp.epsn, b)
		e := h.next()
		got := r.Buf[:len(b)]
		want := CQE{WRID: 1, Status: TMRndvIncomplete, Flags: TMMatch}
		if !c.sw {
			want, got = CQE{WRID: 9, Flags: TMSyncReq}, r.Buf[2048:][:len(b)]
		}
		if e.WRID != want.WRID || e.Status != want.Status || e.Flags != want.Flags || e.Op != CQTMRecv ||
			e.Tag != rndvTag || e.AppCtx != rndvCtx || !bytes.Equal(got, b) {
			t.Errorf("%s: %+v", c.name, e)
		}
		if slices.ContainsFunc(h.log, func(l string) bool { return strings.HasPrefix(l, "> RDMA READ") }) {
			t.Errorf("%s: %v", c.name, h.log)
		}
	}
}

// Requests that are too short or too long to be matched are unexpected messages. The longest one is matched.
func TestRendezvousRequestsThatAreNotMatched(t *testing.T) {
	const least = wire.TMHLen + wire.RVHLen
	for _, c := range []struct {
		n       int
		first   bool // the first one of several packets
		matched bool
	}{
		{least - 1, false, false},
		{least, false, true},
		{MaxRndvHeader, false, true},
		{MaxRndvHeader + 1, false, false},
		{512, true, false},
	} {
		h := newRndv(t)
		r := h.regions[regLocal]
		if err := h.rq.Post(9, []SGE{{Addr: r.Base, Length: 1000, LKey: r.LKey}}); err != nil {
			t.Fatal(err)
		}
		b := request(1100, 512)[:c.n]
		if c.first {
			h.bring(wire.SendFirst, h.qp.resp.epsn, b)
			h.bring(wire.SendLast, h.qp.resp.epsn, b)
		} else {
			h.bring(wire.SendOnly, h.qp.resp.epsn, b)
		}
		e := h.next()
		if matched := e.WRID == 1 && e.Flags == TMMatch; matched != c.matched || !matched && e.Flags != TMSyncReq {
			t.Errorf("%d bytes: %+v", c.n, e)
		}
	}
}

// A message that is longer than its buffer is refused.
func TestRendezvousLongerThanTheBuffer(t *testing.T) {
	for n, want := range map[uint32]Status{2000: Success, 2001: LocLenErr} {
		h := newRndv(t)
		h.bring(wire.SendOnly, h.qp.resp.epsn, request(n, 0))
		if e := h.next(); e.Status != want || e.WRID != 1 {
			t.Errorf("%d bytes: %+v", n, e)
		}
		if (h.qp.State() == Err) != (want != Success) {
			t.Errorf("%d bytes: state %v", n, h.qp.State())
		}
	}
}

// RESET between the data and the acknowledgement of the response gives no buffer back: it has completed.
func TestRendezvousThenResetAfterItsData(t *testing.T) {
	h := newRndv(t)
	h.bring(wire.SendOnly, h.qp.resp.epsn, request(10, 0))
	h.bring(wire.ReadRespOnly, 0, patterned(10, 1))
	if err := h.qp.Modify(0, &Attr{State: Reset}, MaskState); err != nil {
		t.Fatal(err)
	}
	if len(h.got) != 2 || h.tags.used.Load() != 0 {
		t.Errorf("%d completions, %d buffers in use", len(h.got), h.tags.used.Load())
	}
}

// The receive of a WRITE's immediate data is none of a tag, also after a message with one.
func TestImmediateDataAfterATaggedMessage(t *testing.T) {
	h := newRndv(t)
	r := h.regions[regLocal]
	if err := h.rq.Post(9, []SGE{{Addr: r.Base, Length: 8, LKey: r.LKey}}); err != nil {
		t.Fatal(err)
	}
	h.bring(wire.SendOnly, h.qp.resp.epsn, eager(100, rndvTag))
	if e := h.next(); e.Op != CQTMRecv || e.WRID != 1 || e.ByteLen != 100-wire.TMHLen || e.Flags != TMMatch|TMDataValid {
		t.Fatalf("%+v", e)
	}
	h.bring(wire.WriteOnlyImm, h.qp.resp.epsn, nil)
	if e := h.next(); e.Op != CQRecvRDMAImm || e.WRID != 9 || e.Tag != 0 || e.Tags != nil || e.Flags != WithImm {
		t.Errorf("%+v", e)
	}
}
