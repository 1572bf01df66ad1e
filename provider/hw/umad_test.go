//go:build linux && (amd64 || arm64)

package hw_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/provider/hw"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// madPort opens QP 1 of the test's device, and returns its address of IPv6.
func madPort(t *testing.T) (*umad.Port, netip.Addr) {
	t.Helper()
	addrs := deviceAddrs(t)
	i := slices.IndexFunc(addrs, netip.Addr.Is6)
	if i < 0 {
		t.Fatal("the device has no address of IPv6")
	}
	addr := addrs[i]
	vctx := opened(t)
	defer vctx.Close()
	p := must(umad.Open(vctx.Device()))(t)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, addr
}

// get is a request.
func get(class, version uint8) umad.MAD {
	return umad.New(umad.Header{Class: class, ClassVersion: version, Method: umad.MethodGet,
		AttrID: umad.AttrClassPortInfo, AttrMod: 5}, []byte("question"))
}

// answerAll answers requests of an agent until it is closed.
func answerAll(a *umad.Agent) {
	for {
		r, err := a.Recv(context.Background())
		if err != nil {
			return
		}
		_ = a.Reply(r, 0x1200, append([]byte("answer to "), r.MAD.Data()[:8]...))
	}
}

// TestMADCalls sends requests of several classes and versions through QP 1 of the device to the device itself.
func TestMADCalls(t *testing.T) {
	p, addr := madPort(t)
	classes := []struct{ class, version, reg uint8 }{{umad.ClassPerf, 1, 1}, {9, 2, 0}, {10, 1, 0}, {3, 2, 2}}
	asks := must(p.Register(umad.Registration{}))(t)
	defer asks.Close()
	to := &umad.Address{Local: addr, Remote: addr, TClass: 0x20, FlowLabel: 77}
	for _, c := range classes {
		a := must(p.Register(umad.Registration{Class: c.class, ClassVersion: c.reg, Methods: []uint8{umad.MethodGet}}))(t)
		go answerAll(a)
		for range 20 {
			r, err := asks.Call(t.Context(), to, get(c.class, c.version), 5*time.Second, 1)
			if err != nil {
				t.Fatalf("class %#x: %v", c.class, err)
			}
			h := r.MAD.Header()
			if h.Method != umad.MethodGetResp || h.Class != c.class || h.Status != 0x1200 || h.AttrMod != 5 ||
				uint32(h.TID>>32) != asks.ID() || string(r.MAD.Data()[:18]) != "answer to question" {
				t.Fatalf("%+v %q", h, r.MAD.Data()[:18])
			}
			if r.From.Remote != addr || r.From.Local != addr || r.From.QPN != umad.QPN {
				t.Fatalf("from %+v", r.From)
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		// The kernel answers itself, or nobody does.
		r, err := asks.Call(t.Context(), to, get(c.class, c.version), 100*time.Millisecond, 1)
		if err == nil && r.MAD.Status() == 0x1200 || err != nil && !errors.Is(err, umad.ErrTimeout) {
			t.Errorf("without an agent: %v, %v", r, err)
		}
		t.Logf("class %#x without an agent: %v", c.class, err)
	}
	if c := p.Counters(); c.Sent < 160 || c.Received < 160 || c.Malformed+c.Spoofed+c.QueueFull != 0 {
		t.Errorf("%+v", c)
	}
}

// TestMADErrors checks what the kernel refuses, and calls that end otherwise than by an answer.
func TestMADErrors(t *testing.T) {
	p, addr := madPort(t)
	for _, c := range []struct {
		class uint8
		want  error
	}{{umad.ClassCM, unix.EBUSY}, {0x32, unix.EOPNOTSUPP}, {0x50, unix.EINVAL}, {0, unix.EINVAL}, {1, unix.EBUSY}} {
		version := uint8(1)
		if c.class == umad.ClassCM {
			version = 2
		}
		a, err := p.Register(umad.Registration{Class: c.class, ClassVersion: version, Methods: []uint8{umad.MethodSend}})
		if !errors.Is(err, c.want) {
			t.Errorf("class %#x: %v, want %v", c.class, err, c.want)
		}
		if err == nil {
			_ = a.Close()
		}
	}
	a := must(p.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}))(t)
	if b, err := p.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}); !errors.Is(err, unix.EBUSY) {
		t.Error(b, err)
	}
	foreign := netip.MustParseAddr("203.0.113.5")
	for name, c := range map[string]struct {
		to   umad.Address
		want error
	}{
		"a foreign address": {umad.Address{Local: foreign, Remote: addr}, unix.EADDRNOTAVAIL},
		"a Q_Key":           {umad.Address{Local: addr, Remote: addr, QKey: 7}, unix.EOPNOTSUPP},
		"a QP number":       {umad.Address{Local: addr, Remote: addr, QPN: 1 << 24}, unix.EINVAL},
		"a flow label":      {umad.Address{Local: addr, Remote: addr, FlowLabel: 1 << 20}, unix.EINVAL},
		"two families":      {umad.Address{Local: addr, Remote: foreign}, unix.EINVAL},
	} {
		if err := a.Send(&c.to, get(9, 1)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	far := &umad.Address{Local: addr, Remote: netip.MustParseAddr("2001:db8::1")}
	if err := a.Send(far, get(9, 1)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without a route: %v", err)
	}
	silent := &umad.Address{Local: addr, Remote: addr}
	begin := time.Now()
	if _, err := a.Call(t.Context(), silent, get(9, 1), 150*time.Millisecond, 2); !errors.Is(err, umad.ErrTimeout) {
		t.Error(err)
	}
	if took := time.Since(begin); took < 400*time.Millisecond || took > 5*time.Second {
		t.Errorf("three attempts of 150 ms took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := a.Call(ctx, silent, get(9, 1), time.Minute, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	go func() { time.Sleep(100 * time.Millisecond); _ = a.Close() }()
	if _, err := a.Call(t.Context(), silent, get(9, 1), time.Minute, 0); !errors.Is(err, umad.ErrClosed) {
		t.Error(err)
	}
	if err := a.Send(silent, get(9, 1)); !errors.Is(err, umad.ErrClosed) {
		t.Error(err)
	}
}

// TestMADOverIPv4 sends requests over IPv4: they arrive, but the kernel does not pass answers on.
func TestMADOverIPv4(t *testing.T) {
	p, _ := madPort(t)
	addrs := deviceAddrs(t)
	i := slices.IndexFunc(addrs, netip.Addr.Is4)
	if i < 0 {
		t.Fatal("the device has no address of IPv4")
	}
	addr := addrs[i]
	got := make(chan umad.Address, 10)
	handler := func(r *umad.Received) { got <- r.From }
	server := must(p.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}, Handler: handler}))(t)
	defer server.Close()
	asks := must(p.Register(umad.Registration{}))(t)
	defer asks.Close()
	to := &umad.Address{Local: addr, Remote: addr}
	_, err := asks.Call(t.Context(), to, get(9, 1), 100*time.Millisecond, 1)
	if !errors.Is(err, umad.ErrTimeout) || !errors.Is(err, unix.ETIMEDOUT) || !strings.Contains(err.Error(), "IPv4") {
		t.Error(err)
	}
	for range 2 {
		select {
		case from := <-got:
			if from.Local != addr || from.Remote != addr {
				t.Errorf("from %+v", from)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a request is missing")
		}
	}
}

// removeCommand is the environment variable with a command that removes the test's device.
const removeCommand = "VERBENA_TEST_REMOVE"

// TestMADRemoval removes the device while agents wait.
func TestMADRemoval(t *testing.T) {
	command := os.Getenv(removeCommand)
	if command == "" {
		t.Skip(removeCommand + " has no command that removes the device")
	}
	addr := deviceAddrs(t)[0]
	vctx := opened(t)
	dev := vctx.Device()
	vctx.Close()
	p := must(umad.Open(dev))(t)
	a := must(p.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}))(t)
	to := &umad.Address{Local: addr, Remote: addr}
	ended := make(chan error, 2)
	go func() {
		_, err := a.Recv(context.Background())
		ended <- err
	}()
	go func() {
		_, err := a.Call(context.Background(), to, get(10, 1), time.Minute, 0)
		ended <- err
	}()
	time.Sleep(time.Second)
	if out, err := exec.Command("timeout", "20", "sh", "-c", command).CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
	gone := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "removed") {
			t.Errorf("%s: %v, want ENODEV", what, err)
		}
	}
	for range 2 {
		select {
		case err := <-ended:
			gone("a call in progress", err)
		case <-time.After(20 * time.Second):
			t.Fatal("a call does not end")
		}
	}
	gone("Send", a.Send(to, get(9, 1)))
	_, err := p.Register(umad.Registration{})
	gone("Register", err)
	gone("Agent.Close", a.Close())
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if q, err := umad.Open(dev); err == nil {
		t.Error("the device can be opened")
		_ = q.Close()
	}
}

// TestMADAgents registers as many agents as the kernel permits, and opens and closes ports without a leak.
func TestMADAgents(t *testing.T) {
	p, _ := madPort(t)
	var list []*umad.Agent
	for {
		a, err := p.Register(umad.Registration{})
		if err != nil {
			if !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "32") {
				t.Error(err)
			}
			break
		}
		if list = append(list, a); len(list) > 100 {
			t.Fatal("100 agents")
		}
	}
	t.Logf("%d agents", len(list))
	for _, a := range list {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	vctx := opened(t)
	dev := vctx.Device()
	vctx.Close()
	other := func() {
		q := must(umad.Open(dev))(t)
		a := must(q.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}))(t)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	_ = p.Close()
	other()
	before := descriptors(t)
	for range 200 {
		other()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors were open, and %d are after 200 rounds", before, after)
	}
}

// TestMADRights opens QP 1 without the right, or of a device that has none. It is for a device of iWARP, or another
// user than root.
func TestMADRights(t *testing.T) {
	if os.Getenv(hw.TestOwn) != "" {
		t.Skip("no file of the kernel has QP 1 of the software device")
	}
	vctx := opened(t)
	defer vctx.Close()
	dev := vctx.Device()
	p, err := umad.Open(dev)
	switch {
	case dev.TransportType() == verbs.TransportIWARP:
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%v, want EOPNOTSUPP", err)
		}
	case os.Geteuid() != 0:
		if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "root") {
			t.Errorf("%v, want EACCES", err)
		}
	case err == nil:
		_ = p.Close()
	default:
		t.Error(err)
	}
	t.Log(err)
}
