package sock

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
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

// removable is a device that the test removes.
//
//conformance:device
type removable struct {
	verbs.DriverDevice

	mu  sync.Mutex
	ups []verbs.DriverContextEvents // of the open contexts
}

func (d *removable) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ups = append(d.ups, up)
	return d.DriverDevice.Open(up)
}

func (d *removable) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, up := range d.ups {
		up.DeviceEvent(verbs.EventDeviceFatal)
	}
}

// The removal of a device ends the waits for connections at its address, and those that begin later.
func TestRemovalEndsAccept(t *testing.T) {
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
	d := &removable{DriverDevice: driver.Of[verbs.DriverDevice](dev)}
	host := rdmacm.NewHost(driver.NewDevice(d))
	ch := must(host.CreateEventChannel())(t)
	id := must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	a := must(Listen(JoinHub(host), id, ch, 0, func() Options { return Options{} }))(t)
	w := NewWaiter()
	a.Watch(&w)
	a.SetDeadline(time.Now().Add(20 * time.Second))
	ended := make(chan error)
	go func() {
		_, err := a.Accept(false)
		ended <- err
	}()
	d.remove()
	if err := <-ended; !errors.Is(err, syscall.ENODEV) {
		t.Errorf("%v, want %v", err, syscall.ENODEV)
	}
	if _, err := a.Accept(true); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("afterwards: %v, want %v", err, syscall.ENODEV)
	}
	select {
	case <-w.C:
	case <-time.After(20 * time.Second):
		t.Error("a caller of Poll still waits")
	}
	ok(t, errors.Join(a.Close(), host.Close()))
}
