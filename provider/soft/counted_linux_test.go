package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestShortRequestsAreCounted: short requests of several QPs through shared memory are acknowledged in groups, without
// packets, whatever their operation and whatever receives the messages: a queue of the QP or an SRQ. With one QP there
// are ACK packets.
func TestShortRequestsAreCounted(t *testing.T) {
	ends := newEnds(t, &networks[2], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
	x, y := ends[0], ends[1]
	srq := get(y.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 64, MaxSGE: 1}}))(t)
	t.Cleanup(func() { must(t, srq.Close()) })
	for _, shared := range []*verbs.SRQ{nil, srq} {
		var qx, qy []*verbs.QP
		for range 8 {
			from := x.qp(verbs.QPTypeRC, nil)
			to := y.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = shared })
			join(t, from, to, nil)
			qx, qy = append(qx, from), append(qy, to)
		}
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm} {
			for _, n := range []int{1, len(qx)} {
				round := func() { // one request of each of n QPs
					for i := range n {
						post := qy[i].PostRecv
						if shared != nil {
							post = shared.PostRecv
						}
						if op != verbs.WRRDMAWrite {
							must(t, post(verbs.RecvWR{SGList: []verbs.SGE{y.mr.SGE(4096, 64)}}))
						}
					}
					for _, qp := range qx[:n] {
						must(t, qp.PostSend(verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled,
							SGList: []verbs.SGE{x.mr.SGE(0, 8)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}))
					}
					for sent := 0; sent < n; {
						y.succeeded()
						sent += x.succeeded()
					}
				}
				for warm := 0; counter(x.dev, "shm_tx_packets") < 10; warm++ { // the first packets may go over UDP
					if round(); warm == 1e6 {
						t.Fatal("no packet goes through shared memory")
					}
				}
				sent, acks := counter(x.dev, "shm_tx_packets"), counter(y.dev, "shm_tx_packets")
				for range 400 / n {
					round()
				}
				sent, acks = counter(x.dev, "shm_tx_packets")-sent, counter(y.dev, "shm_tx_packets")-acks
				if sent < 400 || n == 1 && acks < sent/2 || n > 1 && acks > sent/20 {
					t.Errorf("SRQ %v, %v, %d QPs: %d packets, %d the other way", shared != nil, op, n, sent, acks)
				}
			}
		}
	}
}

// succeeded polls once and returns the number of completions, which must be successful.
func (e *end) succeeded() int {
	e.tb.Helper()
	e.dev.Step()
	var wcs [16]verbs.WC
	n, err := e.cq.Poll(wcs[:])
	must(e.tb, err)
	for i := range wcs[:n] {
		must(e.tb, wcs[i].Err())
	}
	return n
}
