package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	namespace "github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// twoZones makes the interfaces one and two, which both have fe80::1, and their peers farone and fartwo with fe80::2,
// and returns the devices of the first and of the last two, which device makes.
func twoZones(t *testing.T, device func(*testing.T, netip.Addr) *verbs.Device) (near, far *Host) {
	t.Helper()
	hosts := map[string][]*verbs.Device{}
	for _, zone := range []string{"one", "two"} {
		for _, line := range []string{
			"link add " + zone + " type veth peer name far" + zone,
			"link set " + zone + " addrgenmode none", "link set far" + zone + " addrgenmode none",
			"addr add fe80::1/64 dev " + zone + " nodad", "addr add fe80::2/64 dev far" + zone + " nodad",
			"link set " + zone + " up", "link set far" + zone + " up",
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Skipf("ip %s: %v: %s", line, err, out)
			}
		}
		for end, addr := range map[string]string{"": "fe80::1%", "far": "fe80::2%"} {
			hosts[end] = append(hosts[end], device(t, netip.MustParseAddr(addr+end+zone)))
		}
	}
	return NewHost(hosts[""]...), NewHost(hosts["far"]...)
}

func roceDevice(t *testing.T, a netip.Addr) *verbs.Device {
	t.Helper()
	dev, err := soft.New(soft.Config{Name: "vrb_" + a.Zone(), Addrs: []netip.Addr{a}})
	if err != nil {
		t.Fatal(err)
	}
	return dev.Device
}

func iwarpDevice(t *testing.T, a netip.Addr) *verbs.Device {
	t.Helper()
	devices, err := driver.Streams()
	for _, d := range devices {
		if dev := driver.NewDevice(d); dev.Name() == "vrw_"+a.Zone() {
			return dev
		}
	}
	t.Fatalf("%s: no device in %v: %v", a.Zone(), devices, err)
	return nil
}

// Two interfaces may have the same link-local address: its zone decides which device an ID is bound to, whether the ID
// is bound to the address or finds it on the way to a peer.
func TestSameLinkLocalAddressTwice(t *testing.T) {
	namespace.NeedsIP(t)
	if !namespace.Run(t) {
		return
	}
	h, far := twoZones(t, roceDevice)
	own := netip.MustParseAddr("fe80::1")
	for _, zone := range []string{"one", "two"} {
		at := netip.AddrPortFrom(own.WithZone(zone), 0)
		to := netip.AddrPortFrom(netip.MustParseAddr("fe80::2").WithZone(zone), 7)
		for what, bind := range map[string]func(id *ID) error{
			"bound":                      func(id *ID) error { return id.BindAddr(at) },
			"bound on the way to a peer": func(id *ID) error { return id.startResolveForTest(at, to) },
			"on the way to a peer":       func(id *ID) error { return id.startResolveForTest(netip.AddrPort{}, to) },
		} {
			id, err := h.CreateID(nil, PSTCP, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := bind(id); err != nil {
				t.Errorf("%s, %s: %v", what, zone, err)
			} else if name := id.Verbs().Device().Name(); name != "vrb_"+zone {
				t.Errorf("%s, %s: device %s", what, zone, name)
			}
			if err := id.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	peer := netip.MustParseAddr("fe80::2%one")
	for i, d := range h.devices {
		choice, err := d.ctx.SelectGID(1, peer)
		if i == 0 && (err != nil || choice.GID.Addr() != own) || i == 1 && !errors.Is(err, verbs.ENODATA) {
			t.Errorf("%v for %v: %v, %v", d.vdev, peer, choice, err)
		}
	}
	for _, h := range []*Host{h, far} {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Listeners on one port of the same link-local address of two interfaces each get the clients of their interface, and
// the connection's address has its zone.
func TestSameLinkLocalAddressListensTwice(t *testing.T) {
	namespace.NeedsIP(t)
	if !namespace.Run(t) {
		return
	}
	near, far := twoZones(t, roceDevice)
	listenTwice(t, near, far, "vrb_")
}

func TestSameLinkLocalAddressOverTCP(t *testing.T) {
	namespace.NeedsIP(t)
	if !namespace.Run(t) {
		return
	}
	near, far := twoZones(t, iwarpDevice)
	listenTwice(t, near, far, "vrw_")
}

// listenTwice connects both interfaces to listeners on each address, and to one on all.
func listenTwice(t *testing.T, near, far *Host, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, listen := range []string{"fe80::1%one fe80::1%two", "::"} {
		listeners := map[string]*Listener{}
		for i, at := range strings.Fields(listen) {
			l, err := Listen(ctx, "["+at+"]:7471", &Options{Host: near, QP: oneInlineByte})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			listeners[[]string{"one", "two"}[i]] = l
		}
		for _, zone := range []string{"one", "two"} {
			l := listeners[zone]
			if l == nil {
				l = listeners["one"]
			}
			checkZone(ctx, t, l, far, prefix, zone)
		}
		for _, l := range listeners {
			l.Close()
		}
	}
	for _, h := range []*Host{near, far} {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// checkZone connects from the far end of an interface.
func checkZone(ctx context.Context, t *testing.T, l *Listener, far *Host, prefix, zone string) {
	t.Helper()
	accepted := make(chan *ID, 1)
	go func() {
		id, err := l.Accept(ctx)
		if err != nil {
			t.Errorf("accept, %s: %v", zone, err)
		}
		accepted <- id
	}()
	c, err := Dial(ctx, "[fe80::1%far"+zone+"]:7471", &Options{Host: far, QP: oneInlineByte})
	if err != nil {
		t.Fatalf("dial, %s: %v", zone, err)
	}
	defer c.Close()
	if name := c.Verbs().Device().Name(); name != prefix+"far"+zone {
		t.Errorf("client, %s: device %s", zone, name)
	}
	id := <-accepted
	if id == nil {
		return
	}
	defer id.Close()
	if name, local := id.Verbs().Device().Name(), id.LocalAddr().Addr(); name != prefix+zone || local.Zone() != zone {
		t.Errorf("server, %s: device %s, address %v", zone, name, local)
	}
	// A message reaches the device too, not that of the other interface with the address.
	mr, err := id.RegMsgs(make([]byte, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close()
	err = errors.Join(id.PostRecv(1, mr.Bytes(), mr),
		c.PostSend(1, []byte(zone)[:1], nil, verbs.SendInline|verbs.SendSignaled))
	if err != nil {
		t.Fatal(err)
	}
	sent, err := c.GetSendComp(ctx)
	if err = errors.Join(err, sent.Err()); err != nil {
		t.Fatalf("message, %s: %v", zone, err)
	}
	if _, err := id.GetRecvComp(ctx); err != nil || mr.Bytes()[0] != zone[0] {
		t.Errorf("message, %s: %v, %q", zone, err, mr.Bytes())
	}
}

var oneInlineByte = verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 1}

// startResolveForTest resolves an address without the wait for the link address of the peer, who does not exist.
func (id *ID) startResolveForTest(src, dst netip.AddrPort) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.startResolve("resolve_addr", src, dst); err != nil {
		return err
	}
	id.state = stAddrBound
	return id.resolve()
}
