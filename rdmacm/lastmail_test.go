package rdmacm_test

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// lazyDevice is a device whose QP 1, while idle is set, keeps what is posted until it is queried. A device may do so
// when another goroutine holds the shard: if the process exits then, what it keeps is lost.
//
//conformance:device
type lazyDevice struct {
	verbs.DriverDevice
	mu   sync.Mutex
	idle bool
	mail []func() error
}

type (
	lazyContext struct {
		verbs.DriverContext
		dev *lazyDevice
	}
	lazyPD struct {
		verbs.DriverPD
		gsi.Driver
		dev *lazyDevice
	}
	lazyQP struct {
		verbs.DriverQP
		dev *lazyDevice
	}
)

func (d *lazyDevice) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	if err != nil {
		return nil, err
	}
	return &lazyContext{c, d}, nil
}

func (c *lazyContext) AllocPD() (verbs.DriverPD, error) {
	pd, err := c.DriverContext.AllocPD()
	if err != nil {
		return nil, err
	}
	return &lazyPD{pd, pd.(gsi.Driver), c.dev}, nil
}

func (p *lazyPD) CreateGSI(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	qp, err := p.Driver.CreateGSI(init, up)
	if err != nil {
		return nil, err
	}
	return &lazyQP{qp, p.dev}, nil
}

func (q *lazyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	if !q.dev.idle {
		return q.DriverQP.PostSend(wrs)
	}
	for _, wr := range slices.Clone(wrs) {
		wr.Inline = bytes.Clone(wr.Inline)
		q.dev.mail = append(q.dev.mail, func() error {
			_, err := q.DriverQP.PostSend([]verbs.SendWR{wr})
			return err
		})
	}
	return len(wrs), nil
}

func (q *lazyQP) Query() (verbs.QPAttr, error) {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	for _, post := range q.dev.mail {
		if err := post(); err != nil {
			return verbs.QPAttr{}, err
		}
	}
	q.dev.mail = nil
	return q.DriverQP.Query()
}

func (d *lazyDevice) setIdle(idle bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = idle
}

// inLazy runs a test in a world whose hosts have lazy devices.
func inLazy(t *testing.T, f func(w *world, a, b *lazyDevice)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true})}
		host := func(name string, addr netip.Addr) (*rdmacm.Host, *lazyDevice) {
			dev, err := w.fab.NewDevice(name, addr)
			w.ok(err)
			lazy := &lazyDevice{DriverDevice: driver.Of[verbs.DriverDevice](dev)}
			return rdmacm.NewHost(driver.NewDevice(lazy)), lazy
		}
		var a, b *lazyDevice
		w.a, a = host("a", addrA)
		w.b, b = host("b", addrB)
		f(w, a, b)
		a.setIdle(false)
		b.setIdle(false)
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}

// The last datagram of a connection has left when the call that sends it returns: the program may exit next.
func TestLastDatagramLeavesBeforeTheCallReturns(t *testing.T) {
	t.Run("DREQ of Disconnect", func(t *testing.T) {
		inLazy(t, func(w *world, a, _ *lazyDevice) {
			l := w.listen(at(addrB, port), 1)
			c, s := w.connected(l, at(addrB, port))
			a.setIdle(true)
			w.ok(c.Disconnect(bg))
			s.expect(rdmacm.EventDisconnected)
			a.setIdle(false)
			s.closeID()
			c.expect(rdmacm.EventDisconnected)
			c.close()
			l.close()
		})
	})
	for _, how := range []string{"Disconnect", "Close"} {
		t.Run("DREP of "+how, func(t *testing.T) {
			inLazy(t, func(w *world, a, _ *lazyDevice) {
				l := w.listen(at(addrB, port), 1)
				c, s := w.connected(l, at(addrB, port))
				w.ok(s.Disconnect(bg))
				c.expect(rdmacm.EventDisconnected)
				a.setIdle(true)
				if how == "Disconnect" {
					w.ok(c.Disconnect(bg))
				} else {
					c.close()
				}
				if ev := s.expect(rdmacm.EventDisconnected); ev.Status != 0 {
					t.Errorf("status %d: the DREP has not come", ev.Status)
				}
				if how == "Disconnect" {
					c.close()
				}
				s.closeID()
				l.close()
			})
		})
	}
	t.Run("REJ", func(t *testing.T) {
		inLazy(t, func(w *world, _, b *lazyDevice) {
			l := w.listen(at(addrB, port), 1)
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, nil))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			b.setIdle(true)
			w.ok(ev.ID.Reject(nil))
			c.expect(rdmacm.EventRejected)
			w.ok(ev.ID.Close())
			w.ok(ev.Ack())
			c.close()
			l.close()
		})
	})
}
