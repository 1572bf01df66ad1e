package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
	_ "github.com/verbena-rdma/verbena/provider/soft"
)

// A client over TCP that cuts the connection behind its request is no error of the listener.
func TestAcceptAfterAClientHasCutItsRequest(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "tcp=127.0.0.1")
	ok := FatalOn(t)
	list, err := driver.Streams()
	ok(err)
	h := NewHost(driver.NewDevice(list[0]))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := Listen(ctx, "127.0.0.1:0", &Options{Host: h})
	ok(err)
	raw, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(l.Addr()))
	ok(err)
	start := wire.Start{Rev: wire.Rev2, Enhanced: true, IRD: 1, ORD: 1}
	_, err = raw.Write(start.Append(nil))
	ok(err)
	l.id.mu.Lock()
	tcp := l.id.tcp
	l.id.mu.Unlock()
	for tcp.held.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	ok(raw.SetLinger(0))
	ok(raw.Close())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			id, err := l.Accept(ctx)
			if err != nil {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("Accept: %v", err)
				}
				return
			}
			_ = id.Close()
		}
	})
	c, err := Dial(ctx, l.Addr().String(), &Options{Host: h})
	ok(err)
	ok(c.Close())
	ok(l.Close())
	serving.Wait()
	ok(h.Close())
}
