package rdmacm_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A listener on all devices takes connections over TCP again when its only iWARP device has gone and come back.
func TestListenerOfAnIWARPDeviceThatComesBack(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "tcp=127.0.0.1")
	ok := rdmacm.FatalOn(t)
	list, err := driver.Streams()
	ok(err)
	dev := driver.NewDevice(list[0])
	h := rdmacm.NewGrowingHost(func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil })
	other := rdmacm.NewHost(dev)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := rdmacm.Listen(ctx, "0.0.0.0:0", &rdmacm.Options{Host: h})
	ok(err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			id, err := l.Accept(ctx)
			if err != nil {
				return
			}
			_ = id.Close()
		}
	})
	to := at(netip.MustParseAddr("127.0.0.1"), l.Addr().Port()).String()
	dial := func() error {
		id, err := rdmacm.Dial(ctx, to, &rdmacm.Options{Host: other})
		if err == nil {
			err = id.Close()
		}
		return err
	}
	ok(dial())
	devices, err := h.Devices()
	ok(err)
	h.Remove(devices[0])
	for err = dial(); err != nil && ctx.Err() == nil; err = dial() {
		time.Sleep(10 * time.Millisecond)
	}
	ok(err)
	ok(l.Close())
	serving.Wait()
	ok(h.Close())
	ok(other.Close())
}
