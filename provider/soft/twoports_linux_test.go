package soft

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/verbs"
)

// The two paths between this host and the other one, which is a network namespace.
var (
	ours   = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")}
	theirs = []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("198.51.100.2")}
)

// TestV_AE_17_MigrationBetweenInterfaces: an RC QP of a device on two interfaces migrates to the second one when the
// first goes down, and so does its peer; the port is up while one of them is.
func TestV_AE_17_MigrationBetweenInterfaces(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	in := newNamespace(t)
	specs, err := listSpecs(fmt.Sprintf("vrb_two=%v+%v", ours[0], ours[1]))
	if err != nil {
		t.Fatal(err)
	}
	a := newSide(t, driver.NewDevice(newDevice(specs[0])))
	dev, err := New(softlink.On(Config{Name: "vrb_far", Addrs: theirs, Shards: 1},
		softlink.Links{Open: func(addrs []netip.Addr, ports int) (l link.Link, err error) {
			in(func() { l, err = udp.Open(udp.Config{Addrs: addrs, Ports: ports}) })
			return l, err
		}}))
	if err != nil {
		t.Fatal(err)
	}
	b := newSide(t, dev.Device)
	if e := must2(a.ctx.QueryGIDEntry(1, a.index(ours[1])))(t); e.NetDev != "vrbt1" {
		t.Errorf("GID %v is of %s", e.GID, e.NetDev)
	}
	opts := &verbs.ConnectOptions{Timeout: 16, RetryCnt: 3, RNRRetry: 7, MinRNRTimer: 12, MTU: verbs.MTU1024}
	ia, ib := must2(a.qp.LocalInfo())(t), must2(b.qp.LocalInfo())(t)
	ia.GID, ib.GID = verbs.GIDFromAddr(ours[0]), verbs.GIDFromAddr(theirs[0])
	check(t, a.qp.Connect(ib, opts))
	check(t, b.qp.Connect(ia, opts))
	a.sendMessage(t, b)
	a.arm(t, ours[1], theirs[1])
	b.arm(t, theirs[1], ours[1])
	a.sendMessage(t, b) // tells both that the other is armed
	b.sendMessage(t, a)

	iproute(t, "link", "set", "vrbt0", "down")
	a.sendMessage(t, b)
	b.sendMessage(t, a)
	for _, s := range []*side{a, b} {
		if ev := s.event(t); ev.Type != verbs.EventPathMig || ev.QP != s.qp {
			t.Errorf("event %v", ev.Type)
		}
	}
	attr, _, err := a.qp.Query(verbs.QPAttrAV)
	if err != nil || attr.AHAttr.GRH.DGID.Addr() != theirs[1] {
		t.Errorf("the path leads to %v: %v", attr.AHAttr.GRH.DGID, err)
	}
	if port := must2(a.ctx.QueryPort(1))(t); port.State != verbs.PortActive {
		t.Errorf("the port is %v although one interface is up", port.State)
	}
	iproute(t, "link", "set", "vrbt1", "down")
	if ev := a.event(t); ev.Type != verbs.EventPortErr {
		t.Errorf("event %v when the last interface goes down", ev.Type)
	}
	iproute(t, "link", "set", "vrbt0", "up")
	if ev := a.event(t); ev.Type != verbs.EventPortActive {
		t.Errorf("event %v when one is up again", ev.Type)
	}
}

// newNamespace makes a network namespace with two veth pairs to this one, and returns a function that runs another
// one in it.
func newNamespace(t *testing.T) func(func()) {
	work, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range work {
			f()
			ready <- nil
		}
	}()
	t.Cleanup(func() { close(work) })
	if err := <-ready; err != nil {
		t.Skipf("no second network namespace: %v", err)
	}
	in := func(f func()) { work <- f; <-ready }
	var there string
	in(func() { there = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()) })
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("cannot make a veth pair: %v", err)
	}
	for i := range ours {
		near, far := fmt.Sprintf("vrbt%d", i), fmt.Sprintf("vrbf%d", i)
		if out, err := exec.Command("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns",
			there).CombinedOutput(); err != nil {
			t.Skipf("cannot make a veth pair: %v: %s", err, out)
		}
		iproute(t, "addr", "add", ours[i].String()+"/24", "dev", near)
		iproute(t, "link", "set", near, "up")
		in(func() {
			iproute(t, "addr", "add", theirs[i].String()+"/24", "dev", far)
			iproute(t, "link", "set", far, "up")
			waitUp(t, far)
		})
		waitUp(t, near)
	}
	return in
}

// waitUp waits until an interface sends. It drops all packets until the kernel's work queue has activated it, which
// takes up to a second.
func waitUp(t *testing.T, name string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		out, err := exec.Command("ip", "-o", "link", "show", "dev", name).CombinedOutput()
		if err != nil {
			t.Errorf("ip link show dev %s: %v: %s", name, err, out)
			return
		}
		if bytes.Contains(out, []byte(" state UP ")) {
			return
		}
	}
	t.Errorf("%s is not up after 20 s", name)
}

func iproute(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %v: %v: %s", args, err, out)
	}
}

// side is an end of a connection.
type side struct {
	ctx *verbs.Context
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must2[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func newSide(t *testing.T, dev *verbs.Device) *side {
	s := &side{ctx: must2(dev.Open())(t)}
	pd := must2(s.ctx.AllocPD())(t)
	s.cq = must2(s.ctx.CreateCQ(16, nil))(t)
	s.mr = must2(pd.RegMR(make([]byte, 8192), verbs.AccessLocalWrite))(t)
	s.qp = must2(pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
			MaxRecvSGE: 1},
	}))(t)
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{s.qp, s.mr, s.cq, pd, s.ctx} {
			check(t, c.Close())
		}
	})
	return s
}

func (s *side) index(a netip.Addr) int {
	table, _ := s.ctx.QueryGIDTable()
	return slices.IndexFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr() == a })
}

// arm sets the alternate path and arms it.
func (s *side) arm(t *testing.T, from, to netip.Addr) {
	t.Helper()
	check(t, s.qp.Modify(&verbs.QPAttr{
		AltAHAttr: verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{
			DGID: verbs.GIDFromAddr(to), SGIDIndex: s.index(from), HopLimit: 64,
		}},
		AltPortNum: 1, AltTimeout: 14, PathMigState: verbs.MigRearm,
	}, verbs.QPAttrAltPath|verbs.QPAttrPathMigState))
}

// sendMessage sends a message of several packets.
func (s *side) sendMessage(t *testing.T, to *side) {
	t.Helper()
	check(t, to.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{to.mr.SGE(0, 8192)}}))
	check(t, s.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{s.mr.SGE(0, 5000)}}))
	for _, cq := range []*verbs.CQ{s.cq, to.cq} {
		var wcs [1]verbs.WC
		for begin := time.Now(); ; time.Sleep(50 * time.Microsecond) {
			if n := must2(cq.Poll(wcs[:]))(t); n == 1 {
				check(t, wcs[0].Err())
				break
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatal("the message did not arrive")
			}
		}
	}
}

// event waits for an event.
func (s *side) event(t *testing.T) verbs.AsyncEvent {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		ev, err := s.ctx.TryGetAsyncEvent()
		if err == nil {
			ev.Ack()
			return ev
		}
		if !errors.Is(err, verbs.EAGAIN) || time.Since(begin) > 20*time.Second {
			t.Fatalf("no event: %v", err)
		}
	}
}
