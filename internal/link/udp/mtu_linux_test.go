package udp

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestRunsAfterTheMTUHasGrown checks that packets for which only the present MTU of the interface has room form GSO
// runs.
func TestRunsAfterTheMTUHasGrown(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	apart.Interface(t, "lo", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) })
	apart.Interface(t, "lo", unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(1500) })
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	if !l.gso.Load() {
		t.Skip("the kernel has no UDP_SEGMENT")
	}
	apart.Interface(t, "lo", unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(9000) })
	const packets = 10
	tx := link.NewTxBatch(packets, 1<<16)
	for i := range uint32(packets) {
		fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, 5, wire.BTHLen+4096), 5, i)
	}
	p := l.ports[0]
	p.Send(tx)
	receive(t, p, packets)
	if n := p.sender.runs[0].count; n != packets {
		t.Errorf("the first message has %d packets", n)
	}
}
