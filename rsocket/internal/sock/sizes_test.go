package sock

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Buffers that no memory can have are an error.
func TestBuffersWithoutMemory(t *testing.T) {
	for _, o := range []Options{{SendBuf: math.MaxInt, RecvBuf: 2}, {SendBuf: math.MaxInt / 2, RecvBuf: math.MaxInt / 2}} {
		if err := new(resources).register(nil, &o, false); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// The peer learns half of the receive buffer, in 32 bits.
func TestLargestReceiveBuffer(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	o := must(Options{RecvBuf: math.MaxInt}.effective(id.Verbs()))(t)
	if o.RecvBuf <= 0 || o.RecvBuf%2 != 0 || uint64(o.RecvBuf/2) > math.MaxUint32 {
		t.Errorf("%d bytes", o.RecvBuf)
	}
	ok(t, id.Close())
}
