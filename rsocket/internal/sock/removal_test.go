package sock

import (
	"errors"
	"sync"
	"sync/atomic"
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

// crowded is a device that can register no more memory, except for QP 1.
//
//conformance:fake
type crowded struct {
	verbs.DriverDevice
	pds atomic.Int32
}

//conformance:fake
type crowdedContext struct {
	verbs.DriverContext
	of *crowded
}

//conformance:fake
type crowdedPD struct{ verbs.DriverPD }

func (d *crowded) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return crowdedContext{c, d}, err
}

func (c crowdedContext) AllocPD() (verbs.DriverPD, error) {
	pd, err := c.DriverContext.AllocPD()
	if c.of.pds.Add(1) == 1 { // of QP 1
		return pd, err
	}
	return crowdedPD{pd}, err
}

func (crowdedPD) RegMR([]byte, uint64, verbs.AccessFlags) (verbs.DriverMR, error) {
	return nil, syscall.ENOMEM
}

// A socket whose memory the device does not take has no connection and no QP, and leaves nothing.
func TestMemoryThatIsNotRegistered(t *testing.T) {
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
	host := rdmacm.NewHost(driver.NewDevice(&crowded{DriverDevice: driver.Of[verbs.DriverDevice](dev)}))
	if q, err := newDatagramQP(host, ownAddr.Addr(), 1); q != nil || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("datagrams: %v, %v", q, err)
	}
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	var r resources
	if err := r.register(id.PD(), &Options{SendBuf: 4096, RecvBuf: 4096}, false); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a stream: %v", err)
	}
	r.free()
	ok(t, errors.Join(id.Close(), host.Close()))
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

// A datagram socket whose device was removed looks at its QP all the same: peers send to it when the device is back.
func TestRemovalBeginsLooks(t *testing.T) {
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
	r := &removable{DriverDevice: driver.Of[verbs.DriverDevice](dev)}
	host := rdmacm.NewHost(driver.NewDevice(r))
	q := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	attr := must((&dest{to: ownAddr, q: q}).path())(t)
	ah := must(q.id.PD().CreateAH(&attr))(t)
	ok(t, q.sendToNobody(0, ah))
	must(q.ch.GetEvent(background))(t).AckEvents(1) // the last event: the CQ is not asked again
	d := &Datagram{}
	q.progress(d)
	r.remove()
	var over sync.WaitGroup
	over.Go(func() { q.watch(d) })
	d.mu.Lock()
	q.free = nil
	ok(t, q.sendToNobody(0, ah))
	d.mu.Unlock()
	await(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(q.free) == 1
	})
	_ = ah.Close() // EIO, as the device was removed
	q.close()
	over.Wait()
	ok(t, host.Close())
}
