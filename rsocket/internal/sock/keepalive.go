package sock

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// keepalive is the timer of the checks. One that was stopped too late calls keepAlive once more.
type keepalive struct{ *time.Timer }

// SetKeepalive starts to check an idle peer at intervals of every; 0 ends it.
func (st *Stream) SetKeepalive(every time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.keepalive != nil {
		st.keepalive.Stop()
		st.keepalive = nil
	}
	if every > 0 && st.state != streamClosed {
		timer := new(keepalive)
		timer.Timer = time.AfterFunc(every, func() { st.keepAlive(timer, every) })
		st.keepalive = timer
	}
}

// keepAlive sends a WRITE of 0 bytes if no request was posted during the interval (W-RS-12). A peer that is gone
// does not acknowledge it.
func (st *Stream) keepAlive(timer *keepalive, every time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.keepalive != timer || st.state > streamConnected || st.state == streamConnected && st.m.Disconnected() {
		return
	}
	st.progress()
	if !st.sentOnce && st.state == streamConnected && st.m.Keepalive() {
		st.post(&verbs.SendWR{WRID: wrKeepalive, Opcode: verbs.WRRDMAWrite})
	}
	st.sentOnce = false
	st.keepalive.Reset(every)
}
