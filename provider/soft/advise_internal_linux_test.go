package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestAdviceLetsOthersIn: a region is deregistered while pages of a long one are brought in, which can take as long as
// the disk needs; posts of inline data wait for both.
func TestAdviceLetsOthersIn(t *testing.T) {
	d := newDevice(spec{name: "vrb_x", addrs: addrs("192.0.2.1")})
	d.virtual, d.cfg.links.Open = true, mem.NewFabric(mem.Config{}).Open
	c := made(driver.NewDevice(d).Open())(t)
	defer c.Close()
	pd := made(c.AllocPD())(t)
	defer pd.Close()
	const size = 64 << 20
	long := made(pd.RegMR(make([]byte, size), verbs.AccessLocalWrite|verbs.AccessOnDemand))(t)
	defer long.Close()
	other := made(pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite))(t)

	var brought atomic.Uint64
	closed := make(chan struct{})
	populate = func(b []byte, write bool) error {
		if brought.Add(uint64(len(b))) < size { // not the last piece
			select {
			case <-closed:
			case <-time.After(300 * time.Millisecond):
			}
		}
		return nil
	}
	defer func() { populate = populatePages }()
	advised := make(chan error, 1)
	go func() { advised <- pd.AdviseMR(verbs.AdvicePrefetchWrite, 0, long.SGE(0, size)) }()
	for brought.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	n := brought.Load() // before close, after which no piece waits
	close(closed)
	if n == size {
		t.Error("the region was deregistered after all pages were brought in")
	}
	if err := <-advised; err != nil || brought.Load() != size {
		t.Errorf("%v, %d bytes brought in, want %d", err, brought.Load(), size)
	}
}
