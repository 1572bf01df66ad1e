package sock

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// SetKeepalive starts to check an idle peer at intervals of every; 0 ends it.
func (st *Stream) SetKeepalive(every time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.keepalive != nil {
		st.keepalive.Stop()
		st.keepalive = nil
	}
	if every > 0 && st.state != streamClosed {
		st.keepalive = time.AfterFunc(every, func() { st.keepAlive(every) })
	}
}

// keepAlive sends a WRITE of 0 bytes if no request was posted during the interval (W-RS-12). A peer that is gone
// does not acknowledge it.
func (st *Stream) keepAlive(every time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.keepalive == nil || st.state > streamConnected || st.state == streamConnected && st.m.Disconnected() {
		return
	}
	st.progress()
	if !st.sentOnce && st.state == streamConnected && st.m.Keepalive() {
		st.post(&verbs.SendWR{WRID: wrKeepalive, Opcode: verbs.WRRDMAWrite})
	}
	st.sentOnce = false
	st.keepalive.Reset(every)
}
