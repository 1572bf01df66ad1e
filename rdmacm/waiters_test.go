package rdmacm_test

import (
	"testing"
	"testing/synctest"

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
