package soft

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/verbs"
)

// inMemory makes a device on a network in memory, with room for frames of Ethernet.
func inMemory(t testing.TB, mtu int) *Device {
	t.Helper()
	d, err := New(softlink.On(Config{Addrs: addrs("10.0.0.1")}, softlink.Links{
		Open: mem.NewFabric(mem.Config{}).Open, MTU: mtu,
		Raw: mem.NewFabric(mem.Config{}).OpenRaw,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func opened(t testing.TB, d *Device) *verbs.Context {
	t.Helper()
	c, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMTUOfTheLink: the path MTU of a port follows from the packets that the link carries.
func TestMTUOfTheLink(t *testing.T) {
	for mtu, want := range map[int]verbs.MTU{0: verbs.MTU4096, 4200: verbs.MTU4096, 4100: verbs.MTU2048,
		1200: verbs.MTU1024, 400: verbs.MTU256} {
		c := opened(t, inMemory(t, mtu))
		if a, err := c.QueryPort(1); err != nil || a.ActiveMTU != want {
			t.Errorf("packets of %d bytes: %v, %v, want %v", mtu, a.ActiveMTU, err, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCountersBeginWithTheFirstContext: the counters of violations are those since the device was opened.
func TestCountersBeginWithTheFirstContext(t *testing.T) {
	d := inMemory(t, 0)
	for range 2 {
		a := opened(t, d)
		if p, err := a.QueryPort(1); err != nil || p.BadPKeyCntr != 0 || p.QKeyViolCntr != 0 {
			t.Errorf("%d and %d violations, %v", p.BadPKeyCntr, p.QKeyViolCntr, err)
		}
		d.dev.BadPKey(1)
		d.dev.BadQKey(1)
		b := opened(t, d) // another context keeps them
		if p, err := b.QueryPort(1); err != nil || p.BadPKeyCntr != 1 || p.QKeyViolCntr != 1 {
			t.Errorf("%d and %d violations, %v, want 1 each", p.BadPKeyCntr, p.QKeyViolCntr, err)
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestClosedDeviceDoesNotFollow: a device without contexts neither has an engine nor follows its interface.
func TestClosedDeviceDoesNotFollow(t *testing.T) {
	d := inMemory(t, 0).dev
	c, err := d.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	was := d.at(1)
	if d.refresh(); d.at(1) == was || d.running() == nil {
		t.Error("an open device does not look at its interface")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	was = d.at(1)
	if d.refresh(); d.at(1) != was || d.running() != nil {
		t.Errorf("a closed device looks at its interface; engine %p", d.running())
	}
}

// TestGUIDOfTheInterface: the GUID of a device of an interface is that of the hardware, not one derived from names.
func TestGUIDOfTheInterface(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(i net.Interface) bool {
		return len(i.HardwareAddr) == 6 && i.Flags&net.FlagLoopback == 0
	})
	if i < 0 {
		t.Skip("no interface with a MAC address")
	}
	ifi := all[i]
	want := eui64([6]byte(ifi.HardwareAddr))
	if got := guidOf(&spec{name: "x", iface: ifi.Name}); got != want {
		t.Errorf("%v, want %v of %s", got, want, ifi.Name)
	}
	if got := guidOf(&spec{name: "x", iface: ifi.Name, addrs: addrs("10.0.0.1")}); got == want {
		t.Error("a device of an address, of which an interface may have several, has the GUID of the interface")
	}
}

// TestPortOfASpec: a port has the addresses of its number, and the interface of the first one.
func TestPortOfASpec(t *testing.T) {
	s := &spec{name: "x", iface: "a", addrs: addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
		on: []string{"a", "b", "c", "c"}, onPort: []uint8{1, 1, 2, 2}}
	for num, want := range map[uint8]spec{
		1: {iface: "a", addrs: addrs("10.0.0.1", "10.0.0.2"), on: []string{"a", "b"}},
		2: {iface: "c", addrs: addrs("10.0.0.3", "10.0.0.4")},
	} {
		if p := s.port(num); p.name != "x" || p.iface != want.iface || !slices.Equal(p.addrs, want.addrs) ||
			!slices.Equal(p.on, want.on) {
			t.Errorf("port %d: %+v, want %+v", num, p, want)
		}
	}
}

// TestDevicesOfStreams: the devices over TCP are RNICs of the transport iWARP, with names of their own, and lack
// what needs UDP.
func TestDevicesOfStreams(t *testing.T) {
	if !streamsSupported {
		t.Skip("this system has none")
	}
	t.Setenv(envDevices, "vrb_one=127.0.0.1,two=127.0.0.2")
	list, err := driver.Streams()
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, want := range []string{"vrw_one", "vrw_two"} {
		info := list[i].Info()
		if info.Name != want || info.NodeType != verbs.NodeRNIC || info.Transport != verbs.TransportIWARP {
			t.Errorf("%+v", info)
		}
	}
	if info := inMemory(t, 0).dev.Info(); info.NodeType != verbs.NodeCA || info.Transport != verbs.TransportIB {
		t.Errorf("a device over UDP: %+v", info)
	}
}

// TestCapabilities: the device has each capability that its operations need, and no other one.
func TestCapabilities(t *testing.T) {
	c := opened(t, inMemory(t, 0))
	defer c.Close()
	a, err := c.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	const want = verbs.DeviceResizeMaxWR | verbs.DeviceBadPKeyCntr | verbs.DeviceBadQKeyCntr | verbs.DeviceAutoPathMig |
		verbs.DeviceUDAVPortEnforce | verbs.DeviceCurrQPStateMod | verbs.DevicePortActiveEvent |
		verbs.DeviceSysImageGUID | verbs.DeviceRCRNRNAKGen | verbs.DeviceSRQResize | verbs.DeviceXRC |
		verbs.DeviceMemWindow | verbs.DeviceMemMgtExtensions | verbs.DeviceMemWindowType2B | verbs.DeviceUDIPCsum |
		verbs.DeviceManagedFlowSteering | verbs.DeviceRawIPCsum | verbs.DeviceFlushGlobal | verbs.DeviceAtomicWrite |
		verbs.DevicePCIWriteEndPadding | verbs.DeviceRawScatterFCS
	if got := a.DeviceCapFlags; got != want {
		t.Errorf("%v: too many %v, missing %v", got, got&^want, want&^got)
	}
	types := uint32(1<<verbs.QPTypeRC | 1<<verbs.QPTypeUC | 1<<verbs.QPTypeUD | 1<<verbs.QPTypeXRCSend)
	if got := a.PacketPacingCaps.SupportedQPTs &^ (1 << verbs.QPTypeRawPacket); got != types {
		t.Errorf("rate limits of QP types %b, want %b", got, types)
	}
}

// TestIndirectionTablesAreLimited: the device has as many indirection tables as it says, and those that were
// destroyed make room.
func TestIndirectionTablesAreLimited(t *testing.T) {
	d := inMemory(t, 0).dev
	dc, err := d.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dc.Close()
	c := dc.(*deviceContext)
	d.rawUse.tables.Store(maxIndTables - 1)
	last, err := c.CreateRWQIndTable(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.CreateRWQIndTable(nil); !errors.Is(err, verbs.ENOMEM) {
			t.Errorf("one too many: %v, want ENOMEM", err)
		}
	}
	if err := last.Destroy(); err != nil {
		t.Error(err)
	}
	next, err := c.CreateRWQIndTable(nil)
	if err != nil || next.Num() == last.Num() {
		t.Errorf("after one was destroyed: %v", err)
	}
	if n := d.rawUse.tables.Load(); n != maxIndTables {
		t.Errorf("%d tables count, want %d", n, maxIndTables)
	}
}

// TestStaleStateOfAWorkQueue: a change from a state that the queue has left by itself fails, and changes nothing.
func TestStaleStateOfAWorkQueue(t *testing.T) {
	c := opened(t, inMemory(t, 0))
	defer c.Close()
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	cq, err := c.CreateCQ(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	q, err := c.CreateWQ(&verbs.WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: pd, CQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	drv := driver.Of[*wq](q)
	if err := drv.Modify(verbs.WQSReady, verbs.WQSReset, 0, 0); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("from a state that the queue is not in: %v, want EINVAL", err)
	}
	if err := drv.Modify(verbs.WQSReset, verbs.WQSReady, 0, 0); err != nil || drv.State() != verbs.WQSReady {
		t.Errorf("%v, the queue is in %v", err, drv.State())
	}
}

// A sharedLink has the parts of a link that several processes share.
type sharedLink struct {
	link.Link
	err    error // of ClaimService
	claims int
	screen link.Screen
}

func (l *sharedLink) Capabilities() link.Capabilities {
	return link.Capabilities{Shared: l, Screener: l}
}
func (l *sharedLink) CommIDs() (uint32, int)  { return 0xabc00000, 12 }
func (l *sharedLink) SetScreen(s link.Screen) { l.screen = s }

func (l *sharedLink) ClaimService(uint64, netip.Addr) (func(), error) {
	l.claims++
	return func() { l.claims-- }, l.err
}

type anyScreen struct{ link.Screen }

// TestQP1OfASharedLink: connection management gets claims, IDs and screens from a link that processes share, and does
// without them on one that has none.
func TestQP1OfASharedLink(t *testing.T) {
	for what, l := range map[string]*sharedLink{"shared": {}, "not shared": nil} {
		fabric := mem.NewFabric(mem.Config{})
		d, err := New(softlink.On(Config{Addrs: addrs("10.0.0.1")}, softlink.Links{
			Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
				inner, err := fabric.Open(addrs, ports)
				if l == nil || err != nil {
					return inner, err
				}
				l.Link = inner
				return l, nil
			}}))
		if err != nil {
			t.Fatal(err)
		}
		p, end := withQP1(t, d)
		p.Screen(anyScreen{})
		prefix, bits := p.CommIDs()
		release, err := p.ClaimService(7, netip.Addr{})
		if err != nil || (bits == 12) != (l != nil) || (prefix == 0xabc00000) != (l != nil) {
			t.Errorf("%s: %v, %#x with %d bits", what, err, prefix, bits)
		}
		if l != nil && (l.claims != 1 || l.screen != anyScreen{}) {
			t.Errorf("%d claims, the screen is %v", l.claims, l.screen)
		}
		if release(); l != nil && l.claims != 0 {
			t.Errorf("%d claims are left", l.claims)
		}
		end()
	}
}

// withQP1 makes QP 1 of a device. The function closes it.
func withQP1(t *testing.T, d *Device) (p *pd, end func()) {
	t.Helper()
	c := opened(t, d)
	domain, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := gsi.CreateQP(domain, &verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	return driver.Of[*pd](domain), func() {
		if err := errors.Join(qp.Close(), cq.Close(), domain.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestV_FL_14_HeadersAroundESP: an action takes over all fields of the headers that it puts around ESP, and keeps them
// while others change.
func TestV_FL_14_HeadersAroundESP(t *testing.T) {
	four, six := [4]byte{10, 0, 0, 1}, [16]byte{0xfd, 15: 1}
	to4, to6 := [4]byte{10, 0, 0, 2}, [16]byte{0xfd, 15: 2}
	for _, c := range []struct {
		list []verbs.FlowSpec
		want raw.ESPEncap
	}{
		{[]verbs.FlowSpec{verbs.FlowSpecIPv4{Val: verbs.FlowIPv4Filter{SrcIP: four, DstIP: to4}}},
			raw.ESPEncap{IP: 4, Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 0, 2}}},
		{[]verbs.FlowSpec{verbs.FlowSpecIPv4Ext{Val: verbs.FlowIPv4ExtFilter{SrcIP: four, DstIP: to4, TOS: 3, TTL: 4,
			Flags: 2}}},
			raw.ESPEncap{IP: 4, Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 0, 2}, Class: 3, TTL: 4, Flags: 2}},
		{[]verbs.FlowSpec{verbs.FlowSpecIPv6{Val: verbs.FlowIPv6Filter{SrcIP: six, DstIP: to6, TrafficClass: 5,
			HopLimit: 6, FlowLabel: 7}}, verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{SrcPort: 8, DstPort: 9}}},
			raw.ESPEncap{IP: 6, Src: six, Dst: to6, Class: 5, TTL: 6, FlowLabel: 7, UDP: true, SrcPort: 8, DstPort: 9}},
	} {
		a := &flowAction{esp: new(raw.ESP)}
		if err := a.modify(&verbs.FlowActionESPAttr{Encap: c.list}); err != nil || a.esp.Encap != c.want {
			t.Errorf("%+v, %v, want %+v", a.esp.Encap, err, c.want)
		}
		if err := a.modify(&verbs.FlowActionESPAttr{}); err != nil || a.esp.Encap != c.want {
			t.Errorf("%+v after a change of nothing, %v", a.esp.Encap, err)
		}
	}
}

// TestSnapLenLimits: the least and the largest length of a captured packet count, and no other ones beyond.
func TestSnapLenLimits(t *testing.T) {
	for value, want := range map[int]int{pcap.MinSnap: pcap.MinSnap, pcap.MinSnap - 1: 0, pcap.MaxSnap: pcap.MaxSnap,
		pcap.MaxSnap + 1: 0, 0: 0} {
		t.Setenv(envSnapLen, strconv.Itoa(value))
		if got := snapLen(); got != want {
			t.Errorf("%d: %d, want %d", value, got, want)
		}
	}
}

// TestFaultsHaveASeed: faults without a seed have seed 1, so that runs are alike, and a chance is less than 1.
func TestFaultsHaveASeed(t *testing.T) {
	if cfg, err := parseFaults("loss=0.999"); err != nil || cfg.Seed != 1 || cfg.Send.Loss != 0.999 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, bad := range []string{"loss=1", "loss=1.5", "corrupt=2", "mark=NaN"} {
		if cfg, err := parseFaults(bad); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%s: %+v, %v, want EINVAL", bad, cfg, err)
		}
	}
}

// TestClosedDeviceHasNoWork: a device without contexts needs no Step, and has no counters.
func TestClosedDeviceHasNoWork(t *testing.T) {
	d, err := New(softlink.On(Config{Addrs: addrs("10.0.0.1"), Manual: true},
		softlink.Links{Open: mem.NewFabric(mem.Config{}).Open}))
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if at := d.NextDeadline(); at != engine.Never || d.Step() {
			t.Errorf("%s: a Step is needed at %d", when, at)
		}
		if list := d.Counters(); list != nil {
			t.Errorf("%s: counters %v", when, list)
		}
	}
	check("before Open")
	c := opened(t, d)
	if list := d.Counters(); list == nil {
		t.Error("no counters")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	check("after Close")
}

// TestContextClosesOnce: the second Close of a context does not close those of others.
func TestContextClosesOnce(t *testing.T) {
	d := inMemory(t, 0).dev
	var list []verbs.DriverContext
	for range 2 {
		c, err := d.Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	for range 2 {
		if err := list[0].Close(); err != nil {
			t.Error(err)
		}
		if d.running() == nil {
			t.Fatal("the device has closed with a context open")
		}
	}
	if err := list[1].Close(); err != nil || d.running() != nil {
		t.Errorf("the device is open after the last Close: %v", err)
	}
}

// TestDeviceWithoutAddress: the first QP of a device whose interface has no address is refused, with the name of the
// interface.
func TestDeviceWithoutAddress(t *testing.T) {
	d := newDevice(spec{name: "vrb_x", iface: "x0"})
	d.ifaceState = func(*spec) ifaceState { return ifaceState{iface: "x0", up: true, mtu: 1500} }
	d.virtual = false
	c, err := driver.NewDevice(d).Open()
	if err != nil {
		t.Fatal(err)
	}
	pd, cq := made(c.AllocPD())(t), made(c.CreateCQ(1, nil))(t)
	defer func() {
		if err := errors.Join(cq.Close(), pd.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}()
	_, err = pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq})
	if !errors.Is(err, eaddrnotavail) || !strings.Contains(err.Error(), "interface x0: no address") {
		t.Errorf("%v", err)
	}
}

// TestPortsAreLimited: New refuses more ports than a device can have, and ports without an address.
func TestPortsAreLimited(t *testing.T) {
	open := softlink.Links{Open: mem.NewFabric(mem.Config{}).Open}
	ports := func(n int) (list [][]netip.Addr) {
		for i := range n {
			list = append(list, []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)})})
		}
		return list
	}
	for more, ok := range map[int]bool{0: true, 1: true, maxPorts - 1: true, maxPorts: false} {
		d, err := New(softlink.On(Config{Addrs: addrs("10.0.0.1"), MorePorts: ports(more)}, open))
		if ok != (err == nil) || err != nil && !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%d ports: %v", 1+more, err)
		}
		if err == nil && len(d.dev.ports) != 1+more {
			t.Errorf("%d ports, want %d", len(d.dev.ports), 1+more)
		}
	}
	_, err := New(softlink.On(Config{Addrs: addrs("10.0.0.1"), MorePorts: [][]netip.Addr{nil}}, open))
	if !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a port without an address: %v", err)
	}
}

// TestRawLimits: a RAW_PACKET QP takes the largest inline data and TSO header that the device has, and nothing larger.
func TestRawLimits(t *testing.T) {
	for _, more := range []uint32{0, 1} {
		for _, init := range []*verbs.QPInitAttr{
			{Cap: verbs.QPCap{MaxInlineData: maxInline + more}}, {MaxTSOHeader: maxTSOHeader + uint16(more)},
		} {
			if err := checkRaw(init); (err != nil) != (more > 0) || err != nil && !errors.Is(err, verbs.EINVAL) {
				t.Errorf("%d bytes of inline data, a TSO header of %d: %v", init.Cap.MaxInlineData, init.MaxTSOHeader, err)
			}
		}
	}
}
