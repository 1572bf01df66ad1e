package raw

import (
	"slices"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// record is a CQ that records lengths.
type record struct{ got []int }

func (r *record) Push(e *transport.CQE)       { r.got = append(r.got, int(e.ByteLen)) }
func (*record) Broken() bool                  { return false }
func (*record) PurgeSQ(*transport.SendQueue)  {}
func (*record) PurgeSRQ(*transport.RecvQueue) {}
func (r *record) take() (got []int)           { got, r.got = r.got, nil; return got }

// TestFramesOfDelayDrop: frames wait for at most 100 ms, and within bounds.
func TestFramesOfDelayDrop(t *testing.T) {
	now := int64(5)
	d := NewDevice(Config{Memory: new(sync.RWMutex), Now: func() int64 { return now }})
	cq := new(record)
	w := &WQ{RQ: RQ{Queue: transport.NewRecvQueue(256, 1, false, 0), CQ: cq, Flags: DelayDrop}}
	d.AddWQ(w)
	if !w.Move(WQReset, WQReady, 0, 0) {
		t.Fatal("not moved")
	}
	d.AddRule(&Rule{To: toWQ{w}})
	frame := func(n int) { d.receive(make([]byte, n), false) }
	post := func(n int) {
		for range n {
			if err := w.Queue.Post(0, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.Posted()
	}
	expect := func(what string, dropped uint64, want ...int) {
		t.Helper()
		if got := cq.take(); !slices.Equal(got, want) || d.Counters.RxNoBuffer.Load() != dropped {
			t.Errorf("%s: %v, %d dropped; want %v, %d", what, got, d.Counters.RxNoBuffer.Load(), want, dropped)
		}
		if w.state == WQErr { // a receive without memory fails; the next one is as good
			w.Move(WQErr, WQReset, 0, 0)
			w.Move(WQReset, WQReady, 0, 0)
		}
	}
	frame(100)
	now += maxDelay
	post(1)
	expect("after exactly the time", 0, 100)
	frame(101)
	now += maxDelay + 1
	frame(102)
	post(1)
	expect("after more than the time", 1, 102)
	for i := range maxDelayed + 3 {
		frame(200 + i)
	}
	post(1)
	expect("too many", 4, 200)
	frame(60000)
	frame(60000)
	frame(60000)
	frame(60000)
	frame(60000) // more than the bytes
	post(1)
	expect("too many bytes", 5, 60000)
	if q := &w.delayed; q.n != 0 || q.bytes != 0 {
		t.Errorf("%d frames of %d bytes are left", q.n, q.bytes)
	}
}

// toWQ is a receiver that has a WQ only.
type toWQ struct{ w *WQ }

func (t toWQ) receive(_ *Device, a *arrival, tag uint32) { t.w.receive(a, 1, tag) }
