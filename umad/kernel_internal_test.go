package umad

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/kmad"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// adapter is a software device whose QP 1 is a fakeFile's.
//
//conformance:fake
type adapter struct {
	verbs.DriverDevice
	transport verbs.TransportType
}

func (*adapter) KernelManaged() string { return "the kernel has it" }

func (a *adapter) Info() verbs.DriverInfo {
	info := a.DriverDevice.Info()
	info.Transport = a.transport
	return info
}

// packet is a datagram of a fakeFile.
type packet struct {
	h   kmad.Header
	mad []byte
}

// fakeFile is a port of the kernel whose datagrams return to it: requests go to the agent that is registered for them,
// and answers to the one whose number their transaction ID has.
type fakeFile struct {
	mu     sync.Mutex
	agents map[uint32]kmad.Request
	last   uint32
	errno  error // of Register and Send
	sent   []packet
	in     chan packet
	gone   chan struct{}
}

func (f *fakeFile) Close() error {
	close(f.gone)
	return nil
}

func (f *fakeFile) Register(r kmad.Request) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.errno != nil {
		return 0, f.errno
	}
	f.last++
	f.agents[f.last] = r
	return f.last, nil
}

func (f *fakeFile) Unregister(agent uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.agents, agent)
	return nil
}

// hiTID is what the kernel puts into the upper half of an agent's transaction IDs.
const hiTID = 0x777

func (f *fakeFile) Send(h *kmad.Header, buf []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.errno != nil {
		return f.errno
	}
	mad := MAD(slices.Clone(buf))
	f.sent = append(f.sent, packet{*h, slices.Clone(mad)})
	if f.agents[h.Agent].Methods == nil && f.agents[h.Agent].Class != 0 {
		return syscall.EINVAL
	}
	out := *h
	head := mad.Header()
	if mad.IsResponse() {
		out.Agent = uint32(head.TID>>32) - hiTID
	} else {
		head.TID = uint64(h.Agent+hiTID)<<32 | head.TID&0xFFFFFFFF
		mad.Put(head)
		out.Agent = 0
		for n, r := range f.agents {
			if r.Class == mad.Class() && r.Version == mad.ClassVersion() && slices.Contains(r.Methods, mad.Method()) {
				out.Agent = n
			}
		}
	}
	if out.Agent == 0 { // nobody has it: the header comes back if an answer was expected
		if h.TimeoutMS == 0 {
			return nil
		}
		out.Agent, out.Status, mad = h.Agent, syscall.ETIMEDOUT, mad[:24]
	}
	f.in <- packet{out, mad}
	return nil
}

func (f *fakeFile) Next(h *kmad.Header, mad []byte) (int, error) {
	select {
	case p := <-f.in:
		*h = p.h
		return copy(mad, p.mad), nil
	case <-f.gone:
		return 0, errors.New("closed")
	}
}

// onAdapter runs a test with QP 1 of an adapter at here.
func onAdapter(t *testing.T, here netip.Addr, f func(p *Port, file *fakeFile, dev *verbs.Device)) {
	t.Helper()
	file := newFile()
	dev := newAdapter(t, file, nil, here, verbs.TransportIB)
	p, err := Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	f(p, file, dev)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if len(file.agents) > 0 && p.share.cause == nil && p.Counters() == (Counters{}) {
		t.Errorf("agents %v are left", file.agents)
	}
}

func newFile() *fakeFile {
	return &fakeFile{agents: map[uint32]kmad.Request{}, in: make(chan packet, 100), gone: make(chan struct{})}
}

// newAdapter makes an adapter with a file, or with an error of its opening.
func newAdapter(t *testing.T, file *fakeFile, err error, here netip.Addr, tt verbs.TransportType) *verbs.Device {
	t.Helper()
	soft, e := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", here)
	if e != nil {
		t.Fatal(e)
	}
	old := openFile
	t.Cleanup(func() { openFile = old })
	openFile = func(device string, port uint8) (kernelFile, error) {
		if device != "a" || port != 1 {
			t.Errorf("port %d of %s was opened", port, device)
		}
		if err != nil {
			return nil, err
		}
		return file, nil
	}
	return driver.NewDevice(&adapter{driver.Of[verbs.DriverDevice](soft), tt})
}

var (
	here6 = netip.MustParseAddr("2001:db8::1")
	here4 = netip.MustParseAddr("198.18.0.1")
)

func question6(class uint8) MAD {
	return New(Header{Class: class, ClassVersion: 1, Method: MethodGet, AttrID: 7}, []byte("question"))
}

// TestKernelCalls sends requests to an agent of the same port, which answers.
func TestKernelCalls(t *testing.T) {
	for _, here := range []netip.Addr{here6, here4} {
		onAdapter(t, here, func(p *Port, file *fakeFile, _ *verbs.Device) {
			server, err := p.Register(Registration{Class: 9, Methods: []uint8{MethodGet}})
			if err != nil {
				t.Fatal(err)
			}
			client, err := p.Register(Registration{})
			if err != nil {
				t.Fatal(err)
			}
			replied := make(chan struct{})
			go func() {
				defer close(replied)
				r, err := server.Recv(t.Context())
				if err == nil {
					err = server.Reply(r, 0, []byte("answer"))
				}
				if err != nil {
					t.Error(err)
				}
			}()
			to := &Address{Local: here, Remote: here, TClass: 3, FlowLabel: 4, PKeyIndex: 5}
			r, err := client.Call(t.Context(), to, question6(9), 1500*time.Microsecond, 3)
			if err != nil {
				t.Fatal(err)
			}
			if string(r.MAD.Data()[:6]) != "answer" || uint32(r.MAD.TID()>>32) != client.ID() || r.From.Local != here ||
				r.From.Remote != here {
				t.Errorf("%+v from %+v", r.MAD.Header(), r.From)
			}
			want := kmad.Header{Agent: 3, TimeoutMS: 2, Retries: 3, QPN: QPN, QKey: QKey, GRH: true, GIDIndex: 1, HopLimit: 64,
				TClass: 3, GID: verbs.GIDFromAddr(here), FlowLabel: 4, PKeyIndex: 5}
			got := file.sent[0].h
			if want.GIDIndex = got.GIDIndex; got != want {
				t.Errorf("the request's header is %+v, want %+v", got, want)
			}
			// The reply is counted after its send, which the client does not wait for.
			<-replied
			if c := p.Counters(); c != (Counters{Sent: 2, Received: 2}) {
				t.Errorf("%+v", c)
			}
			// Nobody answers class 10.
			_, err = client.Call(t.Context(), to, question6(10), time.Second, 0)
			if !errors.Is(err, ErrTimeout) || strings.Contains(err.Error(), "IPv4") != here.Is4() {
				t.Error(err)
			}
			for _, a := range []*Agent{server, client} {
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(file.agents) > 0 {
				t.Errorf("agents %v are left", file.agents)
			}
		})
	}
}

// Longer time-outs and more retries than the kernel takes are its longest and most.
func TestKernelLongTimeouts(t *testing.T) {
	onAdapter(t, here6, func(p *Port, file *fakeFile, _ *verbs.Device) {
		client, err := p.Register(Registration{})
		if err != nil {
			t.Fatal(err)
		}
		for _, long := range []time.Duration{math.MaxInt64, math.MaxInt64 - 999_999, 30 * 24 * time.Hour} {
			_, err = client.Call(t.Context(), &Address{Local: here6, Remote: here6}, question6(10), long, math.MaxInt)
			if h := file.sent[len(file.sent)-1].h; !errors.Is(err, ErrTimeout) || h.TimeoutMS != math.MaxInt32 ||
				h.Retries != math.MaxInt32 {
				t.Errorf("%v: %d ms, %d retries, %v", long, h.TimeoutMS, h.Retries, err)
			}
		}
	})
}

// TestKernelDatagrams passes datagrams that no kernel sends, or that come late, to an agent.
func TestKernelDatagrams(t *testing.T) {
	onAdapter(t, here6, func(p *Port, file *fakeFile, _ *verbs.Device) {
		a, err := p.Register(Registration{Class: 9, ClassVersion: 1, Methods: []uint8{MethodGet}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		bad := question6(9)
		bad[0] = 7
		late := question6(9)
		late.Put(Header{Class: 9, Method: MethodGetResp, TID: 5})
		h := kmad.Header{Agent: 1}
		for _, q := range []packet{
			{kmad.Header{Agent: 99}, question6(9)}, {h, nil}, {h, bad}, {h, question6(9)[:100]}, {h, late},
			{kmad.Header{Agent: 1, Status: syscall.ETIMEDOUT}, question6(9)[:24]},
			{kmad.Header{Agent: 1, Status: syscall.ETIMEDOUT}, nil},
			{kmad.Header{Agent: 1, GRH: true, GIDIndex: 200}, question6(9)}, {h, question6(9)},
		} {
			file.in <- q
		}
		for range 2 {
			r, err := a.Recv(t.Context())
			if err != nil || r.From.Local.IsValid() {
				t.Errorf("%+v, %v", r, err)
				continue
			}
			if err := a.Reply(r, 0, nil); err == nil {
				t.Error("a reply to no address was sent")
			}
		}
		if c := p.Counters(); c.Malformed != 3 || c.Unclaimed != 1 || c.Received != 6 {
			t.Errorf("%+v", c)
		}
	})
}

// TestKernelRefusals checks the errors of an adapter's port.
func TestKernelRefusals(t *testing.T) {
	onAdapter(t, here6, func(p *Port, file *fakeFile, _ *verbs.Device) {
		for _, c := range []struct {
			class uint8
			errno error
			want  syscall.Errno
		}{
			{0x30, nil, verbs.EOPNOTSUPP}, {0x4F, nil, verbs.EOPNOTSUPP}, {0x50, nil, syscall.EINVAL}, {0, nil, syscall.EINVAL},
			{7, syscall.EINVAL, syscall.EBUSY}, {7, syscall.ENOMEM, syscall.ENOMEM}, {7, syscall.EIO, syscall.ENODEV},
			{7, syscall.EPERM, syscall.EPERM},
		} {
			file.errno = c.errno
			a, err := p.Register(Registration{Class: c.class, Methods: []uint8{MethodGet}})
			if a != nil || !errors.Is(err, c.want) {
				t.Errorf("class %#x, %v: %v, want %v", c.class, c.errno, err, c.want)
			}
			if len(file.agents) > 0 || len(p.share.agents) > 0 {
				t.Errorf("agents are left: %v", file.agents)
			}
		}
		file.errno = nil
		vendor, err := p.Register(Registration{Class: 0x30, ClassVersion: 1, Methods: []uint8{MethodGet}, OUI: 0x1405})
		if err != nil || file.agents[file.last].OUI != 0x1405 || vendor.Close() != nil {
			t.Errorf("%+v, %v", file.agents, err)
		}
		if _, err := p.Register(Registration{PortNum: 2}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a port that the device does not have: %v", err)
		}
		a, err := p.Register(Registration{})
		if err != nil {
			t.Fatal(err)
		}
		good := Address{Local: here6, Remote: here6}
		for _, c := range []struct {
			change func(to *Address)
			errno  error
			want   syscall.Errno
		}{
			{func(to *Address) { to.QKey = 5 }, nil, verbs.EOPNOTSUPP}, {func(to *Address) { to.QKey = QKey }, nil, 0},
			{func(to *Address) { to.QPN = 1 << 24 }, nil, syscall.EINVAL},
			{func(to *Address) { to.FlowLabel = 1 << 20 }, nil, syscall.EINVAL},
			{func(to *Address) { to.Remote = here4 }, nil, syscall.EINVAL},
			{func(to *Address) { to.Remote = netip.Addr{} }, nil, syscall.EINVAL},
			{func(to *Address) { to.Local = here4 }, nil, syscall.EADDRNOTAVAIL},
			{func(*Address) {}, syscall.EIO, syscall.ENODEV}, {func(*Address) {}, syscall.ENETUNREACH, syscall.ENETUNREACH},
		} {
			to := good
			c.change(&to)
			file.errno = c.errno
			err := a.Send(&to, question6(9))
			if c.want == 0 && err != nil || c.want != 0 && !errors.Is(err, c.want) {
				t.Errorf("%+v, %v: %v, want %v", to, c.errno, err, c.want)
			}
		}
		file.errno = nil
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Send(&good, question6(9)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestKernelOpen checks the errors of opening.
func TestKernelOpen(t *testing.T) {
	iwarp := newAdapter(t, nil, nil, here6, verbs.TransportIWARP)
	if p, err := Open(iwarp); p != nil || !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("iWARP: %v", err)
	}
	for _, want := range []error{syscall.ENOENT, syscall.EACCES, errors.New("another reason")} {
		dev := newAdapter(t, nil, fmt.Errorf("umad0: %w", want), here6, verbs.TransportIB)
		if p, err := Open(dev); p != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), "umad0") {
			t.Errorf("%v: %v", want, err)
		}
	}
}

// TestKernelRemoval removes the device while agents wait. The next Open opens it again.
func TestKernelRemoval(t *testing.T) {
	onAdapter(t, here6, func(p *Port, file *fakeFile, dev *verbs.Device) {
		a, err := p.Register(Registration{Class: 9, Methods: []uint8{MethodSend}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := a.Recv(context.Background())
			ended <- err
		}()
		file.gone <- struct{}{} // Next fails, though the port was not closed
		if err := <-ended; !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "removed") {
			t.Error(err)
		}
		if err := a.Send(&Address{Local: here6, Remote: here6}, question6(9)); !errors.Is(err, syscall.ENODEV) {
			t.Error(err)
		}
		if _, err := p.Register(Registration{}); !errors.Is(err, syscall.ENODEV) {
			t.Error(err)
		}
		again := newFile()
		openFile = func(string, uint8) (kernelFile, error) { return again, nil }
		q, err := Open(dev)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Register(Registration{}); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
