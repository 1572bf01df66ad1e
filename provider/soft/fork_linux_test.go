package soft_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_FORK_05_ChildrenDoNotAffectMemory: a program that executes another one keeps its
// registered memory: peers' WRITEs are visible without ibv_fork_init.
func TestV_FORK_05_ChildrenDoNotAffectMemory(t *testing.T) {
	ends := newEnds(t, &networks[1], 2, nil)
	a, b := ends[0], ends[1]
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	for i := range 20 {
		child := exec.Command(os.Args[0], "-test.run=^$")
		must(t, child.Start())
		a.fill(byte(i))
		must(t, qa.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 1<<18)},
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
		}))
		a.good(1)
		if !bytes.Equal(a.buf[:1<<18], b.buf[:1<<18]) {
			t.Fatalf("round %d: the bytes differ", i)
		}
		must(t, child.Wait())
	}
}
