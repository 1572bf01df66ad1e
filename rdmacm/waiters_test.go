package rdmacm_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Any number of goroutines may wait for completions of one ID: each of them gets one, whether the messages come
// together or one by one.
func TestSeveralWaitsForCompletions(t *testing.T) {
	for _, together := range []bool{false, true} {
		in(t, func(w *world) {
			const waiters = 3
			c, s, l := w.dialled()
			mr := must(s.RegMsgs(make([]byte, 8*waiters)))(w)
			for i := range waiters {
				w.ok(s.PostRecv(uint64(i), mr.Bytes()[8*i:8*i+8], mr))
			}
			got := make(chan uint64, waiters)
			for range waiters {
				go func() {
					wc, err := s.GetRecvComp(bg)
					w.ok(err)
					got <- wc.WRID
				}()
			}
			synctest.Wait()
			for range waiters {
				w.ok(c.PostSend(0, []byte("hello"), nil, verbs.SendInline))
				if !together {
					<-got
				}
			}
			if together {
				for range waiters {
					<-got
				}
			}
			w.ok(mr.Close())
			w.ok(c.Close())
			w.ok(s.Close())
			w.ok(l.Close())
		})
	}
}

// Close ends the waits for completions of a CQ that stays open, because the program has made it.
func TestCloseEndsWaitsAtTheProgramsCQ(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(id.BindAddr(at(addrA, 0)))
		ch := must(id.Verbs().CreateCompChannel())(w)
		cq := must(id.Verbs().CreateCQ(4, &verbs.CQOptions{Channel: ch}))(w)
		init := qpInit()
		init.SendCQ, init.RecvCQ = cq, cq
		w.ok(id.CreateQP(nil, init))
		ended := make(chan error)
		for _, wait := range []func(context.Context) (verbs.WC, error){id.GetRecvComp, id.GetSendComp} {
			go func() {
				_, err := wait(bg)
				ended <- err
			}()
		}
		synctest.Wait()
		w.ok(id.DestroyQP())
		w.ok(id.Close())
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a completion after Close")
			}
		}
		w.ok(cq.Close())
		w.ok(ch.Close())
	})
}
