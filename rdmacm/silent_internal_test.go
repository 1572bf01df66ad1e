package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

// dialed is both ends of a connection in memory.
func dialed(t *testing.T) (active, passive *ID, end func()) {
	t.Helper()
	hosts, ok := hereAndThere(t), FatalOn(t)
	l, err := Listen(t.Context(), ":0", &Options{Host: hosts[1]})
	ok(err)
	made := make(chan *ID, 1)
	go func() {
		id, err := l.Accept(t.Context())
		if err != nil {
			t.Error(err)
		}
		made <- id
	}()
	active, err = Dial(t.Context(), netip.AddrPortFrom(fuzzThere, l.Addr().Port()).String(), &Options{Host: hosts[0]})
	ok(err)
	if passive = <-made; passive == nil {
		t.FailNow()
	}
	return active, passive, func() {
		ok(errors.Join(active.Close(), passive.Close(), l.Close(), hosts[0].Close(), hosts[1].Close()))
	}
}

// The QP of a silent peer fails just before the manager learns of the silence. A wait for a completion ends because of
// the silence.
func TestSilenceBeforeTheFailureOfTheQP(t *testing.T) {
	id, _, end := dialed(t)
	defer end()
	m := id.dev.cm
	done := make(chan error, 1)
	go func() {
		_, err := id.GetRecvComp(t.Context())
		done <- err
	}()
	m.delivering.Lock() // the manager's goroutine is late
	m.onPeerDeath(gsi.PeerDeath{QPN: id.QP().QPN(), DestQPN: id.attrs.DestQPN, Peer: fuzzThere, Silent: true})
	failed := make(chan struct{})
	go func() {
		id.onQPFailed(m, id.QP(), verbs.EventQPFatal)
		close(failed)
	}()
	select {
	case err := <-done:
		t.Errorf("the wait has ended without the reason: %v", err)
		done <- err
	case <-time.After(20 * time.Millisecond):
	}
	m.delivering.Unlock()
	<-failed
	if err := <-done; !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("%v, want ETIMEDOUT", err)
	}
}
