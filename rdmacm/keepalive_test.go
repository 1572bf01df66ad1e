package rdmacm_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A server that only receives learns that its client is behind a cut network: its receive is flushed with the reason,
// and the next wait ends. A living client is not taken for dead.
func TestKeepAlive(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b, KeepAlive: time.Minute}))(w)
		got := w.accepts(l, 1)
		c := must(w.dial(l))(w)
		s := <-got
		mr := must(s.RegMsgs(make([]byte, 8)))(w)
		w.ok(s.PostRecv(1, mr.Bytes(), mr))
		time.Sleep(10 * time.Hour)
		if s.QP().State() != verbs.QPSRTS || c.QP().State() != verbs.QPSRTS {
			t.Fatalf("%v and %v while both live", s.QP().State(), c.QP().State())
		}
		w.fab.Cut(addrA, addrB)
		start := time.Now()
		wc := must(s.GetRecvComp(bg))(w)
		if wc.Status != verbs.WCWRFlushErr || !strings.Contains(wc.Err().Error(), "keep-alive") {
			t.Errorf("the receive: %v", wc.Err())
		}
		_, err := s.GetRecvComp(bg)
		if !errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "keep-alive") {
			t.Errorf("the wait: %v", err)
		}
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		w.ok(mr.Close())
		w.ok(s.Close())
		w.ok(c.Close())
		w.ok(l.Close())
	})
}

// healAndEnd ends a connection whose active side takes its peer for dead. The other side is told.
func (w *world) healAndEnd(l, c, s *end) {
	w.Helper()
	w.fab.Heal(addrA, addrB)
	w.ok(c.Disconnect(bg))
	s.expect(rdmacm.EventDisconnected)
	w.ok(s.Disconnect(bg))
	s.closeID()
	c.close()
	l.close()
}

// SetKeepAlive works on a connection that exists already, for programs with an event channel: DISCONNECTED comes, once.
// The side that goes on without a word is told when the network is whole again.
func TestKeepAliveEvent(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 1)
		c, s := w.connected(l, at(addrB, port))
		w.ok(c.SetAckTimeout(14))
		w.ok(c.SetKeepAlive(time.Second))
		w.fab.Cut(addrA, addrB)
		if ev := c.expect(rdmacm.EventDisconnected); ev.Status != -int(syscall.ETIMEDOUT) {
			t.Errorf("status %d", ev.Status)
		}
		c.none()
		w.healAndEnd(l, c, s)
	})
}

// Times that make no sense, and IDs that cannot have keep-alive.
func TestKeepAliveRefused(t *testing.T) {
	in(t, func(w *world) {
		tcp, udp := w.newEnd(w.a, rdmacm.PSTCP), w.newEnd(w.a, rdmacm.PSUDP)
		for _, bad := range []time.Duration{-1, 1, time.Millisecond - 1} {
			if err := tcp.SetKeepAlive(bad); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		w.ok(tcp.SetKeepAlive(time.Millisecond))
		w.ok(tcp.SetKeepAlive(0))
		if err := udp.SetKeepAlive(time.Second); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("datagrams: %v", err)
		}
		_, err := rdmacm.Dial(bg, "198.18.0.2:1", &rdmacm.Options{Host: w.a, KeepAlive: -1})
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("Dial: %v", err)
		}
		tcp.close()
		udp.close()
	})
}
