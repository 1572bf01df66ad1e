package rdmacm

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
)

// A local path is kept for a moment only, and not after the end of its device.
func TestWaysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		var h [2]*Host
		for i := range h {
			dev, err := f.NewDevice(string(rune('a'+i)), netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}))
			if err != nil {
				t.Fatal(err)
			}
			h[i] = NewHost(dev)
		}
		peer := netip.AddrFrom4([4]byte{198, 18, 0, 2})
		find := func() *device {
			t.Helper()
			h[0].mu.Lock()
			defer h[0].mu.Unlock()
			d, _, err := h[0].toward(PSTCP, peer)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		d := find()
		until := h[0].paths[peer].until
		time.Sleep(pathAge / 2)
		if find(); !h[0].paths[peer].until.Equal(until) {
			t.Error("the way was looked for again at once")
		}
		time.Sleep(pathAge)
		if find(); h[0].paths[peer].until.Equal(until) {
			t.Error("the way was remembered for too long")
		}
		d.gone = true
		h[0].mu.Lock()
		if _, _, err := h[0].toward(PSTCP, peer); err == nil {
			t.Error("the way leads to a device that has gone")
		}
		h[0].mu.Unlock()
		d.gone = false
		for _, h := range h {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
