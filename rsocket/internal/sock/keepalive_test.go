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
