package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
)

// Close ends calls of Accept also while no more handshakes may begin.
func TestCloseOfAFullListener(t *testing.T) {
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", netip.AddrFrom4([4]byte{198, 18, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := Listen(ctx, ":0", &Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	l.under.Store(maxHandshakes)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("Accept: %v, want %v", err, ErrClosed)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
