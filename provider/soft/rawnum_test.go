package soft

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// fewQPs returns a context of a device with room for n QPs, and a PD of it.
func fewQPs(t *testing.T, n int) (*deviceContext, *pd) {
	t.Helper()
	fabric := mem.NewFabric(mem.Config{})
	d := newDevice(spec{name: "vrb_few", addrs: addrs("198.18.0.1")})
	d.virtual = true
	d.cfg.links.Raw = fabric.OpenRaw
	drv, err := d.Open(&portEvents{})
	if err != nil {
		t.Fatal(err)
	}
	c := drv.(*deviceContext)
	c.eng = engine.New(engine.Config{MaxQPs: n})
	t.Cleanup(func() { _ = c.Close() })
	p, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return c, p.(*pd)
}

// TestV_QP_11_NumbersOfRawPacketQPs: a RAW_PACKET QP has a number like any other QP, counts as one of the device's
// QPs, and its number is free after its destruction.
func TestV_QP_11_NumbersOfRawPacketQPs(t *testing.T) {
	const room = 3
	c, p := fewQPs(t, room)
	cq := made(made(driver.NewDevice(c.dev).Open())(t).CreateCQ(1, nil))(t)
	init := func() *verbs.QPInitAttr {
		i := &verbs.QPInitAttr{RecvCQ: cq}
		i.Cap.MaxRecvWR, i.Cap.MaxRecvSGE = 1, 1
		return i
	}
	for round := range 3 {
		var qps []verbs.DriverQP
		nums := map[uint32]bool{}
		for range room {
			q, err := p.createRaw(init(), nil)
			if err != nil {
				t.Fatalf("round %d: QP %d of %d: %v", round, len(qps)+1, room, err)
			}
			qps = append(qps, q)
			nums[q.QPN()] = true
		}
		if len(nums) != room {
			t.Errorf("round %d: numbers %v", round, nums)
		}
		if _, err := p.createRaw(init(), nil); !errors.Is(err, verbs.ENOMEM) {
			t.Errorf("round %d: one more than the device has: %v", round, err)
		}
		for _, q := range qps {
			if err := q.Destroy(); err != nil {
				t.Fatal(err)
			}
		}
		if c.dev.rawUse.users != 0 {
			t.Fatalf("round %d: the link of frames is open for %d QPs after the last one was destroyed", round,
				c.dev.rawUse.users)
		}
	}
}
