package soft_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// shared replaces the memory of an end by memory of AllocBuffer.
func (e *end) shared(n int) ([]byte, *verbs.MR) {
	e.tb.Helper()
	buf := get(verbs.AllocBuffer(n))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, verbs.FreeBuffer(buf)) })
	m := get(e.pd.RegMR(buf, allAccess))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, m.Close()) })
	return buf, m
}

// TestLongMessagesByReference: long messages from memory of AllocBuffer are sent by reference.
func TestLongMessagesByReference(t *testing.T) {
	ends := newEnds(t, &networks[2], 2, nil)
	x, y := ends[0], ends[1]
	qx, qy := connect(x, y, verbs.QPTypeRC, nil)
	const n = 300<<10 + 5
	from, mx := x.shared(1 << 20)
	to, my := y.shared(1 << 20)
	for round := byte(0); counter(x.dev, "shm_refs") < 20; round++ {
		for i := range from {
			from[i] = byte(i)*7 + byte(i>>8) + round
		}
		wr := verbs.SendWR{
			WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{mx.SGE(5, 100), mx.SGE(1000, n-100)},
		}
		if round%2 == 0 {
			wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, my.Addr()+33, my.RKey()
		} else {
			must(t, qy.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{my.SGE(33, 7), my.SGE(40, n)}}))
		}
		must(t, qx.PostSend(wr))
		x.good(1)
		if round%2 == 1 {
			if wc := y.good(1)[0]; wc.ByteLen != n {
				t.Fatalf("received %d bytes", wc.ByteLen)
			}
		}
		if !bytes.Equal(to[33:133], from[5:105]) || !bytes.Equal(to[133:33+n], from[1000:1000+n-100]) {
			t.Fatalf("round %d: the bytes differ", round)
		}
		if round == 200 {
			t.Fatal("no message was sent by reference")
		}
	}
}

// TestRegionOverTwoBuffers: a region over two adjoining buffers of AllocBuffer is one region for messages, which are in
// no single file.
func TestRegionOverTwoBuffers(t *testing.T) {
	const n = 256 << 10
	first, second := get(verbs.AllocBuffer(n))(t), get(verbs.AllocBuffer(n))(t)
	low := first
	if at := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }; at(second)+n == at(first) {
		low = second
	} else if at(first)+n != at(second) {
		t.Skip("the buffers do not adjoin")
	}
	t.Cleanup(func() { must(t, verbs.FreeBuffer(first)) })
	t.Cleanup(func() { must(t, verbs.FreeBuffer(second)) })
	ends := newEnds(t, &networks[2], 2, nil)
	x, y := ends[0], ends[1]
	qx, _ := connect(x, y, verbs.QPTypeRC, nil)
	both := unsafe.Slice(unsafe.SliceData(low), 2*n)
	m := get(x.pd.RegMR(both, allAccess))(t)
	t.Cleanup(func() { must(t, m.Close()) })
	for i := range y.buf {
		y.buf[i] = byte(i) ^ byte(i>>9)
	}
	for round := range 50 {
		for _, op := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRRDMAWrite} {
			must(t, qx.PostSend(verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{m.SGE(0, 2*n)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}))
			x.good(1)
			if !bytes.Equal(both, y.buf[:2*n]) {
				t.Fatalf("round %d, %v: the bytes differ", round, op)
			}
			for i := range both {
				both[i] += byte(i) | 1
			}
		}
		if bytes.Equal(both, y.buf[:2*n]) {
			t.Fatal("the rounds do not differ")
		}
	}
}

// whole checks for 2 ms that each message, or READ, that completes has all of its bytes. The WRID is its place in to.
func (e *end) whole(round int, to, want []byte) {
	e.tb.Helper()
	n := uint64(len(want))
	for deadline := time.Now().Add(2 * time.Millisecond); time.Now().Before(deadline); {
		var wcs [1]verbs.WC
		k, err := e.cq.Poll(wcs[:])
		must(e.tb, err)
		if k > 0 && wcs[0].Status == verbs.WCSuccess && !bytes.Equal(to[wcs[0].WRID*n:][:n], want) {
			e.tb.Fatalf("round %d: wrong bytes in message %d", round, wcs[0].WRID)
		}
	}
}

// TestReferencesAreRevoked: after the reset of a QP with outstanding messages, or the removal of a region, the peer
// never takes the later contents of the memory for the message.
func TestReferencesAreRevoked(t *testing.T) {
	ends := newEnds(t, &networks[2], 2, nil)
	x, y := ends[0], ends[1]
	const n = 64 << 10
	from, mx := x.shared(n)
	// One buffer for each message: an incomplete message may leave any bytes in its buffer.
	const messages = 4
	to, my := y.shared(messages * n)
	want := bytes.Repeat([]byte{1}, n)
	before := counter(y.dev, "shm_revoked")
	for round := range 60 {
		qx, qy := connect(x, y, verbs.QPTypeRC, nil)
		for i := range from {
			from[i] = 1
		}
		for i := range messages {
			must(t, qy.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{my.SGE(i*n, n)}}))
		}
		wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{mx.SGE(0, n)}}
		must(t, qx.PostSend(wr, wr, wr, wr))
		if round%2 == 0 {
			time.Sleep(time.Duration(round) * time.Microsecond)
		}
		must(t, qx.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		for i := range from {
			from[i] = 2
		}
		y.whole(round, to, want)
		must(t, qy.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	}
	t.Log(fmt.Sprint(counter(y.dev, "shm_revoked")-before, " references were revoked"))
}
