package soft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// twoPaths is two ends with two addresses each, in virtual time.
type twoPaths struct {
	*testing.T
	net   *rdmatest.Fabric
	ends  [2]*end
	qps   [2]*verbs.QP
	first [2]netip.Addr
	other [2]netip.Addr
}

func newTwoPaths(t *testing.T, typ verbs.QPType) *twoPaths {
	p := &twoPaths{T: t, net: rdmatest.New(rdmatest.Config{})}
	for i := range p.ends {
		p.first[i], p.other[i] = netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}),
			netip.AddrFrom4([4]byte{198, 18, 1, byte(i + 1)})
		e := &end{tb: t}
		e.ctx = get(p.net.Open(fmt.Sprintf("vrb_p%d", i), p.first[i], p.other[i]))(t)
		e.pd = get(e.ctx.AllocPD())(t)
		e.cq = get(e.ctx.CreateCQ(64, nil))(t)
		e.buf = make([]byte, 1<<16)
		e.mr = get(e.pd.RegMR(e.buf, allAccess))(t)
		t.Cleanup(func() {
			for _, c := range []closer{e.mr, e.cq, e.pd, e.ctx} {
				must(t, c.Close())
			}
		})
		p.ends[i], p.qps[i] = e, e.qp(typ, nil)
	}
	join(t, p.qps[0], p.qps[1], &verbs.ConnectOptions{Timeout: 14, RetryCnt: 2, RNRRetry: 7, MinRNRTimer: 12})
	for i := range p.qps {
		if at := p.path(i); at != p.first[1-i] {
			t.Fatalf("end %d begins with the path to %v", i, at)
		}
	}
	return p
}

// path returns the destination address of an end's packets.
func (p *twoPaths) path(i int) netip.Addr {
	attr, _, err := p.qps[i].Query(verbs.QPAttrAV)
	must(p, err)
	return attr.AHAttr.GRH.DGID.Addr()
}

// way returns the attributes of a path from end i to an address.
func (p *twoPaths) way(i int, from, to netip.Addr) verbs.AHAttr {
	for index := range 3 {
		if get(p.ends[i].ctx.QueryGID(1, index))(p).Addr() == from {
			return verbs.AHAttr{PortNum: 1, IsGlobal: true,
				GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(to), SGIDIndex: index, HopLimit: 64}}
		}
	}
	p.Fatalf("no GID %v", from)
	return verbs.AHAttr{}
}

const loadAndArm = verbs.QPAttrAltPath | verbs.QPAttrPathMigState

// loadAlternate sets the alternate path of an end and rearms it.
func (p *twoPaths) loadAlternate(i int) {
	p.Helper()
	must(p, p.qps[i].Modify(&verbs.QPAttr{
		AltAHAttr: p.way(i, p.other[i], p.other[1-i]), AltPortNum: 1, AltTimeout: 15, PathMigState: verbs.MigRearm,
	}, loadAndArm))
	p.state(i, verbs.MigRearm)
}

func (p *twoPaths) state(i int, want verbs.MigState) {
	p.Helper()
	attr, _, err := p.qps[i].Query(verbs.QPAttrPathMigState)
	must(p, err)
	if attr.PathMigState != want {
		p.Fatalf("end %d is %v, want %v", i, attr.PathMigState, want)
	}
}

// message sends n bytes from end i to the other one and waits for the completions.
func (p *twoPaths) message(i, n int) {
	p.Helper()
	a, b := p.ends[i], p.ends[1-i]
	must(p, p.qps[1-i].PostRecv(recv(b, 1, n)))
	must(p, p.qps[i].PostSend(send(a, n)))
	for _, e := range []*end{a, b} {
		var wc [1]verbs.WC
		if !p.net.Run(func() bool { return get(e.cq.Poll(wc[:]))(p) == 1 }, time.Minute) {
			p.Fatal("no completion")
		}
		must(p, wc[0].Err())
	}
}

// event takes the next event of an end.
func (p *twoPaths) event(i int, want verbs.EventType) {
	p.Helper()
	p.net.Run(func() bool { return false }, time.Millisecond)
	ev, err := p.ends[i].ctx.TryGetAsyncEvent()
	must(p, err)
	if ev.Type != want || ev.QP != p.qps[i] {
		p.Errorf("end %d: event %v", i, ev.Type)
	}
	ev.Ack()
}

func (p *twoPaths) noEvent(i int) {
	p.Helper()
	p.net.Run(func() bool { return false }, time.Millisecond)
	if ev, err := p.ends[i].ctx.TryGetAsyncEvent(); !errors.Is(err, verbs.EAGAIN) {
		p.Errorf("end %d: event %v, %v", i, ev.Type, err)
	}
}

// arm arms both ends for migration.
func (p *twoPaths) arm() {
	p.Helper()
	for i := range p.ends {
		p.loadAlternate(i)
	}
	p.message(0, 10)
	p.message(1, 10)
	p.state(0, verbs.MigArmed)
	p.state(1, verbs.MigArmed)
}

// cut blocks a path in both directions.
func (p *twoPaths) cut(a [2]netip.Addr) { p.net.Cut(a[0], a[1]); p.net.Cut(a[1], a[0]) }

// TestV_AE_17_V_QPM_06_V_QPQ_03_MigrationWhenThePathBreaks: exhausted retries cause a migration to the alternate
// path, and no request fails. The peer migrates too. Then the way back can be armed.
func TestV_AE_17_V_QPM_06_V_QPQ_03_MigrationWhenThePathBreaks(t *testing.T) {
	p := newTwoPaths(t, verbs.QPTypeRC)
	p.arm()
	p.cut(p.first)
	p.message(0, 5000)
	for i := range p.ends {
		p.event(i, verbs.EventPathMig)
		p.state(i, verbs.MigMigrated)
		attr, _, err := p.qps[i].Query(verbs.QPAttrAV | verbs.QPAttrAltPath | verbs.QPAttrTimeout)
		must(t, err)
		if p.path(i) != p.other[1-i] || attr.AltAHAttr.GRH.DGID.Addr() != p.first[1-i] || attr.Timeout != 15 ||
			attr.AltTimeout != 14 {
			t.Errorf("end %d: %+v", i, attr)
		}
		must(t, p.qps[i].Modify(&verbs.QPAttr{PathMigState: verbs.MigRearm}, verbs.QPAttrPathMigState))
	}
	p.message(0, 10)
	p.message(1, 10)
	p.net.Heal(p.first[0], p.first[1])
	p.net.Heal(p.first[1], p.first[0])
	p.cut(p.other)
	p.message(1, 5000)
	for i := range p.ends {
		p.event(i, verbs.EventPathMig)
		if p.path(i) != p.first[1-i] {
			t.Errorf("end %d sends to %v", i, p.path(i))
		}
	}
	// It is not armed any more: the next break causes an error.
	p.cut(p.first)
	must(t, p.qps[0].PostSend(send(p.ends[0], 10)))
	var wc [1]verbs.WC
	if !p.net.Run(func() bool { return get(p.ends[0].cq.Poll(wc[:]))(t) == 1 }, time.Minute) ||
		wc[0].Status != verbs.WCRetryExcErr {
		t.Errorf("completion %+v", wc[0])
	}
}

// TestV_AE_17_MigrationByRequest: a program migrates by modify_qp, with requests outstanding in both directions; with
// UC this is the only way.
func TestV_AE_17_MigrationByRequest(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		t.Run(typ.String(), func(t *testing.T) {
			p := newTwoPaths(t, typ)
			p.arm()
			const messages = 20
			for i := range p.ends {
				for range messages {
					must(t, p.qps[1-i].PostRecv(recv(p.ends[1-i], 1, 3000)))
				}
			}
			for range messages {
				must(t, p.qps[0].PostSend(send(p.ends[0], 3000)))
				must(t, p.qps[1].PostSend(send(p.ends[1], 3000)))
			}
			must(t, p.qps[0].Modify(&verbs.QPAttr{PathMigState: verbs.MigMigrated}, verbs.QPAttrPathMigState))
			for _, e := range p.ends {
				got := 0
				var wcs [2 * messages]verbs.WC
				p.net.Run(func() bool {
					n := get(e.cq.Poll(wcs[:]))(t)
					for _, wc := range wcs[:n] {
						must(t, wc.Err())
					}
					got += n
					return got == 2*messages
				}, time.Minute)
				if got != 2*messages {
					t.Errorf("%d of %d completions", got, 2*messages)
				}
			}
			p.message(0, 10) // with UC the next packet informs the peer
			for i := range p.ends {
				p.event(i, verbs.EventPathMig)
				p.noEvent(i)
				if p.path(i) != p.other[1-i] {
					t.Errorf("end %d sends to %v", i, p.path(i))
				}
			}
			p.message(1, 10)
		})
	}
}

// TestV_AE_17_PathMigErr: a migration to a path that differs from the peer's alternate path raises PATH_MIG_ERR
// there, once.
func TestV_AE_17_PathMigErr(t *testing.T) {
	p := newTwoPaths(t, verbs.QPTypeRC)
	p.arm()
	must(t, p.qps[0].Modify(&verbs.QPAttr{AltAHAttr: p.way(0, p.other[0], p.first[1]), AltPortNum: 1, AltTimeout: 14},
		verbs.QPAttrAltPath))
	must(t, p.qps[0].Modify(&verbs.QPAttr{PathMigState: verbs.MigMigrated}, verbs.QPAttrPathMigState))
	p.event(0, verbs.EventPathMig)
	must(t, p.qps[0].PostSend(send(p.ends[0], 10), send(p.ends[0], 10)))
	p.event(1, verbs.EventPathMigErr)
	p.noEvent(1)
	p.state(1, verbs.MigArmed)
	if p.path(1) != p.first[0] || p.qps[1].State() != verbs.QPSRTS {
		t.Errorf("end 1 sends to %v in %v", p.path(1), p.qps[1].State())
	}
}

// TestV_QPM_06_V_QPM_03_RefusedMigrations: refused migrations change nothing.
func TestV_QPM_06_V_QPM_03_RefusedMigrations(t *testing.T) {
	p := newTwoPaths(t, verbs.QPTypeRC)
	good := verbs.QPAttr{AltAHAttr: p.way(0, p.other[0], p.other[1]), AltPortNum: 1, AltTimeout: 31,
		PathMigState: verbs.MigRearm}
	refuse := func(what string, mask verbs.QPAttrMask, change func(*verbs.QPAttr)) {
		t.Helper()
		before, _, err := p.qps[0].Query(verbs.QPAttrAV | verbs.QPAttrAltPath | verbs.QPAttrPathMigState)
		must(t, err)
		a := good
		change(&a)
		if err := p.qps[0].Modify(&a, mask); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%s: %v", what, err)
		}
		after, _, err := p.qps[0].Query(verbs.QPAttrAV | verbs.QPAttrAltPath | verbs.QPAttrPathMigState)
		must(t, err)
		if before != after {
			t.Errorf("%s: %+v became %+v", what, before, after)
		}
	}
	same := func(*verbs.QPAttr) {}
	refuse("REARM without a path", verbs.QPAttrPathMigState, same)
	refuse("ARMED", loadAndArm, func(a *verbs.QPAttr) { a.PathMigState = verbs.MigArmed })
	refuse("unknown state", loadAndArm, func(a *verbs.QPAttr) { a.PathMigState = verbs.MigArmed + 1 })
	refuse("timeout", loadAndArm, func(a *verbs.QPAttr) { a.AltTimeout = 32 })
	refuse("port 0", loadAndArm, func(a *verbs.QPAttr) { a.AltPortNum = 0 })
	refuse("port 2", loadAndArm, func(a *verbs.QPAttr) { a.AltPortNum = 2 })
	refuse("P_Key index", loadAndArm, func(a *verbs.QPAttr) { a.AltPKeyIndex = 1 })
	refuse("no GID", loadAndArm, func(a *verbs.QPAttr) { a.AltAHAttr.GRH.SGIDIndex = 9 })
	refuse("other family", loadAndArm,
		func(a *verbs.QPAttr) { a.AltAHAttr.GRH.DGID = verbs.GIDFromAddr(netip.MustParseAddr("fd00::1")) })
	a := good
	must(t, p.qps[0].Modify(&a, loadAndArm))
	refuse("MIGRATED in REARM", verbs.QPAttrPathMigState, func(a *verbs.QPAttr) { a.PathMigState = verbs.MigMigrated })
	p.message(0, 10)
	p.state(0, verbs.MigRearm) // the peer has no alternate path
	for i := range p.qps {
		must(t, p.qps[i].Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		p.state(i, verbs.MigMigrated)
	}
}

// TestV_AE_17_MigrationOverSockets: migration over sockets, each bound to one address: packets pass in both
// directions over the other path.
func TestV_AE_17_MigrationOverSockets(t *testing.T) {
	other := func(i int) netip.Addr { return loopback(100 + i) }
	i := -1
	ends := newEnds(t, &networks[1], 2, func(c *soft.Config) { i++; c.Addrs = append(c.Addrs, other(i)) })
	qa, qb := connect(ends[0], ends[1], verbs.QPTypeRC, nil)
	p := &twoPaths{T: t, ends: [2]*end{ends[0], ends[1]}, qps: [2]*verbs.QP{qa, qb},
		other: [2]netip.Addr{other(0), other(1)}}
	pingpong := func() {
		for i := range 2 {
			must(t, p.qps[1-i].PostRecv(recv(ends[1-i], 1, 100)))
			must(t, p.qps[i].PostSend(send(ends[i], 100)))
			ends[i].good(1)
			ends[1-i].good(1)
		}
	}
	for i := range p.ends {
		p.loadAlternate(i)
	}
	pingpong()
	must(t, qa.Modify(&verbs.QPAttr{PathMigState: verbs.MigMigrated}, verbs.QPAttrPathMigState))
	pingpong()
	for i, e := range ends {
		if ev := nextEvent(t, e); ev.Type != verbs.EventPathMig {
			t.Errorf("end %d: %v", i, ev.Type)
		}
		if p.path(i) != other(1-i) {
			t.Errorf("end %d sends to %v", i, p.path(i))
		}
	}
}
