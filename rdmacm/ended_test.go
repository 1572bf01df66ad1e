package rdmacm_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// dialled is a connection of synchronous IDs.
func (w *world) dialled() (c, s *rdmacm.ID, l *rdmacm.Listener) {
	w.Helper()
	l = must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
	got := w.accepts(l, 1)
	c = must(w.dial(l))(w)
	return c, <-got, l
}

// A client that READs a server's memory learns in milliseconds that the living server has called Disconnect or Close.
func TestSendsEndWithTheConnection(t *testing.T) {
	for _, closes := range []bool{false, true} {
		in(t, func(w *world) {
			c, s, l := w.dialled()
			mr := must(c.RegMsgs(make([]byte, 8)))(w)
			result := make(chan error)
			var took time.Duration
			ended := make(chan time.Time, 1)
			w.ok(s.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // no answer to the READ
			go func() {
				w.ok(c.PostRead(1, mr.Bytes(), mr, verbs.SendSignaled, 0x1000, 1))
				wc, err := c.GetSendComp(bg)
				if err == nil {
					err = wc.Err()
				}
				took = time.Since(<-ended)
				result <- err
			}()
			time.Sleep(30 * time.Millisecond)
			ended <- time.Now()
			if closes {
				w.ok(s.Close())
			} else {
				ctx, cancel := context.WithTimeout(bg, time.Millisecond)
				_ = s.Disconnect(ctx)
				cancel()
			}
			err := <-result
			if !errors.Is(err, io.EOF) || !errors.Is(err, syscall.ENOTCONN) || took > 100*time.Millisecond {
				t.Errorf("after %v: %v", took, err)
			}
			w.ok(c.Disconnect(bg))
			if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCWRFlushErr ||
				!strings.Contains(wc.Err().Error(), ": the peer has disconnected") {
				t.Errorf("%v", wc.Err())
			}
			w.ok(mr.Close())
			w.ok(c.Close())
			if !closes {
				w.ok(s.Close())
			}
			w.ok(l.Close())
		})
	}
}

// TestWaitsEndWithTheQP: a server of READs, which posts no receive, learns that a READ with a wrong key has moved its
// QP to ERR. The receives that it has posted are flushed before.
func TestWaitsEndWithTheQP(t *testing.T) {
	for posted := range 3 {
		in(t, func(w *world) {
			c, s, l := w.dialled()
			mr := must(s.RegMsgs(make([]byte, 8)))(w)
			for range posted {
				w.ok(s.PostRecv(7, mr.Bytes(), mr))
			}
			result := make(chan error)
			go func() {
				for range posted {
					if wc, err := s.GetRecvComp(bg); err != nil || wc.Status != verbs.WCWRFlushErr {
						t.Errorf("%d posted: %v, %v", posted, wc.Status, err)
					}
				}
				_, err := s.GetRecvComp(bg)
				result <- err
			}()
			time.Sleep(30 * time.Millisecond)
			own := must(c.RegMsgs(make([]byte, 8)))(w)
			w.ok(c.PostRead(1, own.Bytes(), own, verbs.SendSignaled, 0x1000, 77))
			err := <-result
			if !errors.Is(err, syscall.EIO) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "access violation") {
				t.Errorf("%d posted: %v", posted, err)
			}
			if _, err := s.GetSendComp(bg); !errors.Is(err, syscall.EIO) {
				t.Errorf("%d posted: the next wait: %v", posted, err)
			}
			disconnect(w, s, c)
			if _, err := s.GetRecvComp(bg); !errors.Is(err, io.EOF) {
				t.Errorf("%d posted: after Disconnect: %v", posted, err)
			}
			w.ok(mr.Close())
			w.ok(own.Close())
			w.ok(c.Close())
			w.ok(s.Close())
			w.ok(l.Close())
		})
	}
}

// All waits for completions end with the connection, whoever ends it, and those that begin later do not begin.
func TestWaitsEndWithTheConnection(t *testing.T) {
	for name, end := range map[string]func(w *world, id, peer *rdmacm.ID){
		"Disconnect here":  func(w *world, id, peer *rdmacm.ID) { disconnect(w, id, peer) },
		"Disconnect there": func(w *world, id, peer *rdmacm.ID) { disconnect(w, peer, id) },
		"Close there":      func(w *world, id, peer *rdmacm.ID) { w.ok(peer.Close()) },
		// The peer's program does not agree: the event comes after more than a minute.
		"Disconnect here without an answer": func(w *world, id, peer *rdmacm.ID) {
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			defer cancel()
			if err := id.Disconnect(ctx); !errors.Is(err, context.DeadlineExceeded) {
				w.Error(err)
			}
		},
	} {
		in(t, func(w *world) {
			c, s, l := w.dialled()
			results := make(chan error, 2)
			for _, get := range []func(context.Context) (verbs.WC, error){c.GetSendComp, c.GetRecvComp} {
				go func() {
					_, err := get(bg)
					results <- err
				}()
			}
			synctest.Wait()
			begin := time.Now()
			end(w, c, s)
			for range 2 {
				if err := <-results; !errors.Is(err, io.EOF) || !errors.Is(err, syscall.ENOTCONN) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("%s: after %v", name, took)
			}
			for _, get := range []func(context.Context) (verbs.WC, error){c.GetSendComp, c.GetRecvComp} {
				if _, err := get(w.soon()); !errors.Is(err, syscall.ENOTCONN) {
					t.Errorf("%s, a wait afterwards: %v", name, err)
				}
			}
			w.ok(c.Close())
			if name != "Close there" {
				w.ok(s.Close())
			}
			w.ok(l.Close())
		})
	}
}

// disconnect ends a connection by Disconnect of one side, to which the other agrees.
func disconnect(w *world, first, second *rdmacm.ID) {
	done := make(chan error, 1)
	go func() { done <- first.Disconnect(bg) }()
	synctest.Wait()
	w.ok(second.Disconnect(bg))
	w.ok(<-done)
}

// The requests that Disconnect flushes say so.
func TestFlushedByDisconnect(t *testing.T) {
	in(t, func(w *world) {
		c, s, l := w.dialled()
		cm, sm := must(c.RegMsgs(make([]byte, 8)))(w), must(s.RegMsgs(make([]byte, 8)))(w)
		w.ok(c.PostRecv(1, cm.Bytes(), cm))
		w.ok(s.PostRecv(1, sm.Bytes(), sm))
		disconnect(w, c, s)
		for id, want := range map[*rdmacm.ID]string{c: ": this side called Disconnect", s: ": the peer has disconnected"} {
			wc := must(id.GetRecvComp(w.soon()))(w)
			if text := wc.Err().Error(); wc.Status != verbs.WCWRFlushErr || !strings.HasSuffix(text, want) ||
				strings.Contains(text, "modify_qp") {
				t.Errorf("%v, want %q", wc.Err(), want)
			}
		}
		w.ok(cm.Close())
		w.ok(sm.Close())
		w.ok(c.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}

// Disconnect ends early when the system says that nothing arrives at the peer: its process was killed.
func TestDisconnectFromNobody(t *testing.T) {
	in(t, func(w *world) {
		c, s, l := w.dialled()
		c.Unreachable(syscall.ECONNREFUSED) // does not break an established connection
		w.fab.Cut(addrA, addrB)
		done := make(chan error)
		begin := time.Now()
		go func() { done <- c.Disconnect(bg) }()
		synctest.Wait()
		c.Unreachable(syscall.ECONNREFUSED)
		if err := <-done; !errors.Is(err, syscall.ETIMEDOUT) || !errors.Is(err, syscall.ECONNREFUSED) ||
			time.Since(begin) > time.Millisecond { // before the DREQ is repeated
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		w.fab.Heal(addrA, addrB)
		w.ok(c.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}

// A wait for a message ends at once with the connection: no acknowledgement is under way that it could wait for.
func TestReceiveEndsAtOnceWithTheConnection(t *testing.T) {
	in(t, func(w *world) {
		c, s, l := w.dialled()
		ended := make(chan time.Duration)
		go func() {
			begin := time.Now()
			if _, err := c.GetRecvComp(bg); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			ended <- time.Since(begin)
		}()
		synctest.Wait()
		w.ok(s.Close())
		if took := <-ended; took >= 20*time.Millisecond {
			t.Errorf("the wait has ended after %v", took)
		}
		w.ok(c.Close())
		w.ok(l.Close())
	})
}
