package rsocket_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// A server over iWARP that is not one of rsocket, and accepts without private data, is an error of Dial.
func TestServerWithoutConnectionData(t *testing.T) {
	p := overTCP(t)
	l := must(rdmacm.Listen(bg, p.B.At(0), &rdmacm.Options{Host: p.B.Host}))(p)
	served := make(chan *rdmacm.ID)
	go func() {
		id, err := l.Accept(bg)
		if err != nil {
			t.Error(err)
		}
		served <- id
	}()
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	c, err := p.dialer(small).DialContext(ctx, "tcp", l.Addr().String())
	if !errors.Is(err, syscall.ENOTSUP) {
		t.Errorf("%v, %v; want %v", c, err, syscall.ENOTSUP)
	}
	if c != nil {
		_ = c.Close()
	}
	if id := <-served; id != nil {
		p.OK(id.Close())
	}
	p.OK(l.Close())
	p.Close()
}
