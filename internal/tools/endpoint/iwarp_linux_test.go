package endpoint

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

func TestTwoProcessesOverIWARP(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	const n = 4096
	p, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second process closes the first End
		if err := p.ConnectIWARP(Options{QPs: 1, Depth: 8, Bytes: 2 * n}); err != nil {
			t.Fatal(err)
		}
		Fill(p.End.Buf[:n], 5)
		if _, err := p.Do(p.Remote(verbs.WRRDMAWrite, 0, n, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Do(p.Remote(verbs.WRRDMARead, 0, n, n)); err != nil { // the WRITE has arrived
			t.Fatal(err)
		}
		if err := p.Call("Check", Region{Off: n, Len: n, Seed: 5}, &None{}); err != nil {
			t.Error(err)
		}
		var d time.Duration
		err := p.Serving(Serving{Mode: Pong, Bytes: 8}, func() (err error) {
			d, err = p.PingPong(5*time.Millisecond, 8)
			return err
		})
		if err != nil || d <= 0 {
			t.Errorf("ping-pong: %v, %v", d, err)
		}
		if err := p.End.Close(); err != nil {
			t.Error(err)
		}
		p.End = nil
	}
}

// Devices of RoCE are refused: the figures would not be those of iWARP.
func TestIWARPNeedsItsDevices(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "roce")
	p, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.ConnectIWARP(Options{QPs: 1, Depth: 8, Bytes: 8}); err == nil {
		t.Error("RoCE devices are taken")
	}
}
