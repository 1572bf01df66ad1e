package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// adapterDevice is a software device that a fakeKernel manages.
//
//conformance:fake
type adapterDevice struct {
	verbs.DriverDevice
	transport verbs.TransportType
}

func (*adapterDevice) KernelManaged() string { return "the kernel has it" }

func (a *adapterDevice) Info() verbs.DriverInfo {
	info := a.DriverDevice.Info()
	info.Transport = a.transport
	return info
}

// fakeKernel is a kernel's connection manager that notes its commands, and whose events are those that a test tells.
type fakeKernel struct {
	events chan *ucma.Event
	done   chan struct{}

	mu    sync.Mutex
	calls []string
	fail  map[string]error // by command
	ids   map[uint32]bool  // IDs and groups that are not destroyed
	place ucma.Place       // of all IDs
	last  uint32
	opens int
}

func (k *fakeKernel) Close() error {
	close(k.done)
	return nil
}

func (k *fakeKernel) Next() (*ucma.Event, error) {
	select {
	case ev := <-k.events:
		return ev, nil
	case <-k.done:
		return nil, errors.New("closed")
	}
}

// note notes a command and returns its error.
func (k *fakeKernel) note(name, format string, args ...any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, strings.TrimSpace(name+" "+fmt.Sprintf(format, args...)))
	return k.fail[name]
}

// number makes the number of an ID or a group.
func (k *fakeKernel) number(err error) (uint32, error) {
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	k.ids[k.last] = true
	return k.last, nil
}

func (k *fakeKernel) destroy(id uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ids, id)
}

func (k *fakeKernel) Create(uid uint64, ps uint16, t verbs.QPType) (uint32, error) {
	return k.number(k.note("create", "%d %v %v", uid, PortSpace(ps), t))
}

func (k *fakeKernel) Destroy(id uint32) error {
	k.destroy(id)
	return k.note("destroy", "%d", id)
}

func (k *fakeKernel) SetOption(id uint32, level, name int, value []byte) error {
	if level != ucma.LevelID {
		return k.note("path", "%d %d %d %x", id, level, name, value)
	}
	return k.note("option", "%d %d %v", id, name, value)
}

func (k *fakeKernel) Bind(id uint32, a netip.AddrPort, scope uint32) error {
	return k.note("bind", "%d %v %d", id, a, scope)
}

func (k *fakeKernel) Resolve(id uint32, from, to netip.AddrPort, scope, ms uint32) error {
	return k.note("resolve", "%d %v %v %d %d", id, from, to, scope, ms)
}

func (k *fakeKernel) ResolveRoute(id, ms uint32) error { return k.note("route", "%d %d", id, ms) }

func (k *fakeKernel) Query(id uint32) (ucma.Place, error) {
	err := k.note("query", "%d", id)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		return ucma.Place{}, err
	}
	return k.place, nil
}

func (k *fakeKernel) Listen(id uint32, backlog int) error {
	return k.note("listen", "%d %d", id, backlog)
}

// shown is parameters of a command, for people.
func shown(p *ucma.Param) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("qp %d srq %v %q flow %v rd %d/%d retry %d/%d", p.QPN, p.SRQ, p.Private, p.FlowControl,
		p.ResponderResources, p.InitiatorDepth, p.RetryCount, p.RNRRetryCount)
}

func (k *fakeKernel) Connect(id uint32, p *ucma.Param, e ucma.ECE) error {
	return k.note("connect", "%d %s ece %d/%d", id, shown(p), e.Vendor, e.Options)
}

func (k *fakeKernel) Accept(id uint32, uid uint64, p *ucma.Param, e ucma.ECE) error {
	return k.note("accept", "%d %d %s ece %d/%d", id, uid, shown(p), e.Vendor, e.Options)
}

func (k *fakeKernel) Reject(id uint32, reason uint8, private []byte) error {
	return k.note("reject", "%d %d %q", id, reason, private)
}

func (k *fakeKernel) Disconnect(id uint32) error { return k.note("disconnect", "%d", id) }

func (k *fakeKernel) Notify(id uint32, ev verbs.EventType) error {
	return k.note("notify", "%d %v", id, ev)
}

func (k *fakeKernel) Join(id uint32, uid uint64, g netip.AddrPort, scope uint32, flags uint16) (uint32, error) {
	return k.number(k.note("join", "%d %d %v %d %d", id, uid, g, scope, flags))
}

func (k *fakeKernel) Leave(group uint32) error {
	k.destroy(group)
	return k.note("leave", "%d", group)
}

// InitQPAttr gives attributes of a QP that a connection to fuzzThere has. The depths are not those of the ID.
func (k *fakeKernel) InitQPAttr(id uint32, s verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	a := verbs.QPAttr{
		QPAccessFlags: verbs.AccessRemoteWrite, PortNum: 1, PathMTU: verbs.MTU1024, DestQPNum: 77, RQPSN: 5, SQPSN: 6,
		MaxDestRdAtomic: 9, MaxRdAtomic: 9, MinRNRTimer: 12, Timeout: 14, RetryCnt: 3, RNRRetry: 4,
		AHAttr: verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(fuzzThere),
			SGIDIndex: 1, HopLimit: 64}},
	}
	mask := map[verbs.QPState]verbs.QPAttrMask{
		verbs.QPSInit: verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags,
		verbs.QPSRTR: verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
			verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer,
		verbs.QPSRTS: verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
			verbs.QPAttrMaxQPRdAtomic,
	}[s]
	return a, mask, k.note("attr", "%d %v", id, s)
}

// kernelWorld is a host with one adapter, at fuzzHere.
type kernelWorld struct {
	*testing.T
	*fakeKernel
	h    *Host
	devs []*verbs.Device
	ch   *EventChannel
}

// inKernel runs a test in a kernelWorld, with more adapters at other addresses. At the end nothing may be left, also in
// the kernel.
func inKernel(t *testing.T, transport verbs.TransportType, f func(w *kernelWorld), more ...netip.Addr) {
	t.Helper()
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var devs []*verbs.Device
	for i, a := range append([]netip.Addr{fuzzHere}, more...) {
		dev, err := fab.NewDevice(fmt.Sprint("a", i), a)
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, driver.NewDevice(&adapterDevice{driver.Of[verbs.DriverDevice](dev), transport}))
	}
	k := &fakeKernel{
		events: make(chan *ucma.Event), done: make(chan struct{}), fail: map[string]error{}, ids: map[uint32]bool{},
		place: ucma.Place{GUID: devs[0].GUID(), Port: 1, Local: netip.AddrPortFrom(fuzzHere, 4242),
			Remote: netip.AddrPortFrom(fuzzThere, 7471)},
	}
	h := NewHost(devs...)
	h.openKernel = func() (kernelChannel, error) {
		if k.opens++; k.opens <= len(devs) { // newDevice only tries
			return &fakeKernel{done: make(chan struct{})}, nil
		}
		return k, nil
	}
	w := &kernelWorld{T: t, fakeKernel: k, h: h, devs: devs, ch: newChannel(h)}
	f(w)
	w.ok(w.ch.Close())
	if left := h.Left(); left != "" {
		t.Error("left: " + left)
	}
	if h.kernel != nil && len(h.kernel.targets) > 0 {
		t.Errorf("%d targets of events are left", len(h.kernel.targets))
	}
	w.ok(h.Close())
	if len(k.ids) > 0 {
		t.Errorf("IDs %v are left in the kernel", k.ids)
	}
	if k.opens > len(devs)+1 {
		t.Errorf("the kernel was opened %d times", k.opens)
	}
	select {
	case <-k.done:
	default:
		if k.opens > len(devs) {
			t.Error("the kernel's connection manager is open")
		}
	}
}

func (w *kernelWorld) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// errno expects the errno of an error; 0 is success.
func (w *kernelWorld) errno(err error, want syscall.Errno) {
	w.Helper()
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		w.Errorf("%v, want %v", err, want)
	}
}

// id makes an ID on the world's channel.
func (w *kernelWorld) id(ps PortSpace) *ID {
	w.Helper()
	id, err := w.h.CreateID(w.ch, ps, nil)
	w.ok(err)
	return id
}

// refuse lets commands fail from now on; 0 lets them succeed.
func (w *kernelWorld) refuse(errno syscall.Errno, commands ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range commands {
		if delete(w.fail, name); errno != 0 {
			w.fail[name] = errno
		}
	}
}

// called expects the commands since the last call.
func (w *kernelWorld) called(want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.calls, want) {
		w.Errorf("the kernel got\n\t%s\nwant\n\t%s", strings.Join(w.calls, "\n\t"), strings.Join(want, "\n\t"))
	}
	w.calls = nil
}

// tell delivers an event, and returns when it is dispatched.
func (w *kernelWorld) tell(ev *ucma.Event) {
	w.events <- ev
	w.events <- &ucma.Event{} // for no ID: taken after the one before it
}

// tellID delivers an event of an ID.
func (w *kernelWorld) tellID(id *ID, t EventType, status int32) {
	w.tell(&ucma.Event{UID: id.uid(), Type: uint32(t), Status: status})
}

// tellParam delivers an event of an ID with parameters of the peer.
func (w *kernelWorld) tellParam(id *ID, t EventType, p *ucma.Param) {
	ev := &ucma.Event{UID: id.uid(), Type: uint32(t), ECE: ucma.ECE{Vendor: 11, Options: 22}}
	ev.SetParam(p)
	w.tell(ev)
}

// uid is the number of the ID's events.
func (id *ID) uid() uint64 {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.kernelUID
}

// next expects the next event, and acknowledges it.
func (w *kernelWorld) next(want EventType) *Event {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ev, err := w.ch.GetEvent(ctx)
	if err != nil {
		w.Fatalf("waiting for %v: %v", want, err)
	}
	if ev.Type != want {
		w.Fatalf("%v (%v) instead of %v", ev.Type, ev.Err(), want)
	}
	w.ok(ev.Ack())
	return ev
}

// none expects no event.
func (w *kernelWorld) none() {
	w.Helper()
	if ev, err := w.ch.TryGetEvent(); err == nil {
		w.Errorf("unexpected %v", ev.Type)
		_ = ev.Ack()
	}
}

// offered is parameters of a peer, each with a value of its own.
func offered() *ucma.Param {
	return &ucma.Param{QPN: 77, Private: []byte("peer"), SRQ: true, ResponderResources: 5, InitiatorDepth: 6,
		FlowControl: true, RetryCount: 2, RNRRetryCount: 3}
}

// offer is offered, as an event has it.
func checkOffer(t *testing.T, p ConnParam) {
	t.Helper()
	if p.QPNum != 77 || string(p.PrivateData) != "peer" || !p.SRQ || p.ResponderResources != 5 || p.InitiatorDepth != 6 ||
		!p.FlowControl || p.RetryCount != 2 || p.RNRRetryCount != 3 {
		t.Errorf("the peer's parameters are %+v", p)
	}
}

// await waits for a command.
func (w *kernelWorld) await(name string) {
	w.Helper()
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		found := slices.ContainsFunc(w.calls, func(s string) bool { return strings.HasPrefix(s, name) })
		w.mu.Unlock()
		if found {
			return
		}
	}
	w.Fatalf("no %s came", name)
}
