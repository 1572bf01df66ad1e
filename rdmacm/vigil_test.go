package rdmacm_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// An ICMP message alone ends no connection: a suspect that answers stays connected, and is not checked for ever. One
// that does not answer is given up.
func TestSuspects(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 1)
		c, s := w.connected(l, at(addrB, port))
		c.Suspect(true)
		time.Sleep(time.Minute)
		c.none()
		c.Suspect(false)
		w.fab.Cut(addrA, addrB)
		time.Sleep(time.Hour)
		c.none()
		c.Suspect(true)
		if ev := c.expect(rdmacm.EventDisconnected); ev.Status != -int(syscall.ETIMEDOUT) {
			t.Errorf("status %d", ev.Status)
		}
		w.healAndEnd(l, c, s)
	})
}

// A connection may end, or not be made yet, when its peer becomes a suspect.
func TestSuspectsWithoutConnection(t *testing.T) {
	in(t, func(w *world) {
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		c.Suspect(true)
		c.Suspect(false)
		c.none()
		c.close()
	})
}

// The program's own keep-alive, if it is shorter, is not touched by a suspicion; a longer one comes back.
func TestSuspectsWithKeepAlive(t *testing.T) {
	for _, own := range []time.Duration{100 * time.Millisecond, time.Minute} {
		in(t, func(w *world) {
			l := w.listen(at(addrB, port), 1)
			c, s := w.connected(l, at(addrB, port))
			w.ok(c.SetKeepAlive(own))
			c.Suspect(true)
			c.Suspect(false)
			w.fab.Cut(addrA, addrB)
			begin := time.Now()
			c.expect(rdmacm.EventDisconnected)
			if took := time.Since(begin); took < own || took > 2*own+6*time.Second {
				t.Errorf("%v with the keep-alive %v", took, own)
			}
			w.healAndEnd(l, c, s)
		})
	}
}
