package fault_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/mem"
)

// Packets that are ECN capable are marked: sent ones, received ones, delayed ones, and those of a fabric. Others, and
// the path of the sender, stay as they are.
func TestMarks(t *testing.T) {
	var now int64
	clock := func() int64 { return now }
	for name, c := range map[string]struct {
		send, recv, fabric fault.Faults
	}{
		"sent":     {send: fault.Faults{Mark: 1}},
		"delayed":  {send: fault.Faults{Mark: 1, Delay: 10}},
		"received": {recv: fault.Faults{Mark: 1}},
		"fabric":   {fabric: fault.Faults{Mark: 1}},
	} {
		f := mem.NewFabric(mem.Config{Now: clock, Faults: c.fabric})
		var ports []link.Port
		for i, a := range []netip.Addr{addrA, addrB} {
			l, err := f.Open([]netip.Addr{a}, 1)
			if err != nil {
				t.Fatal(err)
			}
			cfg := fault.Config{Now: clock}
			if i == 0 {
				cfg.Send = c.send
			} else {
				cfg.Recv = c.recv
			}
			ports = append(ports, fault.Wrap(l, cfg).Ports()[0])
		}
		for tclass, want := range map[uint8]uint8{0: 0, 1: 3, 2: 3, 3: 3, 0x68: 0x68, 0x6A: 0x6B} {
			path := &link.Path{Src: addrA, Dst: addrB, TClass: tclass}
			send(ports[0], path, 1)
			now += 20
			send(ports[0], aToB) // sends what was delayed
			var b link.RxBatch
			if n := ports[1].Recv(&b); n != 1 || b.Packets[0].TClass != want || path.TClass != tclass {
				t.Errorf("%s: traffic class %#x: %d packets %+v, path %#x; want %#x", name, tclass, n, b.Packets, path.TClass, want)
			}
		}
	}
}

// A probability of marks changes none of the other faults of a seed.
func TestMarksKeepTheSeed(t *testing.T) {
	faults := fault.Faults{Loss: 0.2, Duplicate: 0.2, Reorder: 0.2, Corrupt: 0.2}
	plain := fault.NewInjector(7, faults)
	faults.Mark = 0.5
	marking := fault.NewInjector(7, faults)
	marks := 0
	for range 1000 {
		v, w := plain.Judge(addrA, addrB, nil), marking.Judge(addrA, addrB, nil)
		if w.Mark {
			marks++
		}
		if w.Mark = false; v != w {
			t.Fatalf("%+v, want %+v", w, v)
		}
	}
	if marks < 400 || marks > 600 {
		t.Errorf("%d of 1000 packets are marked", marks)
	}
}
