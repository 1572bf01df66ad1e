package rdmacm_test

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Calls of a synchronous ID may wait at the same time: Close needs no acknowledgement of their events.
func TestCloseAfterConcurrentCalls(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSUDP, nil))(w)
		w.ok(id.BindAddr(at(addrA, 0)))
		w.ok(id.CreateQP(nil, udInit()))
		var all sync.WaitGroup
		for i := range 100 {
			group := group4.As4()
			group[3] = byte(i)
			all.Go(func() {
				if err := id.JoinMulticast(bg, at(netip.AddrFrom4(group), 0), nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.ok(id.DestroyQP())
		w.ok(id.Close())
	})
}
