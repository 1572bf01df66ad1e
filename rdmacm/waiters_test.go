package rdmacm_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// Two waits at one CQ of the program, by GetSendComp and GetRecvComp, each get a completion: an event stands for any
// number of completions, and goes to one wait.
func TestWaitsAtASharedCQ(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		request := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{request.ID, w, l.ch}
		ch := must(s.Verbs().CreateCompChannel())(w)
		cq := must(s.Verbs().CreateCQ(4, &verbs.CQOptions{Channel: ch}))(w)
		init := qpInit()
		init.SendCQ, init.RecvCQ = cq, cq
		w.ok(s.CreateQP(nil, init))
		w.ok(s.Accept(bg, nil))
		w.ok(request.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		mr := must(s.RegMsgs(make([]byte, 16)))(w)
		for i := range uint64(2) {
			w.ok(s.PostRecv(i, mr.Bytes()[8*i:8*i+8], mr))
		}
		soon, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		got := make(chan error)
		for _, wait := range []func(context.Context) (verbs.WC, error){s.GetRecvComp, s.GetSendComp} {
			go func() {
				wc, err := wait(soon)
				got <- errors.Join(err, wc.Err())
			}()
		}
		synctest.Wait()
		wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("hello")}
		w.ok(c.QP().PostSend(wr, wr)) // in one step, so that there is one event
		for range 2 {
			w.ok(<-got)
		}
		w.ok(mr.Close())
		s.closeID()
		w.ok(cq.Close())
		w.ok(ch.Close())
		c.close()
		l.close()
	})
}

// Calls of Disconnect that wait at the same time all end with the one event of the connection's end.
func TestSeveralDisconnects(t *testing.T) {
	in(t, func(w *world) {
		c, s, l := w.dialled()
		const waits = 3
		result, soon := make(chan error, waits), w.soon()
		for range waits {
			go func() { result <- c.Disconnect(soon) }()
		}
		synctest.Wait()
		w.ok(s.Disconnect(bg))
		for range waits {
			w.ok(<-result)
		}
		if ev := c.Event(); ev == nil || ev.Type != rdmacm.EventDisconnected {
			t.Errorf("the last event is %v", ev)
		}
		w.ok(c.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}
