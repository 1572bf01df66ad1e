package soft_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestDataPathAllocatesNothing: posting, polling, sending and receiving allocate no memory in any operation.
func TestDataPathAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	onEach(t, func(t *testing.T, n *network) {
		if n.name != "mem" && (runtime.GOOS != "linux" || os.Getenv("VERBENA_UDP") == "plain") {
			t.Skip("plain sockets allocate")
		}
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		ua, ub, ah := udPair(t, a, b)
		domain := b.openXRCD(nil)
		srq, srqn := b.xrcSRQ(domain)
		xs := a.qp(verbs.QPTypeXRCSend, nil)
		join(t, xs, b.xrcRecv(domain), nil)
		var wcs [8]verbs.WC
		drain := func(e *end, n int) {
			for n > 0 {
				k, err := e.cq.Poll(wcs[:])
				if err != nil || k > 0 && wcs[0].Status != verbs.WCSuccess {
					t.Fatal(err, wcs[0])
				}
				n -= k
			}
		}
		rdma := func(op verbs.WROpcode, size int) func() {
			return func() {
				err := qa.PostSend(verbs.SendWR{
					Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, size)}, RemoteAddr: b.mr.Addr(),
					RKey: b.mr.RKey(),
				})
				if err != nil {
					t.Fatal(err)
				}
				drain(a, 1)
			}
		}
		for _, c := range []struct {
			name string
			f    func()
		}{
			{"SEND", func() {
				if err := qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 10000)}}); err != nil {
					t.Fatal(err)
				}
				err := qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
					SGList: []verbs.SGE{a.mr.SGE(0, 10000)}})
				if err != nil {
					t.Fatal(err)
				}
				drain(b, 1)
				drain(a, 1)
			}},
			{"inline", func() {
				if err := qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 10000)}}); err != nil {
					t.Fatal(err)
				}
				var data [16]byte
				err := qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline,
					Inline: data[:]})
				if err != nil {
					t.Fatal(err)
				}
				drain(b, 1)
				drain(a, 1)
			}},
			{"UD", func() {
				if err := ub.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 1000)}}); err != nil {
					t.Fatal(err)
				}
				err := ua.PostSend(verbs.SendWR{
					Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 100)},
					AH: ah, RemoteQPN: ub.QPN(), RemoteQKey: verbs.DefaultQKey,
				})
				if err != nil {
					t.Fatal(err)
				}
				drain(b, 1)
				drain(a, 1)
			}},
			{"XRC", func() {
				if err := srq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 10000)}}); err != nil {
					t.Fatal(err)
				}
				err := xs.PostSend(verbs.SendWR{
					Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 10000)}, RemoteSRQN: srqn,
				})
				if err != nil {
					t.Fatal(err)
				}
				drain(b, 1)
				drain(a, 1)
			}},
			{"WRITE", rdma(verbs.WRRDMAWrite, 100000)},
			{"READ", rdma(verbs.WRRDMARead, 100000)},
			{"FETCH_ADD", rdma(verbs.WRAtomicFetchAndAdd, 8)},
		} {
			for range 10 { // buffers are allocated at first use
				c.f()
			}
			if n := testing.AllocsPerRun(200, c.f); n != 0 {
				t.Errorf("%s: %v allocations", c.name, n)
			}
		}
	})
}
