package sock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A check that was due when the interval was changed, and waited for the lock, does not bring the old interval back.
func TestKeepaliveOfAnOldInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStream(nil, Options{})
		st.SetKeepalive(time.Hour)
		old := st.keepalive
		st.SetKeepalive(time.Second)
		st.keepAlive(old, time.Hour) // as its timer calls it
		st.mu.Lock()
		st.sentOnce = true
		st.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		st.mu.Lock()
		if st.sentOnce {
			t.Error("no check after the new interval")
		}
		st.mu.Unlock()
		st.SetKeepalive(0)
	})
}

// The checks of a stream go on while there is something to check, or may be later.
func TestKeepaliveEndsWithTheConnection(t *testing.T) {
	for _, c := range []struct {
		state streamState
		gone  bool
		want  bool
	}{
		{streamNew, false, true}, {streamConnecting, false, true}, {streamConnected, false, true},
		{streamConnected, true, false}, {streamFailed, false, false}, {streamClosed, false, false},
	} {
		st, free := withCQ(t)
		st.SetKeepalive(time.Hour)
		st.keepalive.Stop()
		st.state, st.sentOnce = c.state, true
		if c.gone {
			st.m.Disconnect()
		}
		st.keepAlive(st.keepalive, time.Hour)
		if again := st.keepalive.Stop(); again != c.want {
			t.Errorf("state %d, the peer is gone %v: another check %v", c.state, c.gone, again)
		}
		free()
	}
}
