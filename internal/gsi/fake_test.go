package gsi_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/verbs"
)

// A fakeDevice records what reaches it. Its protection domains are pd.
//
//conformance:fake
type fakeDevice struct {
	verbs.DriverContext
	name string
	pd   verbs.DriverPD
}

func (d *fakeDevice) Info() verbs.DriverInfo { return verbs.DriverInfo{Name: d.name} }

func (d *fakeDevice) Open(verbs.DriverContextEvents) (verbs.DriverContext, error) { return d, nil }

func (d *fakeDevice) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{PhysPortCnt: 1, MaxCQE: 1}, nil
}

func (d *fakeDevice) QueryPort(uint8) (verbs.PortAttr, error) { return verbs.PortAttr{}, nil }
func (d *fakeDevice) NumCompVectors() int                     { return 1 }
func (d *fakeDevice) AllocPD() (verbs.DriverPD, error)        { return d.pd, nil }

func (d *fakeDevice) CreateCQ(int, *verbs.CQOptions, verbs.DriverCQEvents) (verbs.DriverCQ, error) {
	return &fakeCQ{}, nil
}

type fakeCQ struct{ verbs.DriverCQ }

func (q *fakeCQ) Cap() int { return 1 }

// A plainPD is a domain of a device that keeps QP 1 for itself.
type plainPD struct{ verbs.DriverPD }

func (plainPD) CreateQP(*verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return plainQP{}, nil
}

func (plainPD) CreateAH(verbs.AHAttr) (verbs.DriverHandle, error) { return plainAH{}, nil }

type (
	plainQP struct{ verbs.DriverQP }
	plainAH struct{ verbs.DriverHandle }
)

func (plainQP) QPN() uint32 { return 2 }

// A fakePD is a domain of a device that lets programs have QP 1.
type fakePD struct {
	plainPD
	err error // of CreateGSI and ClaimService

	claimed  uint64
	at       netip.Addr
	released bool
	watched  func(gsi.PeerDeath)
	stopped  bool
	screen   link.Screen
	will     *fakeWill
}

func (p *fakePD) CreateGSI(*verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return &fakeQP{}, p.err
}

func (p *fakePD) CreateQP(*verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return &fakeQP{}, nil
}

func (p *fakePD) CreateAH(verbs.AHAttr) (verbs.DriverHandle, error) { return &fakeAH{}, nil }

func (p *fakePD) CommIDs() (prefix uint32, bits int) { return 0xabc00000, 12 }

func (p *fakePD) ClaimService(id uint64, at netip.Addr) (release func(), err error) {
	p.claimed, p.at = id, at
	return func() { p.released = true }, p.err
}

func (p *fakePD) WatchPeers(f func(gsi.PeerDeath)) (stop func()) {
	p.watched = f
	return func() { p.stopped = true }
}

func (p *fakePD) Screen(s link.Screen) { p.screen = s }

type fakeScreen struct{}

func (*fakeScreen) Drop([]byte) bool    { return false }
func (*fakeScreen) Show([]*board.Board) {}

func (p *fakePD) NewLastWill(local, remote netip.Addr, tclass, hopLimit uint8, pkey uint16) gsi.LastWill {
	p.will = &fakeWill{local: local, remote: remote, tclass: tclass, hopLimit: hopLimit, pkey: pkey}
	return p.will
}

type fakeWill struct {
	gsi.LastWill
	local, remote    netip.Addr
	tclass, hopLimit uint8
	pkey             uint16
}

type fakeQP struct {
	verbs.DriverQP
	why   string
	state verbs.QPState
}

func (q *fakeQP) QPN() uint32           { return 1 }
func (q *fakeQP) Ended(why string)      { q.why = why }
func (q *fakeQP) Moved(s verbs.QPState) { q.state = s }

type fakeAH struct {
	verbs.DriverHandle
	index uint16
}

func (a *fakeAH) SetPKeyIndex(index uint16) { a.index = index }

// open returns a domain of a device whose domains are drv, and the attributes of a UD QP.
func open(t *testing.T, drv verbs.DriverPD) (*verbs.PD, *verbs.QPInitAttr) {
	t.Helper()
	vctx, err := driver.NewDevice(&fakeDevice{name: "vrb_fake0", pd: drv}).Open()
	if err != nil {
		t.Fatal(err)
	}
	pd, err := vctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := vctx.CreateCQ(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pd, &verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq}
}
