package sock

import "testing"

// A receive that is shorter than the GRH in front of each message, or has nothing but it, is no message.
func TestDatagramShorterThanGRH(t *testing.T) {
	d := &Datagram{v4: true}
	q := &datagramQP{mem: make([]byte, 2*recvSlot), slots: 2}
	for n := range grhLen + 1 {
		if q.received(d, 1, n) {
			t.Errorf("%d bytes are a message", n)
		}
	}
}
