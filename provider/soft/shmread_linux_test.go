package soft_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// The bytes of a READ of a whole buffer of AllocBuffer are sent by reference, and arrive in all SGEs.
func TestReadsByReference(t *testing.T) {
	ends := newEnds(t, &networks[2], 2, nil)
	x, y := ends[0], ends[1]
	_, qy := connect(x, y, verbs.QPTypeRC, nil)
	const n = 300<<10 + 5
	from, mx := x.shared(1 << 20)
	to, my := y.shared(1 << 20)
	for round := byte(0); counter(x.dev, "shm_refs") < 20; round++ {
		for i := range from {
			from[i] = byte(i)*7 + byte(i>>8) + round
		}
		must(t, qy.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, RemoteAddr: mx.Addr() + 1000, RKey: mx.RKey(),
			SGList: []verbs.SGE{my.SGE(33, 70_000), my.SGE(100_000, n-70_000)},
		}))
		y.good(1)
		if !bytes.Equal(to[33:][:70_000], from[1000:][:70_000]) ||
			!bytes.Equal(to[100_000:][:n-70_000], from[1000+70_000:][:n-70_000]) {
			t.Fatalf("round %d: the bytes differ", round)
		}
		if round == 200 {
			t.Fatal("nothing was sent by reference")
		}
	}
}

// After the end of a region, or the reset of the responder's QP, a READ does not complete with the later contents of
// the memory.
func TestReadReferencesAreRevoked(t *testing.T) {
	ends := newEnds(t, &networks[2], 2, nil)
	x, y := ends[0], ends[1]
	const n, reads = 64 << 10, 4
	from := get(verbs.AllocBuffer(n))(t)
	t.Cleanup(func() { must(t, verbs.FreeBuffer(from)) })
	to, my := y.shared(reads * n)
	want := bytes.Repeat([]byte{1}, n)
	for round := range 60 {
		qx, qy := connect(x, y, verbs.QPTypeRC, nil)
		mx := get(x.pd.RegMR(from, allAccess))(t)
		for i := range from {
			from[i] = 1
		}
		for i := range reads {
			must(t, qy.PostSend(verbs.SendWR{
				WRID: uint64(i), Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, RemoteAddr: mx.Addr(),
				RKey: mx.RKey(), SGList: []verbs.SGE{my.SGE(i*n, n)},
			}))
		}
		if round%4 < 2 {
			time.Sleep(time.Duration(round) * time.Microsecond)
		}
		if round%2 == 0 {
			must(t, qx.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		} else {
			must(t, mx.Close())
		}
		for i := range from {
			from[i] = 2
		}
		y.whole(round, to, want)
		if round%2 == 0 {
			must(t, mx.Close())
		}
		must(t, qx.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		must(t, qy.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	}
}
