package fdset

import "testing"

func TestOpeningWaitsForAFork(t *testing.T) {
	Opening()
	if n := gate.opening.Load(); n != 1 {
		t.Errorf("%d openings, want 1", n)
	}
	Opened()
	gate.forking.Store(1)
	opened := make(chan struct{})
	go func() {
		Opening()
		if gate.forking.Load() != 0 {
			t.Error("Opening has not waited for the fork")
		}
		Opened()
		close(opened)
	}()
	for gate.opening.Load() == 0 { // it has tried
	}
	gate.forking.Store(0)
	<-opened
	if n := gate.opening.Load(); n != 0 {
		t.Errorf("%d openings, want 0", n)
	}
}
