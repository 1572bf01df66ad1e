package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// cabled is a host in a namespace and its cable, a veth pair, to another one, which answers ARP and ND.
type cabled struct {
	*world
	host *rdmacm.Host
	ch   *rdmacm.EventChannel
}

const (
	near4, far4, deaf4  = "192.0.2.1", "192.0.2.2", "192.0.2.77"
	near6, far6, deaf6  = "fd00::1", "fd00::2", "fd00::77"
	nearLocal, farLocal = "fe80::1", "fe80::2"
)

// onWire runs a test with two hosts in namespaces. It is skipped where a process cannot have them.
func onWire(t *testing.T, f func(w *cabled)) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	cable(t)
	dev, err := soft.New(soft.Config{Name: "vrb_near", Addrs: []netip.Addr{netip.MustParseAddr(near4),
		netip.MustParseAddr(near6)}})
	if err != nil {
		t.Fatal(err)
	}
	w := &cabled{world: &world{T: t}, host: rdmacm.NewHost(dev.Device)}
	w.ch = must(w.host.CreateEventChannel())(w.world)
	f(w)
	w.ok(w.ch.Close())
	w.ok(w.host.Close())
}

// cable makes the veth pair, whose other end is in a namespace of a thread.
func cable(t *testing.T) {
	there, done := make(chan string), make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			there <- ""
			return
		}
		there <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		for _, line := range []string{"addr add " + far4 + "/24 dev far", "addr add " + far6 + "/64 dev far nodad",
			"addr add " + farLocal + "/64 dev far nodad", "link set far up"} {
			<-there
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v: %s", line, err, out)
			}
			there <- ""
		}
		<-done
	}()
	ns := <-there
	if ns == "" {
		t.Skip("no second network namespace for this process")
	}
	if out, err := exec.Command("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns",
		ns).CombinedOutput(); err != nil {
		t.Skipf("no veth pair: %v: %s", err, out)
	}
	for range 4 {
		there <- ""
		<-there
	}
	for _, line := range []string{"link set lo up", "addr add " + near4 + "/24 dev near",
		"addr add " + near6 + "/64 dev near nodad", "addr add " + nearLocal + "/64 dev near nodad",
		"link set near up"} {
		ip(t, "%s", line)
	}
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(ip(t, "-o link show dev near"), " state UP ") {
			return
		}
	}
	t.Fatal("the cable is not up after 20 s")
}

func ip(t *testing.T, format string, args ...any) string {
	t.Helper()
	return apart.IP(t, fmt.Sprintf(format, args...))
}

// forget waits until the host asks the system again.
func forget() { time.Sleep(150 * time.Millisecond) }

// begin begins to resolve an address, which does not wait.
func (w *cabled) begin(src, dst string, timeout time.Duration) *end {
	w.Helper()
	e := &end{must(w.host.CreateID(w.ch, rdmacm.PSTCP, nil))(w.world), w.world, w.ch}
	from := netip.AddrPort{}
	if src != "" {
		from = at(netip.MustParseAddr(src), 0)
	}
	w.ok(e.ResolveAddr(bg, from, at(netip.MustParseAddr(dst), port), timeout))
	return e
}

// TestC_ADDR_02_LinkAddressIsAskedFor: the event comes when the system has learned the peer's link address.
func TestC_ADDR_02_LinkAddressIsAskedFor(t *testing.T) {
	onWire(t, func(w *cabled) {
		for _, dst := range []string{far4, far6} {
			if out := ip(t, "neigh show %s", dst); out != "" {
				t.Fatalf("the system knows the neighbour already: %s", out)
			}
			e := w.begin("", dst, 20*time.Second)
			e.expect(rdmacm.EventAddrResolved)
			if out := ip(t, "neigh show %s", dst); !strings.Contains(out, "lladdr") {
				t.Errorf("%s is resolved, and the system has: %s", dst, out)
			}
			e.closeID()
		}
		// The address of this host and a multicast group need none.
		for _, dst := range []string{near4, "127.0.0.1", "224.0.0.9"} {
			e := &end{must(w.host.CreateID(w.ch, rdmacm.PSUDP, nil))(w.world), w.world, w.ch}
			w.ok(e.ResolveAddr(bg, at(netip.MustParseAddr(near4), 0), at(netip.MustParseAddr(dst), port), time.Millisecond))
			e.expect(rdmacm.EventAddrResolved)
			e.closeID()
		}
	})
}

// TestC_ADDR_08_TimeoutOfTheLinkAddress: without an answer the event comes after the time-out and not before, and the
// call itself does not wait; a neighbour that appears meanwhile is found.
func TestC_ADDR_08_TimeoutOfTheLinkAddress(t *testing.T) {
	onWire(t, func(w *cabled) {
		for _, dst := range []string{deaf4, deaf6} {
			const limit = 1500 * time.Millisecond // beyond the system's first question
			begin := time.Now()
			e := w.begin("", dst, limit)
			if took := time.Since(begin); took > limit {
				t.Errorf("the call took %v", took)
			}
			ev := e.expect(rdmacm.EventAddrError)
			if took := time.Since(begin); ev.Status != -int(syscall.ETIMEDOUT) || took < limit || took > limit+20*time.Second {
				t.Errorf("%s: status %d after %v: %v", dst, ev.Status, took, ev.Err())
			}
			if !strings.Contains(ev.Err().Error(), "ip neigh") {
				t.Errorf("the error does not say what to look at: %v", ev.Err())
			}
			// The ID can try again.
			w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(netip.MustParseAddr(dst), port), 20*time.Second))
			time.Sleep(100 * time.Millisecond)
			ip(t, "neigh replace %s lladdr 02:00:00:00:00:77 dev near nud permanent", dst)
			e.expect(rdmacm.EventAddrResolved)
			e.closeID()
			ip(t, "neigh del %s dev near", dst)
		}
		// A synchronous ID waits, and Close ends a wait.
		forget()
		id := must(w.host.CreateID(nil, rdmacm.PSTCP, nil))(w.world)
		w.errno(id.ResolveAddr(bg, netip.AddrPort{}, at(netip.MustParseAddr(deaf4), port), 100*time.Millisecond),
			syscall.ETIMEDOUT)
		w.ok(id.Close())
		e := w.begin("", deaf4, time.Hour)
		w.ok(e.Close())
		if _, err := w.ch.TryGetEvent(); err == nil {
			t.Error("an event of a closed ID")
		}
		for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			buf := make([]byte, 1<<20)
			if !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "neighbours).await") {
				break
			} else if time.Since(begin) > 20*time.Second {
				t.Fatal("a goroutine waits for the link address of a closed ID")
			}
		}
	})
}

// TestC_ADDR_09_NobodyAnswers: when the system has asked for a link address in vain the status is that of its own
// sockets, however long the time-out. The next ResolveAddr makes it ask again.
func TestC_ADDR_09_NobodyAnswers(t *testing.T) {
	onWire(t, func(w *cabled) {
		interval := func(ms string) { // of the three questions of the system, a second by default
			for _, f := range []string{"ipv4", "ipv6"} {
				_ = os.WriteFile("/proc/sys/net/"+f+"/neigh/near/retrans_time_ms", []byte(ms), 0o644)
			}
		}
		for _, dst := range []string{deaf4, deaf6} {
			interval("100")
			e := w.begin("", dst, time.Minute)
			if ev := e.expect(rdmacm.EventAddrError); ev.Status != -int(syscall.EHOSTUNREACH) ||
				!strings.Contains(ev.Err().Error(), "ip neigh") {
				t.Errorf("%s: status %d: %v", dst, ev.Status, ev.Err())
			}
			time.Sleep(askAgain) // the answer counts no longer
			interval("20000")
			w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(netip.MustParseAddr(dst), port), time.Minute))
			ip(t, "neigh replace %s lladdr 02:00:00:00:00:77 dev near nud permanent", dst)
			e.expect(rdmacm.EventAddrResolved)
			e.closeID()
			ip(t, "neigh del %s dev near", dst)
		}
	})
}

// askAgain is longer than the time for which the system's answer counts.
const askAgain = 4200 * time.Millisecond

// routes are those that no packet takes, with their errnos.
var routes = []struct {
	kind  string
	errno syscall.Errno
}{
	{"blackhole", syscall.EINVAL}, {"unreachable", syscall.EHOSTUNREACH}, {"prohibit", syscall.EACCES},
	{"", syscall.ENETUNREACH},
}

// TestC_ADDR_09_RoutesThatNoPacketTakes: without a usable route the status is its errno, whether the ID is bound or
// not.
func TestC_ADDR_09_RoutesThatNoPacketTakes(t *testing.T) {
	onWire(t, func(w *cabled) {
		for _, r := range routes {
			for dst, src := range map[string]string{"198.51.100.1": near4, "fd01::1": near6} {
				if r.kind != "" {
					ip(t, "route add %s %s", r.kind, dst)
				}
				for _, from := range []string{"", src} {
					e := w.begin(from, dst, time.Minute)
					if ev := e.expect(rdmacm.EventAddrError); ev.Status != -int(r.errno) || !errors.Is(ev.Err(), r.errno) {
						t.Errorf("route %q to %s from %q: status %d, %v", r.kind, dst, from, ev.Status, ev.Err())
					}
					e.closeID()
				}
				if r.kind != "" {
					ip(t, "route del %s %s", r.kind, dst)
				}
				forget()
			}
		}
	})
}

// TestC_ROUTE_04_WayLostAfterResolveAddr: a route or neighbour that is lost after ResolveAddr is an error of
// ResolveRoute, within its time-out; the ID can try again. If it is lost after that, the request cannot be sent.
func TestC_ROUTE_04_WayLostAfterResolveAddr(t *testing.T) {
	onWire(t, func(w *cabled) {
		const dst = "198.51.100.1"
		for _, r := range routes {
			ip(t, "route add %s via %s", dst, far4)
			e := w.begin("", dst, 20*time.Second)
			e.expect(rdmacm.EventAddrResolved)
			ip(t, "route del %s", dst)
			if r.kind != "" {
				ip(t, "route add %s %s", r.kind, dst)
			}
			forget()
			w.ok(e.ResolveRoute(bg, time.Minute))
			if ev := e.expect(rdmacm.EventRouteError); ev.Status != -int(r.errno) || !errors.Is(ev.Err(), r.errno) {
				t.Errorf("route %q: status %d, %v", r.kind, ev.Status, ev.Err())
			}
			if r.kind != "" {
				ip(t, "route del %s %s", r.kind, dst)
			}
			ip(t, "route add %s via %s", dst, far4)
			forget()
			w.ok(e.ResolveRoute(bg, 20*time.Second))
			e.expect(rdmacm.EventRouteResolved)
			w.ok(e.CreateQP(nil, qpInit()))
			ip(t, "route del %s", dst)
			if r.kind != "" {
				ip(t, "route add %s %s", r.kind, dst)
			}
			forget()
			w.ok(e.Connect(bg, nil))
			if ev := e.expect(rdmacm.EventUnreachable); ev.Status != -int(r.errno) {
				t.Errorf("connect by route %q: status %d, %v", r.kind, ev.Status, ev.Err())
			}
			e.closeID()
			if r.kind != "" {
				ip(t, "route del %s %s", r.kind, dst)
			}
			forget()
		}
		// The router does not answer any more.
		ip(t, "neigh replace %s lladdr 02:00:00:00:00:77 dev near nud permanent", deaf4)
		ip(t, "route add %s via %s", dst, deaf4)
		e := w.begin("", dst, 20*time.Second)
		e.expect(rdmacm.EventAddrResolved)
		ip(t, "neigh del %s dev near", deaf4)
		forget()
		begin := time.Now()
		const limit = 300 * time.Millisecond
		w.ok(e.ResolveRoute(bg, limit))
		ev := e.expect(rdmacm.EventRouteError)
		if took := time.Since(begin); ev.Status != -int(syscall.ETIMEDOUT) || took < limit || took > limit+20*time.Second {
			t.Errorf("status %d after %v: %v", ev.Status, took, ev.Err())
		}
		e.closeID()
	})
}

// A call of a synchronous ID whose context ends leaves its error in the channel. The next call does not return it.
func TestErrorOfACallThatWasGivenUp(t *testing.T) {
	onWire(t, func(w *cabled) {
		id := must(w.host.CreateID(nil, rdmacm.PSTCP, nil))(w.world)
		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		defer cancel()
		err := id.ResolveAddr(ctx, netip.AddrPort{}, at(netip.MustParseAddr(deaf4), port), 200*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a call that was given up: %v", err)
		}
		again := func() error { // EINVAL until the first call has failed
			return id.ResolveAddr(bg, netip.AddrPort{}, at(netip.MustParseAddr(far4), port), 20*time.Second)
		}
		for err = again(); errors.Is(err, syscall.EINVAL); err = again() {
			time.Sleep(10 * time.Millisecond)
		}
		w.ok(err)
		w.ok(id.ResolveRoute(bg, timeout))
		w.ok(id.Close())
	})
}

// An address that cannot be resolved leaves the ID unbound, so that the next destination may be of another device.
func TestC_ID_23_OtherDestinationAfterAddrError(t *testing.T) {
	onWire(t, func(w *cabled) {
		var devs []*verbs.Device
		for name, addr := range map[string]string{"vrb_wire": near4, "vrb_lo": "127.0.0.1"} {
			dev, err := soft.New(soft.Config{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
			w.ok(err)
			devs = append(devs, dev.Device)
		}
		host := rdmacm.NewHost(devs...)
		ch := must(host.CreateEventChannel())(w.world)
		e := &end{must(host.CreateID(ch, rdmacm.PSTCP, nil))(w.world), w.world, ch}
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(netip.MustParseAddr(deaf4), port), 50*time.Millisecond))
		e.expect(rdmacm.EventAddrError)
		if e.Verbs() != nil {
			t.Error("the ID has a device")
		}
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(netip.MustParseAddr("127.0.0.1"), port), timeout))
		e.expect(rdmacm.EventAddrResolved)
		if a := e.LocalAddr().Addr(); !a.IsLoopback() {
			t.Errorf("the local address toward 127.0.0.1 is %v", a)
		}
		e.close()
		w.ok(host.Close())
	})
}

// A route whose packets cannot hold a connection request is refused with what it lacks.
func TestRouteTooSmallForARequest(t *testing.T) {
	onWire(t, func(w *cabled) {
		for mtu, want := range map[int]error{307: syscall.EMSGSIZE, 308: nil} {
			ip(t, "route replace %s/32 dev near mtu lock %d", far4, mtu)
			time.Sleep(rdmacm.PathAge)
			e := w.begin("", far4, 20*time.Second)
			e.expect(rdmacm.EventAddrResolved)
			w.ok(e.ResolveRoute(bg, time.Second))
			event := rdmacm.EventRouteResolved
			if want != nil {
				event = rdmacm.EventRouteError
			}
			if err := e.expect(event).Err(); !errors.Is(err, want) {
				t.Errorf("MTU %d: %v, want %v", mtu, err, want)
			}
			e.closeID()
		}
	})
}
