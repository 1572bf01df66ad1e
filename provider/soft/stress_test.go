package soft_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_LIB_04_ConcurrentUse: many goroutines use the same QPs and the same CQ while others make and close objects of
// the same device (V-LIB-04). Every request completes once.
func TestV_LIB_04_ConcurrentUse(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		var posted, completed atomic.Int64
		// a completion may be counted before its request: the counts are final only after all requests are posted
		var stop, allPosted atomic.Bool
		var posters, others sync.WaitGroup
		for range 3 {
			qa, _ := connect(a, b, verbs.QPTypeRC, nil)
			for range 2 {
				posters.Go(func() { postWrites(t, a, b, qa, &posted, &stop) })
			}
		}
		for range 2 {
			others.Go(func() {
				var wcs [16]verbs.WC
				for !allPosted.Load() || completed.Load() < posted.Load() {
					k, err := a.cq.Poll(wcs[:])
					if err != nil {
						t.Error(err)
						return
					}
					for i := range wcs[:k] {
						if err := wcs[i].Err(); err != nil {
							t.Error(err)
							return
						}
					}
					completed.Add(int64(k))
				}
			})
		}
		others.Go(func() {
			for !stop.Load() {
				useAndClose(t, a, b)
			}
		})
		others.Go(func() {
			for size := 256; !stop.Load(); size = 256 + (size+1)%1000 {
				if err := errors.Join(a.cq.ReqNotify(false), a.cq.Resize(size)); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
		time.Sleep(500 * time.Millisecond)
		stop.Store(true)
		posters.Wait()
		allPosted.Store(true)
		others.Wait()
		if posted.Load() != completed.Load() || posted.Load() == 0 {
			t.Errorf("%d posted, %d completed", posted.Load(), completed.Load())
		}
	})
}

// postWrites posts WRITEs to qa in pairs until it is stopped.
func postWrites(t *testing.T, a, b *end, qa *verbs.QP, posted *atomic.Int64, stop *atomic.Bool) {
	wr := verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 3000)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	}
	for !stop.Load() {
		err := qa.PostSend(wr, wr)
		var pe *verbs.PostError
		switch {
		case err == nil:
			posted.Add(2)
		case errors.As(err, &pe) && errors.Is(err, verbs.ENOMEM):
			posted.Add(int64(pe.Index))
			runtime.Gosched()
		default:
			t.Error(err)
			return
		}
	}
}

// useAndClose makes a connection and a region, uses them, and closes them while they work.
func useAndClose(t *testing.T, a, b *end) {
	init := verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
			MaxRecvSGE: 1},
	}
	qx, err1 := b.pd.CreateQP(&init)
	init.SendCQ, init.RecvCQ = a.cq, a.cq
	qy, err2 := a.pd.CreateQP(&init)
	mr, err3 := b.pd.RegMR(make([]byte, 8192), allAccess)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Error(err)
		return
	}
	ix, err1 := qx.LocalInfo()
	iy, err2 := qy.LocalInfo()
	err3 = errors.Join(qx.Connect(iy, nil), qy.Connect(ix, nil))
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{mr.SGE(0, 8192)}, RemoteAddr: a.mr.Addr(),
		RKey: a.mr.RKey()}
	err4 := qx.PostSend(wr, wr, wr)
	runtime.Gosched()
	err5 := qx.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState)
	if err := errors.Join(err1, err2, err3, err4, err5, mr.Close(), qx.Close(), qy.Close()); err != nil {
		t.Error(err)
	}
}
