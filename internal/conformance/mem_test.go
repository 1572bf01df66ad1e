package conformance_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/conformance"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// Every statement over a fabric in memory, in virtual time.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Setup{Name: "mem", New: newMem})
}

// memNetwork is a fabric of rdmatest.
type memNetwork struct {
	*rdmatest.Fabric
	tb    testing.TB
	addrs map[*verbs.Device]netip.Addr
	hosts map[netip.Addr]*memHost
}

const memPort = 0xC0DE // the source port of hosts

func newMem(tb testing.TB) conformance.Network {
	n := &memNetwork{tb: tb, addrs: map[*verbs.Device]netip.Addr{}, hosts: map[netip.Addr]*memHost{}}
	n.Fabric = rdmatest.New(rdmatest.Config{Faults: n.faults(0)})
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// faults loses packets, and passes packets for the hosts to them.
func (n *memNetwork) faults(loss float64) rdmatest.Faults {
	return rdmatest.Faults{Loss: loss, Script: func(p rdmatest.Packet) (rdmatest.Verdict, bool) {
		h := n.hosts[p.Dst]
		if h != nil {
			h.got = append(h.got, slices.Clone(p.Data))
		}
		return rdmatest.Verdict{}, h != nil
	}}
}

func (n *memNetwork) Open() *verbs.Context {
	i := len(n.addrs) + 1
	addr := netip.AddrFrom4([4]byte{198, 18, 0, byte(i)})
	ctx, err := n.Fabric.Open(fmt.Sprintf("vrb_mem%d", i), addr)
	if err != nil {
		n.tb.Fatal(err)
	}
	n.addrs[ctx.Device()] = addr
	return ctx
}

func (n *memNetwork) Addr(ctx *verbs.Context) netip.Addr { return n.addrs[ctx.Device()] }

func (n *memNetwork) Group() netip.Addr { return netip.AddrFrom4([4]byte{239, 198, 18, 1}) }

func (n *memNetwork) Host() conformance.Host {
	h := &memHost{net: n, addr: netip.AddrFrom4([4]byte{198, 18, 1, byte(len(n.hosts) + 1)})}
	n.hosts[h.addr] = h
	return h
}

func (n *memNetwork) Forger(ctx *verbs.Context) conformance.Host {
	return &memHost{net: n, addr: n.Addr(ctx)}
}

func (n *memNetwork) Await(done func() bool, limit time.Duration) bool { return n.Run(done, limit) }

func (n *memNetwork) Pause(d time.Duration) { n.Run(func() bool { return false }, d) }

func (n *memNetwork) Counter(ctx *verbs.Context, name string) uint64 {
	v, ok := n.Counters(ctx)[name]
	if !ok {
		n.tb.Fatalf("no counter %s", name)
	}
	return v
}

func (n *memNetwork) Lose(p float64) { n.SetFaults(n.faults(p)) }

type memHost struct {
	net  *memNetwork
	addr netip.Addr
	got  [][]byte
}

func (h *memHost) Addr() netip.Addr { return h.addr }

func (h *memHost) Seal(dst netip.Addr, pkt []byte) []byte {
	return seal(h.addr, dst, memPort, wire.Port, pkt)
}

func (h *memHost) Send(dst netip.Addr, datagram []byte) { h.net.Inject(h.addr, dst, memPort, datagram) }

func (h *memHost) Recv() []byte {
	if len(h.got) == 0 {
		return nil
	}
	pkt := h.got[0]
	h.got = h.got[1:]
	return pkt
}

func seal(src, dst netip.Addr, srcPort, dstPort uint16, pkt []byte) []byte {
	b := append(slices.Clone(pkt), 0, 0, 0, 0)
	wire.NewFlow(src, dst, srcPort, dstPort).Seal(b, 0)
	return b
}
