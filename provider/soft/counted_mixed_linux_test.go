package soft_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// mixedPair is a pair of QPs of TestMixedRequestsThroughSharedMemory, and what happened since they were connected.
type mixedPair struct {
	from, to *verbs.QP
	posted   uint64 // requests
	done     uint64 // of them
	sends    uint64 // posted
	sent     uint64 // completed
	received uint64
	receives int // posted and not completed
	places   int // that receives have used
}

// TestMixedRequestsThroughSharedMemory: QPs in random turns send messages, write, read and add, sometimes without a
// receive at the other end, and are reset and connected again at any time. Completions come in order, a SEND that has
// completed was received before, and each message arrives once.
func TestMixedRequestsThroughSharedMemory(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { mixedRequests(t, seed) })
	}
}

func mixedRequests(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	ends := newEnds(t, &networks[2], 2, nil)
	x, y := ends[0], ends[1]
	pairs := make([]*mixedPair, 12)
	byNum := map[uint32]*mixedPair{}
	link := func(m *mixedPair) {
		*m = mixedPair{from: m.from, to: m.to}
		join(t, m.from, m.to, &verbs.ConnectOptions{MinRNRTimer: 1})
	}
	for i := range pairs {
		m := &mixedPair{from: x.qp(verbs.QPTypeRC, nil), to: y.qp(verbs.QPTypeRC, nil)}
		pairs[i], byNum[m.from.QPN()], byNum[m.to.QPN()] = m, m, m
		link(m)
	}
	recv := func(e *end) bool {
		var wcs [8]verbs.WC
		n, err := e.cq.Poll(wcs[:])
		must(t, err)
		for i := range wcs[:n] {
			wc, m := &wcs[i], byNum[wcs[i].QPNum]
			must(t, wc.Err())
			if e == y {
				if got := binary.LittleEndian.Uint64(y.buf[wc.WRID:]); got != m.received {
					t.Fatalf("message %d, want %d", got, m.received)
				}
				m.received, m.receives = m.received+1, m.receives-1
				continue
			}
			if wc.WRID != m.done {
				t.Fatalf("completion of request %d, want %d", wc.WRID, m.done)
			}
			m.done++
			if wc.Opcode == verbs.WCSend {
				m.sent++
			}
		}
		return n > 0
	}
	drain := func(m *mixedPair) { // y sees what it has received
		for recv(y) {
		}
		if m.sent > m.received {
			t.Fatalf("%d messages sent, %d received", m.sent, m.received)
		}
	}
	post := func(k int) { // a receive
		m := pairs[k]
		at := 4096*k + 64*(m.places%40)
		must(t, m.to.PostRecv(verbs.RecvWR{WRID: uint64(at), SGList: []verbs.SGE{y.mr.SGE(at, 64)}}))
		m.receives, m.places = m.receives+1, m.places+1
	}
	for range 100000 {
		k := rnd.IntN(len(pairs))
		m, slot := pairs[k], 4096*k
		switch op := rnd.IntN(100); {
		case op < 35 && m.receives < 20: // so that the CQ has room for all
			post(k)
		case op < 80 && m.posted-m.done < 20:
			wr := verbs.SendWR{WRID: m.posted, Flags: verbs.SendSignaled, RemoteAddr: y.mr.Addr() + uint64(slot) + 4000,
				RKey: y.mr.RKey(), SGList: []verbs.SGE{x.mr.SGE(slot, 8)}}
			switch op {
			case 35:
				wr.Opcode = verbs.WRRDMARead
			case 36:
				wr.Opcode, wr.CompareAdd = verbs.WRAtomicFetchAndAdd, 1
			case 37, 38, 39:
				wr.Opcode = verbs.WRRDMAWrite
			default:
				wr.Opcode, wr.Flags = verbs.WRSend, wr.Flags|verbs.SendInline
				wr.SGList, wr.Inline = nil, binary.LittleEndian.AppendUint64(nil, m.sends)
				m.sends++
			}
			must(t, m.from.PostSend(wr))
			m.posted++
		case op < 98:
			recv([]*end{x, y}[op%2])
		case rnd.IntN(20) == 0:
			must(t, m.from.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
			for recv(x) {
			}
			drain(m)
			must(t, m.to.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
			for recv(y) {
			}
			link(m)
		}
	}
	for k, m := range pairs {
		for m.done < m.posted {
			for m.receives < 8 {
				post(k)
			}
			recv(x)
			recv(y)
		}
		if drain(m); m.sent != m.received || m.sent != m.sends {
			t.Errorf("%d messages posted, %d sent, %d received", m.sends, m.sent, m.received)
		}
	}
	if n := counter(y.dev, "shm_tx_packets"); n == 0 {
		t.Error("nothing went through shared memory")
	}
}
