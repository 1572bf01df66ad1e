package rdmacm

import (
	"net/netip"
	"testing"
)

// A channel that is closed takes its IDs with it, but not one that moves to another channel at the same time.
func TestC_CHAN_08_ClosedWhileAnIDMoves(t *testing.T) {
	h := memoryHost(t)
	old, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	to, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.CreateID(old, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Migrate(to); err != nil {
		t.Fatal(err)
	}
	id.destroyOn(old) // Close had it on its list
	if err := id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)); err != nil {
		t.Errorf("the ID was destroyed: %v", err)
	}
	id.destroyOn(to)
	if err := h.Close(); err != nil {
		t.Errorf("the ID was not destroyed: %v", err)
	}
}
