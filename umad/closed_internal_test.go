package umad

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
)

// A Send that has found its agent open, and then waits while the last Port is closed, sends nothing, and makes no
// address handle, which would keep the PD from being closed.
func TestSendDuringTheLastClose(t *testing.T) {
	addr := netip.MustParseAddr("198.18.0.1")
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("d", addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	to := &Address{Local: addr, Remote: addr}
	if err := port.share.way.send(nil, to, make(MAD, Size)); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
