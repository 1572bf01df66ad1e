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

// When the second process dies, requests fail at once, not after all retries (4 s each at timeout 20), and
// posted receives are flushed.
func TestPeerProcessDies(t *testing.T) {
	if os.Getenv("VERBENA_SHM") == "0" {
		t.Skip("without shared memory the death of a peer is not detected")
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
	// A message without a receive is retried for as long as the peer lives.
	send := verbs.SendWR{WRID: 8, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{p.End.MR.SGE(0, 64)}}
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
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("completions %v missing after %v; %v %v",
				want, time.Since(begin), p.End.QPs[0].State(), p.End.QPs[1].State())
		}
	}
	for _, qp := range p.End.QPs {
		if qp.State() != verbs.QPSErr {
			t.Errorf("QP %#x is in %v", qp.QPN(), qp.State())
		}
	}
	t.Logf("after %v", time.Since(begin))
}

// Messages between two running ends use shared memory, unless VERBENA_SHM=0.
func TestSharedMemoryIsUsed(t *testing.T) {
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
		if mapped := strings.Contains(string(maps), "/memfd:verbena "); mapped != (value == "1") {
			t.Errorf("VERBENA_SHM=%s: shared memory: %v", value, mapped)
		}
	}
}
