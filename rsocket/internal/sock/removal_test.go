package sock

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Only the removal of the listener's own device ends Accept, not that of the device of a request.
func TestRemovalOfARequestsDevice(t *testing.T) {
	a, _ := Unserved()
	a.id, a.gone = new(rdmacm.ID), make(chan struct{})
	for range 2 {
		a.onRemoval(new(rdmacm.ID))
	}
	if _, err := a.Accept(true); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("after the removal of a request's device: %v", err)
	}
	a.onRemoval(a.id)
	if _, err := a.Accept(true); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("after the removal of the listener's device: %v", err)
	}
}
