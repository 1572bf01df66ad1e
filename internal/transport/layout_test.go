package transport

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestWrittenIsPrefetched checks that a short message changes nothing of the QP but what PrefetchRequester and
// PrefetchResponder ask for.
func TestWrittenIsPrefetched(t *testing.T) {
	s := newShortReceiver(t, true)
	qp := s.qp
	s.room = 100
	arrives := func(op wire.Opcode, seq uint32, body ...byte) {
		b := make([]byte, wire.BTHLen+len(body))
		wire.BTH(b).Put(op, 0, 0xFFFF, qp.Num, seq, wire.BTHAckReq)
		copy(b[wire.BTHLen:], body)
		s.arrives(&link.RxPacket{Src: dstAddr, Dst: srcAddr, Data: b})
	}
	exchange := func() {
		s.postShort(1)
		s.flush()
		arrives(wire.RC|wire.Ack, qp.req.una, wire.SynAck, 0, 0, 0)
		if err := qp.RQ.Post(1, s.sges(0, 8)); err != nil {
			t.Fatal(err)
		}
		arrives(wire.RC|wire.SendOnly, qp.resp.epsn, 1, 2, 3, 4)
		s.tx.Reset()
		if !qp.SendAck(s.tx) {
			t.Fatal("no acknowledgement was sent")
		}
	}
	exchange() // the first message sets more
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(qp)), unsafe.Sizeof(*qp))
	before := slices.Clone(bytes)
	exchange()
	exchange()
	if s.shortSender.used != 3 || s.used[wire.RC|wire.Ack] != 3 || s.used[wire.RC|wire.SendOnly] < 2 {
		t.Fatalf("%d requests and %v packets went the short way, want 3 of each", s.shortSender.used, s.used)
	}
	within := func(i uintptr) bool {
		return i >= coreAt && i < coreEnd || i >= requesterAt && i < requesterEnd || i >= responderAt && i < responderEnd
	}
	for i := range bytes {
		if bytes[i] != before[i] && !within(uintptr(i)) {
			t.Errorf("byte %d of the QP has changed, which is not asked for", i)
		}
	}
	if s.cqes[len(s.cqes)-1].Op != CQRecv {
		t.Error("the last completion is not that of the receive")
	}
}
