package endpoint

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// The second process dies: what waits for its answer fails at once, not after all retries (4 s each at timeout 20), and
// receives that wait for its messages are given back.
func TestDeathOfTheOtherProcess(t *testing.T) {
	if os.Getenv("VERBENA_SHM") == "0" {
		t.Skip("without shared memory nobody learns of a death")
	}
	p, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if err := p.Connect(Options{QPs: 2, Depth: 8, Bytes: 4096}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Do(p.Remote(verbs.WRRDMAWrite, 0, 0, 64)); err != nil {
		t.Fatal(err)
	}
	idle := p.End.QPs[1]
	if err := idle.PostRecv(verbs.RecvWR{WRID: 7, SGList: []verbs.SGE{p.End.MR.SGE(0, 64)}}); err != nil {
		t.Fatal(err)
	}
	// A message for which there is no receive: it is repeated as long as the peer lives.
	send := verbs.SendWR{WRID: 8, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.End.MR.SGE(0, 64)}}
	if err := p.End.QPs[0].PostSend(send); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	want := map[uint64]verbs.WCStatus{7: verbs.WCWRFlushErr, 8: verbs.WCRetryExcErr}
	for len(want) > 0 {
		var wcs [4]verbs.WC
		n, err := p.End.cq.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if wc.Status != want[wc.WRID] {
				t.Errorf("request %d: %v, want %v", wc.WRID, wc.Err(), want[wc.WRID])
			}
			delete(want, wc.WRID)
		}
		if time.Since(begin) > 3*time.Second {
			t.Fatalf("nothing of %v after %v; %v %v", want, time.Since(begin), p.End.QPs[0].State(), p.End.QPs[1].State())
		}
	}
	for _, qp := range p.End.QPs {
		if qp.State() != verbs.QPSErr {
			t.Errorf("QP %#x is in %v", qp.QPN(), qp.State())
		}
	}
	t.Logf("after %v", time.Since(begin))
}

// With both ends at work the messages go through shared memory; VERBENA_SHM=0 keeps them off it.
func TestWhichWay(t *testing.T) {
	for _, value := range []string{"1", "0"} {
		t.Setenv("VERBENA_SHM", value)
		p := connected(t, Options{QPs: 1, Depth: 8, Bytes: 4096})
		if _, err := p.Do(p.Remote(verbs.WRRDMAWrite, 0, 0, 64)); err != nil {
			t.Fatal(err)
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		if lanes := strings.Contains(string(maps), "/memfd:verbena "); lanes != (value == "1") {
			t.Errorf("VERBENA_SHM=%s: shared memory: %v", value, lanes)
		}
	}
}
