package sim

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	wrapSlots   = 8
	wrapSlot    = 1 << 16              // bytes that a WRITE may have
	wrapBlock   = wrapSlots * wrapSlot // then come the word of atomics, and the room of messages
	wrapWord    = wrapBlock + 64       // where atomics return their result
	wrapMessage = wrapBlock + 1024     // where messages arrive
	wrapAccess  = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessFlushGlobal
	wrapPSNs    = 1<<24 + 1<<20 // a PSN has 24 bits
)

// TestPSNsWrap sends more packets over one connection than there are PSNs, with faults. Between WRITEs, which need most
// of them, come the other operations after random numbers of packets: what an end remembers of their PSNs must not be
// taken for that of later packets with the same ones.
func TestPSNsWrap(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("17 million packets take 10 s, and a hundred with the race detector")
	}
	seed := max(*oneSeed, 1)
	loss := []float64{0.0001, 0.001, 0.01}[seed%3]
	f := rdmatest.New(rdmatest.Config{Seed: seed, Faults: rdmatest.Faults{
		Loss: loss, Duplicate: 0.0005, Reorder: 0.0005, Delay: 2 * time.Microsecond,
	}})
	w := &wrap{T: t, f: f, rng: rand.New(rand.NewPCG(seed, 0))}
	w.a, w.b = w.open("a"), w.open("b")
	w.connect(w.a, w.b)
	w.connect(w.b, w.a)
	operations := []func(){w.fetchAdd, w.compareSwap, w.read, w.atomicWrite, w.flush, w.send}
	for next := uint64(1); w.packets < wrapPSNs; {
		w.writes()
		if w.packets < next {
			continue
		}
		for range 1 + w.rng.IntN(4) {
			operations[w.rng.IntN(len(operations))]()
			w.rare++
		}
		if w.rng.IntN(4) == 0 {
			w.turn()
		}
		next = w.packets + uint64(math.Exp2(w.rng.Float64()*24))
	}
	t.Logf("%d packets of WRITEs, %d other operations", w.packets, w.rare)
}

// wrap is a connection. The requests are those of a; b answers.
type wrap struct {
	*testing.T
	f       *rdmatest.Fabric
	rng     *rand.Rand
	a, b    *wrapEnd
	word    uint64 // the value in b's memory
	stamp   uint64
	packets uint64
	rare    int
}

type wrapEnd struct {
	qp  *verbs.QP
	cq  *verbs.CQ
	mr  *verbs.MR
	buf []byte
}

func (w *wrap) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("after %d packets and %d other operations: %v", w.packets, w.rare, err)
	}
}

func (w *wrap) open(name string) *wrapEnd {
	e := &wrapEnd{buf: make([]byte, wrapMessage+1024)}
	ctx, err := w.f.Open(name)
	w.must(err)
	pd, err := ctx.AllocPD()
	w.must(err)
	e.cq, err = ctx.CreateCQ(64, nil)
	w.must(err)
	e.mr, err = pd.RegMR(e.buf, verbs.AccessLocalWrite|wrapAccess)
	w.must(err)
	e.qp, err = pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	w.must(err)
	return e
}

func (w *wrap) connect(e, peer *wrapEnd) {
	info, err := peer.qp.LocalInfo()
	w.must(err)
	// The smallest packets and a short ACK timeout, for speed.
	w.must(e.qp.Connect(info, &verbs.ConnectOptions{MTU: verbs.MTU256, Timeout: 8, Access: wrapAccess}))
}

// turn makes the other end the one with the requests.
func (w *wrap) turn() {
	w.a, w.b = w.b, w.a
	w.word = binary.NativeEndian.Uint64(w.b.buf[wrapBlock:])
}

func (w *wrap) wait(e *wrapEnd, n int) (last verbs.WC) {
	w.Helper()
	var wcs [16]verbs.WC
	arrived := w.f.Run(func() bool {
		k, err := e.cq.Poll(wcs[:])
		w.must(err)
		for _, wc := range wcs[:k] {
			w.must(wc.Err())
			last = wc
		}
		n -= k
		return n <= 0
	}, time.Minute)
	if !arrived {
		w.Fatalf("after %d packets: no completion", w.packets)
	}
	return last
}

// do executes one request on b's memory at an offset.
func (w *wrap) do(wr verbs.SendWR, offset int) {
	w.Helper()
	wr.RemoteAddr, wr.RKey = w.b.mr.SGE(offset, 0).Addr, w.b.mr.RKey()
	w.must(w.a.qp.PostSend(wr))
	w.wait(w.a, 1)
}

func (w *wrap) equal(what string, got, want uint64) {
	w.Helper()
	if got != want {
		w.Fatalf("after %d packets: %s: %#x, want %#x", w.packets, what, got, want)
	}
}

func (w *wrap) same(what string, a, b []byte) {
	w.Helper()
	if !bytes.Equal(a, b) {
		w.Fatalf("after %d packets: %s: other bytes", w.packets, what)
	}
}

func (w *wrap) writes() {
	var lengths [wrapSlots]int
	for i := range lengths {
		n := 8 + w.rng.IntN(wrapSlot-7)
		offset := i * wrapSlot
		w.stamp++
		binary.LittleEndian.PutUint64(w.a.buf[offset:], w.stamp)
		binary.LittleEndian.PutUint64(w.a.buf[offset+n-8:], w.stamp)
		w.must(w.a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{w.a.mr.SGE(offset, n)},
			RemoteAddr: w.b.mr.SGE(offset, 0).Addr, RKey: w.b.mr.RKey()}))
		lengths[i] = n
		w.packets += uint64(n+verbs.MTU256.Bytes()-1) / uint64(verbs.MTU256.Bytes())
	}
	w.wait(w.a, wrapSlots)
	for i, n := range lengths {
		offset := i * wrapSlot
		w.same("first bytes of a WRITE", w.b.buf[offset:offset+8], w.a.buf[offset:offset+8])
		w.same("last bytes of a WRITE", w.b.buf[offset+n-8:offset+n], w.a.buf[offset+n-8:offset+n])
	}
}

func (w *wrap) result() (verbs.SGE, []byte) { return w.a.mr.SGE(wrapWord, 8), w.a.buf[wrapWord:] }

func (w *wrap) fetchAdd() {
	sge, result := w.result()
	w.do(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: []verbs.SGE{sge}, CompareAdd: 3}, wrapBlock)
	w.equal("FETCH_ADD", binary.NativeEndian.Uint64(result), w.word)
	w.word += 3
}

func (w *wrap) compareSwap() {
	sge, result := w.result()
	wr := verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, SGList: []verbs.SGE{sge}, CompareAdd: w.word, Swap: w.rng.Uint64()}
	w.do(wr, wrapBlock)
	w.equal("CMP_SWAP", binary.NativeEndian.Uint64(result), w.word)
	w.word = wr.Swap
}

func (w *wrap) atomicWrite() {
	sge, value := w.result()
	w.word = w.rng.Uint64()
	binary.NativeEndian.PutUint64(value, w.word)
	w.do(verbs.SendWR{Opcode: verbs.WRAtomicWrite, SGList: []verbs.SGE{sge}}, wrapBlock)
	w.equal("ATOMIC_WRITE", binary.NativeEndian.Uint64(w.b.buf[wrapBlock:]), w.word)
}

func (w *wrap) read() {
	n := 1 + w.rng.IntN(wrapBlock/4)
	clear(w.a.buf[:n])
	w.do(verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{w.a.mr.SGE(0, n)}}, 0)
	w.same("READ", w.a.buf[:n], w.b.buf[:n])
}

func (w *wrap) flush() {
	w.do(verbs.SendWR{Opcode: verbs.WRFlush, Flush: verbs.Flush{Length: wrapSlot, Type: verbs.FlushGlobal}}, 0)
}

func (w *wrap) send() {
	n := w.rng.IntN(len(w.b.buf) - wrapMessage)
	w.must(w.b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{w.b.mr.SGE(wrapMessage, n)}}))
	w.do(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{w.a.mr.SGE(0, n)}}, 0)
	wc := w.wait(w.b, 1)
	w.equal("length of a SEND", uint64(wc.ByteLen), uint64(n))
	w.same("SEND", w.b.buf[wrapMessage:wrapMessage+n], w.a.buf[:n])
}
