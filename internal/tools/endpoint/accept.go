package endpoint

import (
	"context"
	"net/netip"
	"runtime"
	"runtime/debug"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// CMQueues has the queue sizes of the QPs whose connections are measured.
var CMQueues = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

// Accept starts accepting all rdmacm connections until the process ends. It returns its address.
func (s *Second) Accept(_ None, reply *netip.AddrPort) error {
	ch, err := rdmacm.CreateEventChannel()
	if err != nil {
		return err
	}
	l, err := rdmacm.CreateID(ch, rdmacm.PSTCP, nil)
	if err != nil {
		return err
	}
	if err := l.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
		return err
	}
	if err := l.Listen(0); err != nil {
		return err
	}
	*reply = l.LocalAddr()
	go accept(ch)
	return nil
}

// accept handles the events of a listener and its connections. The client reports connections that fail.
func accept(ch *rdmacm.EventChannel) {
	ctx := context.Background()
	for {
		ev, err := ch.GetEvent(ctx)
		if err != nil {
			return
		}
		id, what := ev.ID, ev.Type
		if what == rdmacm.EventConnectRequest {
			err = id.CreateQP(nil, &verbs.QPInitAttr{Cap: CMQueues})
			if err == nil {
				err = id.Accept(ctx, nil)
			}
		}
		_ = ev.Ack()
		if what == rdmacm.EventDisconnected {
			_ = id.Disconnect(ctx)
		}
		if err != nil || what == rdmacm.EventDisconnected || what == rdmacm.EventUnreachable || what == rdmacm.EventRejected {
			if id.QP() != nil {
				_ = id.DestroyQP()
			}
			_ = id.Close()
		}
	}
}

// Heap returns the bytes of the process's heap and stacks.
func (s *Second) Heap(_ None, bytes *uint64) error {
	*bytes = Heap()
	return nil
}

// Heap returns the bytes of this process's heap and stacks, without garbage.
func Heap() uint64 {
	runtime.GC()
	runtime.GC() // releases memory held by finalizers and pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// Settle collects garbage of the process, and returns its memory to the system.
func (s *Second) Settle(None, *None) error {
	Settle()
	return nil
}

// Settle collects garbage of this process, and returns its memory to the system, which Go's runtime would do little by
// little.
func Settle() { debug.FreeOSMemory() }
