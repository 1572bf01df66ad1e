package udp

import "testing"

// TestPlainRingIsBounded checks that a flood of packets for a port that takes none does not fill the memory.
func TestPlainRingIsBounded(t *testing.T) {
	r := ring{signal: make(chan struct{}, 1)}
	for range 4 * plainRing {
		r.push(&plainPacket{})
		r.release(&plainPacket{})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.packets) != plainRing || len(r.free) > plainRing+plainBatch {
		t.Errorf("%d packets are queued, %d are kept", len(r.packets), len(r.free))
	}
}
