package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A foreign implementation rewinds as it likes: to any unacknowledged packet, within a message or not, with or
// without a reason, and without knowing of acknowledgements in flight. A consistent message must never be refused,
// and arrives once, complete and in order.
func TestPeerRewindsAnywhere(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		w := newWanderer(t, seed)
		for step := 0; w.acked < len(w.packets); step++ {
			if step == 100_000 {
				t.Fatalf("seed %d: %d of %d packets acknowledged, none more", seed, w.acked, len(w.packets))
			}
			w.step()
		}
		w.check()
		if t.Failed() {
			return
		}
	}
}

const (
	wanderMTU   = 256
	wanderSlot  = 2048 // bytes of memory for each message
	wanderFirst = 0xFFFFE0
	wanderAhead = 64 // unacknowledged packets
)

// wanderer is such a peer, with a network that loses, duplicates and reorders.
type wanderer struct {
	*stage
	seed     uint64
	rng      *rand.Rand
	packets  []wire.Fields
	ends     []int // index of each message's last packet
	want     []string
	receives []int // messages that take one, in order
	posted   int
	next     int // index to send
	acked    int // packets below it are known to have arrived
	late     wire.Packet
}

func newWanderer(t *testing.T, seed uint64) *wanderer {
	messages := 30
	w := &wanderer{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 7)),
		stage: play(
			t,
			fmt.Sprintf("qp rc recvs=4 mtu=%d rq_psn=%d", wanderMTU, wanderFirst),
			fmt.Sprintf("region A len=%d", messages*wanderSlot),
		),
	}
	w.shown = w.answer
	for i := range messages {
		w.message(i)
	}
	return w
}

// message appends the packets of message i.
func (w *wanderer) message(i int) {
	n := []int{0, 1, wanderMTU, wanderMTU + 1, w.rng.IntN(7*wanderMTU + 1)}[w.rng.IntN(5)]
	data, region := patterned(n, i), w.named["A"]
	kind, imm := w.rng.IntN(4), uint32(i)
	send := kind < 2
	switch kind {
	case 0:
		w.want = append(w.want, fmt.Sprintf("cqe recv id=%d SUCCESS len=%d", i, n))
	case 1:
		w.want = append(w.want, fmt.Sprintf("cqe recv id=%d SUCCESS len=%d imm=%#x", i, n, imm))
	case 3:
		w.want = append(w.want, fmt.Sprintf("cqe recv_rdma_with_imm id=%d SUCCESS len=%d imm=%#x", i, n, imm))
	}
	if kind != 2 {
		w.receives = append(w.receives, i)
	}
	count := max((n+wanderMTU-1)/wanderMTU, 1)
	for k := range count {
		f := wire.Fields{
			Opcode: wanderOp(send, kind%2 == 1, k == 0, k == count-1), PKey: wire.DefaultPKey, DestQPN: stageQPN,
			PSN: psn.Add(wanderFirst, len(w.packets)), AckReq: k == count-1 || w.rng.IntN(10) == 0, Imm: imm,
			RKey: region.RKey, Addr: region.Base + uint64(i*wanderSlot), DMALen: uint32(n),
			Payload: data[k*wanderMTU : min((k+1)*wanderMTU, n)],
		}
		w.packets = append(w.packets, f)
	}
	w.ends = append(w.ends, len(w.packets)-1)
}

func wanderOp(send, imm, first, last bool) wire.Opcode {
	switch {
	case send && first && last && imm:
		return wire.SendOnlyImm
	case send && first && last:
		return wire.SendOnly
	case send && first:
		return wire.SendFirst
	case send && last && imm:
		return wire.SendLastImm
	case send && last:
		return wire.SendLast
	case send:
		return wire.SendMiddle
	case first && last && imm:
		return wire.WriteOnlyImm
	case first && last:
		return wire.WriteOnly
	case first:
		return wire.WriteFirst
	case last && imm:
		return wire.WriteLastImm
	case last:
		return wire.WriteLast
	default:
		return wire.WriteMiddle
	}
}

func (w *wanderer) step() {
	switch r := w.rng.IntN(100); {
	case r < 70:
		if w.next < len(w.packets) && w.next < w.acked+wanderAhead {
			w.launch(w.packets[w.next].Build())
			w.next++
		}
	case r < 76: // a timer or an arbitrary rewind
		w.next = w.acked + w.rng.IntN(w.next-w.acked+1)
	case r < 84 && w.posted < len(w.receives) && w.qp.RQ.Posted() < 3: // one more may be under way
		id := w.receives[w.posted]
		w.posted++
		if err := w.doLine(fmt.Sprintf("recv %d A+%d/%d", id, id*wanderSlot, wanderSlot)); err != nil {
			w.t.Fatal(err)
		}
	default:
		w.transmit(64)
	}
	if w.rng.IntN(8) == 0 {
		w.transmit(64)
	}
}

// launch sends a packet over the network.
func (w *wanderer) launch(p wire.Packet) {
	times := 1
	switch w.rng.IntN(20) {
	case 0:
		times = 0
	case 1:
		times = 2
	case 2:
		if w.late == nil {
			w.late, times = p, 0
		}
	}
	for range times {
		w.deliver(p, "")
	}
	if w.late != nil && w.rng.IntN(4) == 0 {
		w.deliver(w.late, "")
		w.late = nil
	}
}

// answer receives the QP's replies; one in five is lost.
func (w *wanderer) answer(p wire.Packet) {
	h := p.AETH()
	index := psn.Diff(p.BTH().PSN(), wanderFirst)
	had := psn.Diff(w.qp.resp.epsn, wanderFirst)
	done := 0
	for _, e := range w.ends {
		if e < had {
			done++
		}
	}
	if int(h.MSN()) > done || index > had || h.Syndrome() == wire.SynAck && index >= had {
		w.t.Errorf(
			"seed %d: %s for packet %d, MSN %d; %d packets and %d messages are there",
			w.seed,
			syndromeText(h),
			index,
			h.MSN(),
			had,
			done,
		)
	}
	if w.rng.IntN(5) == 0 {
		return
	}
	switch {
	case h.Syndrome() == wire.SynAck:
		w.acked = max(w.acked, index+1)
	case h.IsRNR(), h.Syndrome() == wire.SynSeqErr:
		w.acked = max(w.acked, index)
		if w.rng.IntN(3) > 0 {
			w.next = w.acked
		}
	default:
		w.t.Fatalf("seed %d: %s for packet %d of %v\n%s", w.seed, syndromeText(h), index, w.ends, strings.Join(w.log, "\n"))
	}
	w.next = max(w.next, w.acked)
}

// check compares received with sent data.
func (w *wanderer) check() {
	var got []string
	for _, l := range w.log {
		if strings.HasPrefix(l, "cqe ") {
			got = append(got, l)
		}
	}
	if g, want := strings.Join(got, "\n"), strings.Join(w.want, "\n"); g != want {
		w.t.Errorf("seed %d: completions\n%s\nwant\n%s", w.seed, g, want)
	}
	from := 0
	for i, end := range w.ends {
		var sent []byte
		for _, f := range w.packets[from : end+1] {
			sent = append(sent, f.Payload...)
		}
		from = end + 1
		if there := w.named["A"].Buf[i*wanderSlot:]; !bytes.Equal(there[:len(sent)], sent) || there[len(sent)] != '.' {
			w.t.Errorf("seed %d: message %d of %d bytes is not what was sent", w.seed, i, len(sent))
		}
	}
}
