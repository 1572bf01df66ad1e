package transport

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// FuzzRequester lets a peer send any response at any time, while work is posted, time passes and the QP is modified.
// The requester's state must be consistent, completions arrive in order and once, and only buffers of READs and
// atomics change.
func FuzzRequester(f *testing.F) {
	f.Add([]byte{0, 2, 20, 8, 0, 0, 16, 16, 16})
	f.Add([]byte{4, 50, 0, 4, 255, 0, 16, 40, 0, 17, 41, 1, 18, 9, 0})
	f.Add([]byte{1, 255, 16, 10, 3, 0, 32, 0, 16, 48, 48, 48, 24, 64, 16, 65, 64, 66})
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		b := make([]byte, rnd.IntN(500))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			return
		}
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.MTU, a.SQPSN, a.RetryCnt, a.RNRRetry = 256, 0xFFFFF8, 3, 3 })
		s.qp.SetWindow(8000, nil)
		if len(script)%2 == 1 {
			s.qp.SetKeepAlive(0, 100*time.Millisecond)
		}
		z := &requesterFuzz{sender: s, script: script}
		for len(z.script) > 0 && !t.Failed() {
			z.step()
			z.checkBooks()
			z.checkCompletions()
		}
		if !bytes.Equal(s.mem.Buf[fuzzReads:], noise[fuzzReads:]) {
			t.Error("memory changed that no READ names")
		}
	})
}

type requesterFuzz struct {
	*sender
	script []byte
	next   uint64 // the next work request to complete
}

// fuzzReads is the end of the buffers of READs and atomics.
const fuzzReads = 4096

func (z *requesterFuzz) byte() int {
	if len(z.script) == 0 {
		return 0
	}
	b := z.script[0]
	z.script = z.script[1:]
	return int(b)
}

func (z *requesterFuzz) step() {
	b := z.byte()
	arg := b >> 4
	switch b & 15 {
	case 0, 1, 2, 3:
		z.out()
	case 4, 5, 6, 7:
		z.postAny(
			[]Op{OpWrite, OpWriteImm, OpSend, OpSendImm, OpRead, OpCmpSwap, OpFetchAdd, OpLocalInv, OpBindMW, OpSendInv,
				OpFlush, OpAtomicWrite}[arg%12],
		)
	case 8:
		z.after(int64(arg) * 20 * msec)
	case 9:
		z.modifyAny(arg)
	default:
		z.answerAny(b&15, arg)
	}
}

func (z *requesterFuzz) postAny(op Op) {
	st := z.qp.State()
	q := z.qp.SQ
	if st < RTS || int(q.fill-q.polled.Load()) == q.Cap() {
		return
	}
	n := z.byte() * 8
	sges := z.sges(fuzzReads, n, 3)
	if op == OpRead || op == OpCmpSwap || op == OpFetchAdd {
		sges = z.sges(0, n, 5)
	}
	flags := SendFlags(z.byte())
	z.post(op, sges, func(w *SendWQE) { w.Flags = flags &^ Inline })
}

func (z *requesterFuzz) modifyAny(to int) {
	st := State(to % 7)
	switch {
	case st == Reset:
		z.modify(Reset, Attr{}, 0)
		z.next = z.wrid // none of the posted requests completes
		for _, st := range []State{Init, RTR, RTS} {
			a := rtsAttr()
			a.MTU = 256
			z.modify(st, a, everyMask)
		}
	case st == Err && to > 10:
		z.modify(Err, Attr{}, 0)
	case z.qp.State() == RTS && st == SQD, z.qp.State() == SQD && st == RTS && !z.qp.Draining():
		z.modify(st, Attr{SQDNotify: true}, MaskSQDNotify)
	}
}

// answerAny sends a response with a PSN near the outstanding ones.
func (z *requesterFuzz) answerAny(kind, arg int) {
	r := &z.qp.req
	at := psn.Add(r.una, arg-3)
	if arg == 15 {
		at = psn.Add(r.max, -1)
	}
	ops := []wire.Opcode{
		wire.Ack,
		wire.ReadRespFirst,
		wire.ReadRespMiddle,
		wire.ReadRespLast,
		wire.ReadRespOnly,
		wire.AtomicAck,
	}
	op, syndrome, n := ops[kind-10], uint8(wire.SynAck), 256
	if b := z.byte(); op == wire.Ack && b&1 != 0 {
		syndrome = []uint8{wire.SynRNR, wire.SynSeqErr, wire.SynSeqErr, wire.SynInvReq, wire.SynAccess, wire.SynOpErr, 0x40,
			0x7F}[b>>1&7]
	} else if b&3 == 3 {
		n = b
		// most often the right length
	} else if at == r.una && r.una != r.max && (op == wire.ReadRespLast || op == wire.ReadRespOnly) {
		w := r.oldest()
		off := (at - w.first) & psn.Mask
		n = int(min(256, w.Length-min(w.Length, off*256)))
	}
	data := pattern(at, n)
	if op == wire.Ack || op == wire.AtomicAck {
		data = nil
	}
	z.reply(op, at, syndrome, 1, data)
}

// checkBooks checks the invariants between two calls.
func (z *requesterFuzz) checkBooks() {
	r := &z.qp.req
	if int32(r.cur-r.head) < 0 || int32(r.begun-r.cur) < 0 || int32(r.sq.Posted()-r.begun) < 0 {
		z.t.Fatalf("queue: head %d, cur %d, begun %d, posted %d", r.head, r.cur, r.begun, r.sq.Posted())
	}
	if psn.Diff(r.nxt, r.una) < 0 || psn.Diff(r.max, r.nxt) < 0 {
		z.t.Fatalf("PSNs: una %d, nxt %d, max %d", r.una, r.nxt, r.max)
	}
	flight, reads := 0, 0
	at := r.una
	for i := r.head; at != r.nxt; {
		w := r.oldest()
		if at != r.una {
			w = r.sq.At(i)
		}
		if !r.isCheck(w) {
			i++
		}
		from := (at - w.first) & psn.Mask
		to := min(w.count, from+(r.nxt-at)&psn.Mask)
		flight += r.cost(w, from, to)
		if w.waitsForAnswer() {
			reads += int((to+w.cell-1)/w.cell - from/w.cell)
		}
		at = psn.Add(w.first, int(to))
	}
	if flight != r.win.flight || reads != int(r.reads) {
		z.t.Fatalf("in flight: %d bytes and %d reads, the books say %d and %d", flight, reads, r.win.flight, r.reads)
	}
	if z.qp.State() == Err && (r.head != r.sq.Posted() || z.qp.Pending() || z.qp.Deadline() != Never) {
		z.t.Fatal("something is left in ERR")
	}
}

// checkCompletions checks that failed and signalled requests complete in the order of posting.
func (z *requesterFuzz) checkCompletions() {
	for _, e := range z.cqes {
		if e.WRID != z.next+1 {
			z.t.Fatalf("wr %d completes, want %d", e.WRID, z.next+1)
		}
		z.next = e.WRID
		z.qp.SQ.Release(e.Slot)
	}
	z.cqes = z.cqes[:0]
}
