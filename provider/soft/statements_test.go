package soft_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_QDEV_03_MaximaAreBounds: at each maximum the call succeeds or returns ENOMEM; above it, it returns EINVAL.
func TestV_QDEV_03_MaximaAreBounds(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	d := get(e.ctx.QueryDevice())(t)
	qp := func(change func(*verbs.QPCap)) func() (closer, error) {
		return func() (closer, error) {
			c := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
			change(&c)
			return e.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq, Cap: c})
		}
	}
	srq := func(a verbs.SRQAttr) func() (closer, error) {
		return func() (closer, error) { return e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: a}) }
	}
	const inline = 4096 // no device attribute has it
	for name, c := range map[string]struct{ good, bad func() (closer, error) }{
		"max_qp_wr, send": {qp(func(c *verbs.QPCap) { c.MaxSendWR = uint32(d.MaxQPWR) }),
			qp(func(c *verbs.QPCap) { c.MaxSendWR = uint32(d.MaxQPWR) + 1 })},
		"max_qp_wr, receive": {
			qp(func(c *verbs.QPCap) { c.MaxRecvWR = uint32(d.MaxQPWR) }),
			qp(func(c *verbs.QPCap) { c.MaxRecvWR = uint32(d.MaxQPWR) + 1 }),
		},
		"max_sge, send": {qp(func(c *verbs.QPCap) { c.MaxSendSGE = uint32(d.MaxSGE) }),
			qp(func(c *verbs.QPCap) { c.MaxSendSGE = uint32(d.MaxSGE) + 1 })},
		"max_sge, receive": {
			qp(func(c *verbs.QPCap) { c.MaxRecvSGE = uint32(d.MaxSGE) }),
			qp(func(c *verbs.QPCap) { c.MaxRecvSGE = uint32(d.MaxSGE) + 1 }),
		},
		"inline": {qp(func(c *verbs.QPCap) { c.MaxInlineData = inline }),
			qp(func(c *verbs.QPCap) { c.MaxInlineData = inline + 1 })},
		"max_srq_wr": {
			srq(verbs.SRQAttr{MaxWR: uint32(d.MaxSRQWR), MaxSGE: 1}),
			srq(verbs.SRQAttr{MaxWR: uint32(d.MaxSRQWR) + 1, MaxSGE: 1}),
		},
		"max_srq_sge": {
			srq(verbs.SRQAttr{MaxWR: 1, MaxSGE: uint32(d.MaxSRQSGE)}),
			srq(verbs.SRQAttr{MaxWR: 1, MaxSGE: uint32(d.MaxSRQSGE) + 1}),
		},
		"max_cqe": {
			func() (closer, error) { return e.ctx.CreateCQ(d.MaxCQE, nil) }, func() (closer,
				error) {
				return e.ctx.CreateCQ(d.MaxCQE+1, nil)
			},
		},
	} {
		o, err := c.good()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		must(t, o.Close())
		if _, err := c.bad(); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%s, one past it: %v", name, err)
		}
	}
}

type closer interface{ Close() error }

// TestV_QDEV_07_CapabilityBits: each operation that depends on a capability bit works if and only if the bit is set.
func TestV_QDEV_07_CapabilityBits(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	caps := get(a.ctx.QueryDevice())(t).DeviceCapFlags
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	srq := get(a.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 2, MaxSGE: 1}}))(t)
	defer func() { must(t, srq.Close()) }()
	attr, _, err := qa.Query(verbs.QPAttrAV | verbs.QPAttrPort)
	must(t, err)
	alt := verbs.QPAttr{AltAHAttr: attr.AHAttr, AltPortNum: 1, AltTimeout: 14}
	for bit, err := range map[verbs.DeviceCapFlags]error{
		verbs.DeviceResizeMaxWR: qa.Modify(&verbs.QPAttr{Cap: verbs.QPCap{MaxSendWR: 100}}, verbs.QPAttrCap),
		verbs.DeviceAutoPathMig: qa.Modify(&alt, verbs.QPAttrAltPath),
		verbs.DeviceSRQResize:   srq.Modify(&verbs.SRQAttr{MaxWR: 20, MaxSGE: 1}, verbs.SRQAttrMaxWR),
	} {
		if works := err == nil; works != (caps&bit != 0) {
			t.Errorf("%v: %v, but the flags are %v", bit, err, caps)
		}
	}
	// PORT_ACTIVE_EVENT: TestV_PORT_02_V_AE_23_DeviceFollowsItsInterface.
	// Counters of keys: TestV_TR_04_D_22_DatagramsWithoutReceiveAreDropped.
	if want := verbs.DevicePortActiveEvent | verbs.DeviceBadPKeyCntr | verbs.DeviceBadQKeyCntr; caps&want != want {
		t.Errorf("flags %v", caps)
	}
}

func TestV_PORT_07_OneVirtualLane(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	if p := get(e.ctx.QueryPort(1))(t); p.MaxVLNum != 1 { // VL0
		t.Errorf("max_vl_num %d", p.MaxVLNum)
	}
}

// TestV_WR_13_AtomicsOfPeersAndProcessor: the device reports GLOB, so atomics of peers through several QPs and those
// of the processor are all counted.
func TestV_WR_13_AtomicsOfPeersAndProcessor(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		if c := get(b.ctx.QueryDevice())(t).AtomicCap; c != verbs.AtomicGlob {
			t.Fatalf("atomic_cap %v", c)
		}
		word := (*uint64)(unsafe.Pointer(&b.buf[0]))
		const each, qps = 200, 3
		var local sync.WaitGroup
		for range 2 {
			local.Go(func() {
				for range each {
					atomic.AddUint64(word, 1)
				}
			})
		}
		var list []*verbs.QP
		for range qps {
			q, _ := connect(a, b, verbs.QPTypeRC, nil)
			list = append(list, q)
		}
		for range each {
			for _, q := range list {
				must(t, q.PostSend(verbs.SendWR{
					Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 8)},
					RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), CompareAdd: 1,
				}))
			}
			a.good(qps)
		}
		local.Wait()
		if got := atomic.LoadUint64(word); got != each*(qps+2) {
			t.Errorf("%d of %d additions", got, each*(qps+2))
		}
	})
}
