package endpoint

import (
	"context"
	"net/netip"
	"runtime"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// CMQueues are the sizes of the queue pairs whose connections are measured.
var CMQueues = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

// Accept begins to accept every connection that rdmacm brings, until the process ends. It tells where.
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

// accept does what the events of a listener and its connections ask for. A connection that fails is its client's to report.
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

// Heap is what the process's heap and stacks take, in bytes.
func (s *Second) Heap(_ None, bytes *uint64) error {
	*bytes = Heap()
	return nil
}

// Heap is what this process's heap and stacks take, in bytes, without garbage.
func Heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools still held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
