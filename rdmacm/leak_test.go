package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// inventory counts the objects of this process: of its devices, descriptors, goroutines; and the rest of its hosts.
func inventory(t *testing.T, hosts ...*rdmacm.Host) string {
	var s strings.Builder
	reports, _, err := control.Reports(false)
	if err != nil {
		t.Skip(err)
	}
	found := false
	for _, r := range reports {
		if r.PID != os.Getpid() {
			continue
		}
		found = true
		for _, d := range r.Devices {
			fmt.Fprintf(&s, "%s: %d contexts, %d PDs, %d CQs, %d MRs, %d SRQs, %d QPs; ", d.Name, d.Contexts, d.PDs, d.CQs,
				d.MRs, d.SRQs, len(d.QPs))
		}
	}
	if !found {
		t.Skip("the process does not answer questions, so that its objects cannot be counted")
	}
	for i, h := range hosts {
		fmt.Fprintf(&s, "host %d: %s; ", i, h.Left())
	}
	fmt.Fprintf(&s, "%d descriptors, %d goroutines", descriptors(t), runtime.NumGoroutine())
	return s.String()
}

// failures are operations that fail. Each destroys its own objects.
type failures struct {
	*world
	addrA, addrB netip.Addr
	l            *rdmacm.ID // synchronous, on port
}

func (f *failures) ready(qp bool) *rdmacm.ID {
	f.Helper()
	id := must(f.a.CreateID(nil, rdmacm.PSTCP, nil))(f.world)
	f.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(f.addrB, port), timeout))
	f.ok(id.ResolveRoute(bg, timeout))
	if qp {
		f.ok(id.CreateQP(nil, qpInit()))
	}
	return id
}

// asked makes a request that waits for an answer.
func (f *failures) asked() (c, s *rdmacm.ID, done chan error) {
	f.Helper()
	c, done = f.ready(true), make(chan error, 1)
	go func() { done <- c.Connect(bg, nil) }()
	return c, must(f.l.GetRequest(bg))(f.world), done
}

func (f *failures) addresses() {
	id := must(f.a.CreateID(nil, rdmacm.PSTCP, nil))(f.world)
	f.errno(id.BindAddr(at(netip.MustParseAddr("192.0.2.7"), 0)), syscall.ENODEV)
	f.errno(id.BindAddr(netip.AddrPort{}), syscall.EINVAL)
	f.errno(id.ResolveAddr(bg, at(f.addrA, 0), at(netip.MustParseAddr("2001:db8::1"), 1), timeout), syscall.EINVAL)
	f.ok(id.ResolveAddr(bg, at(f.addrA, 0), at(f.addrB, 1), timeout))
	f.errno(id.ResolveRoute(bg, 0), syscall.EINVAL)
	f.destroy(id)
}

func (f *failures) objects() {
	id := f.ready(false)
	huge := qpInit()
	huge.Cap.MaxSendWR = 1 << 30
	if err := id.CreateQP(nil, huge); err == nil { // after the first CQ's channel was made
		f.Error("a QP of 2^30 requests")
	}
	huge.Cap.MaxSendWR, huge.Cap.MaxRecvWR = 4, 1<<30
	if err := id.CreateQP(nil, huge); err == nil { // after a CQ
		f.Error("a QP of 2^30 receives")
	}
	huge.Cap.MaxRecvWR, huge.Cap.MaxSendSGE = 4, 1<<20
	if err := id.CreateQP(nil, huge); err == nil { // after both
		f.Error("a QP of 2^20 SGEs")
	}
	if err := id.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1 << 30, MaxSGE: 1}}); err == nil {
		f.Error("an SRQ of 2^30 receives")
	}
	if id.SendCQ() != nil || id.RecvCQ() != nil || id.SendCQChannel() != nil || id.RecvCQChannel() != nil {
		f.Error("CQs or channels are left")
	}
	f.errno(id.Connect(bg, &rdmacm.ConnParam{QPNum: 1, PrivateData: make([]byte, 57)}), syscall.EINVAL)
	f.destroy(id)
}

func (f *failures) endpoints() {
	for _, address := range []string{at(f.addrB, 1).String(), "[2001:db8::1]:1", "no-port", "a-name:1"} {
		ctx, cancel := context.WithTimeout(bg, time.Second)
		if _, err := rdmacm.Dial(ctx, address, &rdmacm.Options{Host: f.a}); err == nil {
			f.Errorf("dialled %s", address)
		}
		cancel()
	}
	huge := &rdmacm.Options{Host: f.a, QP: verbs.QPCap{MaxSendWR: 1 << 30}}
	if _, err := rdmacm.Dial(bg, at(f.addrB, port).String(), huge); err == nil {
		f.Error("dialled with a QP that cannot be")
	}
	if _, err := rdmacm.Listen(bg, at(f.addrB, port).String(), &rdmacm.Options{Host: f.b}); !errors.Is(err,
		syscall.EADDRINUSE) {
		f.Error(err)
	}
	_, err := f.a.CreateEP(bg, nil, nil, nil)
	f.errno(err, syscall.EINVAL)
}

// requests for which the listener's QPs cannot be made.
func (f *failures) passiveEndpoint() {
	l, err := rdmacm.Listen(bg, at(f.addrB, 0).String(), &rdmacm.Options{Host: f.b, QP: verbs.QPCap{MaxRecvWR: 1 << 30}})
	f.ok(err)
	done := make(chan error)
	go func() {
		_, err := rdmacm.Dial(bg, l.Addr().String(), &rdmacm.Options{Host: f.a})
		done <- err
	}()
	if _, err := l.Accept(bg); err == nil {
		f.Error("accepted with a QP that cannot be")
	}
	f.errno(<-done, syscall.ECONNREFUSED)
	f.ok(l.Close())
}

func (f *failures) refused() {
	c, s, done := f.asked()
	f.errno(s.Reject(make([]byte, 149)), syscall.EINVAL)
	f.ok(s.Reject(nil))
	f.errno(<-done, syscall.ECONNREFUSED)
	f.destroy(c, s)
	c, s, done = f.asked() // by the end of the request
	f.destroy(s)
	f.errno(<-done, syscall.ECONNREFUSED)
	f.destroy(c)
}

func (f *failures) cancelled() {
	for range 2 { // before and after the request has been fetched
		c, s, done := f.asked()
		f.destroy(c)
		f.errno(<-done, syscall.EINVAL)
		f.destroy(s)
	}
	c := f.ready(true)
	ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
	defer cancel()
	if err := c.Connect(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		f.Error(err)
	}
	f.destroy(c)
	f.destroy(must(f.l.GetRequest(bg))(f.world))
	_, err := f.l.GetRequest(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		f.Error(err)
	}
}

func (f *failures) brokenQPs() {
	spoil := func(id *rdmacm.ID) { f.ok(id.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) }
	c, s, done := f.asked()
	f.ok(s.CreateQP(nil, qpInit()))
	spoil(s)
	f.errno(s.Accept(bg, nil), syscall.EINVAL)
	f.errno(<-done, syscall.ECONNREFUSED)
	f.destroy(c, s)
	c, s, done = f.asked()
	f.ok(s.CreateQP(nil, qpInit()))
	spoil(c)
	f.errno(s.Accept(bg, nil), syscall.ECONNREFUSED)
	f.errno(<-done, syscall.EINVAL)
	f.destroy(c, s)
}

// a channel, with its descriptor, that goes with everything on it.
func (f *failures) channels() {
	ch := must(f.b.CreateEventChannel())(f.world)
	if _, err := ch.FD(); err != nil {
		f.Error(err)
	}
	l := must(f.b.CreateID(ch, rdmacm.PSTCP, nil))(f.world)
	f.ok(l.BindAddr(at(f.addrB, 0)))
	f.ok(l.Listen(0))
	id := must(f.a.CreateID(nil, rdmacm.PSTCP, nil))(f.world)
	f.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(f.addrB, l.SrcPort()), timeout))
	f.ok(id.ResolveRoute(bg, timeout))
	f.ok(id.CreateQP(nil, qpInit()))
	if _, err := id.Channel().FD(); err != nil {
		f.Error(err)
	}
	done := make(chan error)
	go func() { done <- id.Connect(bg, nil) }()
	for {
		if ev, err := ch.TryGetEvent(); err == nil { // one request is fetched, and never acknowledged
			f.ok(ev.ID.CreateQP(nil, qpInit()))
			break
		}
		time.Sleep(time.Millisecond)
	}
	f.ok(ch.Close())
	f.errno(<-done, syscall.ECONNREFUSED)
	f.destroy(id)
}

func (f *failures) datagrams() {
	id := must(f.a.CreateID(nil, rdmacm.PSUDP, nil))(f.world)
	f.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(f.addrB, 1), timeout))
	f.ok(id.CreateQP(nil, udInit()))
	f.errno(id.JoinMulticast(bg, at(f.addrB, 0), nil), syscall.EINVAL)
	f.ok(id.JoinMulticast(bg, at(group4, 0), nil))
	f.ok(id.ResolveRoute(bg, timeout))
	f.errno(id.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 181)}), syscall.EINVAL)
	if err := id.Connect(bg, nil); err == nil {
		f.Error("a service that is not there")
	}
	f.destroy(id) // in the group
}

// A failed operation leaves nothing: neither IDs, ports and connections, nor QPs, CQs, PDs and regions, nor
// descriptors and goroutines.
func TestFailedOperationsLeakNothing(t *testing.T) {
	a, addrA := udpHost(t, 6)
	b, addrB := udpHost(t, 7)
	w := &world{T: t, a: a, b: b}
	f := &failures{world: w, addrA: addrA, addrB: addrB, l: must(b.CreateID(nil, rdmacm.PSTCP, nil))(w)}
	w.ok(f.l.BindAddr(at(addrB, port)))
	w.ok(f.l.Listen(0))
	for name, fail := range map[string]func(){
		"addresses": f.addresses, "objects": f.objects, "endpoints": f.endpoints, "passive endpoint": f.passiveEndpoint,
		"refused":   f.refused,
		"cancelled": f.cancelled, "broken QPs": f.brokenQPs, "channels": f.channels, "datagrams": f.datagrams,
	} {
		fail() // what the runtime, the host and the device open once
		before := stableInventory(t, a, b, "")
		for range 5 {
			fail()
		}
		if after := stableInventory(t, a, b, before); after != before {
			t.Errorf("%s: before\n%s\nafter\n%s", name, before, after)
		}
	}
	w.ok(f.l.Close())
	w.ok(a.Close())
	w.ok(b.Close())
}

// stableInventory returns the inventory when it no longer changes or equals want: connections stay in timewait for a
// while.
func stableInventory(t *testing.T, a, b *rdmacm.Host, want string) (now string) {
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		last := now
		if now = inventory(t, a, b); now == want || want == "" && now == last && !strings.Contains(now, "connections") {
			break
		}
	}
	return now
}
