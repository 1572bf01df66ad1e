package verbs

import (
	"runtime"
	"testing"
)

// grow needs so much stack that the runtime moves the goroutine's stack during a driver's call.
//
//go:noinline
func grow(depth int) byte {
	var frame [1024]byte
	frame[depth%len(frame)] = byte(depth)
	if depth == 0 {
		return frame[0]
	}
	return grow(depth-1) + frame[depth%len(frame)]
}

// TestPostAndPollDoNotAllocate posts and polls with composite literals as arguments.
func TestPostAndPollDoNotAllocate(t *testing.T) {
	rc, rcDrv := newQPIn(t, QPTypeRC, QPSRTS)
	ud, udDrv := newQPIn(t, QPTypeUD, QPSRTS)
	srq, srqDrv := newSRQ(t, rc.PD())
	cq, cqDrv := newCQ(t, rc.Context(), nil)
	ah := goodSend(t, ud, WRSend).AH
	mr := must(rc.PD().RegMR(make([]byte, 64), 0))(t)
	wcs := []WC{{WRID: 1}, {WRID: 2}}
	var sum uint64
	work := func() {
		rcDrv.sent, rcDrv.received, udDrv.sent, srqDrv.posted = rcDrv.sent[:0], rcDrv.received[:0], udDrv.sent[:0],
			srqDrv.posted[:0]
		cqDrv.wcs = wcs
		payload := [8]byte{1}
		var got [4]WC
		var err error
		keep := func(e error) {
			if e != nil {
				err = e
			}
		}
		keep(rc.PostSend(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled,
			SGList: []SGE{{Addr: 1, Length: 2, LKey: 3}, mr.SGE(0, 8)}}))
		keep(rc.PostSend(SendWR{Opcode: WRRDMAWrite, Flags: SendInline, Inline: payload[:]},
			SendWR{Opcode: WRRDMARead, SGList: []SGE{{Length: 8}}}))
		keep(rc.PostSend(SendWR{Opcode: WRAtomicFetchAndAdd, SGList: []SGE{{Length: 8}}}))
		keep(ud.PostSend(SendWR{Opcode: WRSend, AH: ah, RemoteQPN: 1, SGList: []SGE{{Length: 8}}}))
		keep(rc.PostRecv(RecvWR{WRID: 5, SGList: []SGE{{Addr: 1}}}, RecvWR{WRID: 6}))
		keep(srq.PostRecv(RecvWR{WRID: 7, SGList: []SGE{{Addr: 1}}}))
		n, e := cq.Poll(got[:])
		keep(e)
		for i := range n {
			sum += got[i].WRID
		}
		if err != nil || n != 2 {
			t.Fatal(n, err)
		}
	}
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if sum != 101*3 { // AllocsPerRun runs once more
		t.Errorf("polled %d", sum)
	}
}

// TestStackMovesDuringPost has a driver that makes the stack move between reading the requests and writing the
// completions.
func TestStackMovesDuringPost(t *testing.T) {
	for depth := range 8 {
		done := make(chan struct{})
		go func() { // each on a fresh, small stack
			defer close(done)
			qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
			var seen []SGE
			var inline []byte
			drv.onSend = func(wrs []SendWR) {
				grow(1 << depth)
				runtime.GC()
				for i := range wrs {
					seen = append(seen, wrs[i].SGList...)
					inline = append(inline, wrs[i].Inline...)
				}
			}
			data := [4]byte{9, 8, 7, 6}
			err := qp.PostSend(SendWR{WRID: 1, Opcode: WRSend, SGList: []SGE{{1, 2, 3}, {4, 5, 6}}},
				SendWR{WRID: 2, Opcode: WRSend, Flags: SendInline, Inline: data[:]})
			if err != nil || len(seen) != 2 || seen[0] != (SGE{1, 2, 3}) || seen[1] != (SGE{4, 5, 6}) ||
				[4]byte(inline) != data {
				t.Errorf("depth %d: %v, %v, %v", depth, err, seen, inline)
			}
			cq := &CQ{ctx: qp.ctx, drv: growingCQ{depth: 1 << depth}}
			var wcs [3]WC
			if n, err := cq.Poll(wcs[:]); n != 3 || err != nil || wcs[0].WRID != 7 || wcs[2].WRID != 9 || wcs[1].Cause.QPN != 8 {
				t.Errorf("depth %d: %d, %v, %+v", depth, n, err, wcs)
			}
		}()
		<-done
	}
}

type growingCQ struct {
	DriverCQ
	depth int
}

func (c growingCQ) Poll(wcs []WC) (int, error) {
	grow(c.depth)
	runtime.GC()
	for i := range wcs {
		wcs[i] = WC{WRID: uint64(7 + i), Cause: &WCError{QPN: uint32(7 + i)}}
	}
	return len(wcs), nil
}

func BenchmarkPostSend(b *testing.B) {
	vctx, _ := openFake(b)
	qp, drv := newQP(b, newPD(b, vctx), QPTypeRC)
	forceState(qp, drv, QPSRTS)
	b.ReportAllocs()
	for b.Loop() {
		drv.sent = drv.sent[:0]
		if err := qp.PostSend(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{{1, 2, 3}}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPoll(b *testing.B) {
	vctx, _ := openFake(b)
	cq, drv := newCQ(b, vctx, nil)
	wcs := make([]WC, 4)
	b.ReportAllocs()
	for b.Loop() {
		drv.wcs = wcs
		var got [8]WC
		if n, err := cq.Poll(got[:]); n != 4 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkCompletionEvent(b *testing.B) {
	vctx, _ := openFake(b)
	ch := must(vctx.CreateCompChannel())(b)
	_, drv := newCQ(b, vctx, &CQOptions{Channel: ch})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		drv.up.Completion()
		cq, err := ch.GetEvent(ctx)
		if err != nil {
			b.Fatal(err)
		}
		cq.AckEvents(1)
	}
}
