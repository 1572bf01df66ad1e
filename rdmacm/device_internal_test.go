package rdmacm

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// The two lists of the queue are never the same: events that are added while others are handled do not overwrite
// them.
func TestEventQueueKeepsWhatIsHandled(t *testing.T) {
	var q eventQueue
	next, want := 1, 1
	add := func(n int) {
		for range n {
			q.push(cm.Event{Type: cm.EventType(next)})
			next++
		}
	}
	for round := range 50 {
		add(round % 4)
		events := q.take()
		add(round % 3) // meanwhile
		for i := range events {
			if got := int(events[i].Type); got != want {
				t.Fatalf("round %d: event %d came instead of %d", round, got, want)
			}
			want++
		}
		if events != nil {
			q.giveBack(events)
		}
		if round%5 == 0 && q.take() != nil {
			want = next // those are taken and never handled
		}
	}
}

// card is a device on a network interface.
//
//conformance:fake
type card struct {
	verbs.DriverDevice
	on string
}

func (c *card) Info() verbs.DriverInfo {
	info := c.DriverDevice.Info()
	info.Interface = c.on
	return info
}

// An iWARP adapter has the addresses of its network interface at the only place of its table.
func TestAddressesOfAnIWARPAdapter(t *testing.T) {
	h, d := startedHost(t)
	first := gidPlace{firstPort, 0}
	for _, c := range []struct {
		on, addr string
		want     gidPlace
	}{
		{"card7", "fe80::1%card7", first}, {"card7", "fe80::1%card8", noPlace}, {"", "fe80::1%card7", noPlace},
		{"", "198.18.0.1", noPlace},
	} {
		vdev := driver.NewDevice(&card{driver.Of[verbs.DriverDevice](d.vdev), c.on})
		adapter := &device{host: h, vdev: vdev, ctx: d.ctx, kernel: true, iwarp: true}
		if got := adapter.find(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("%s on interface %q: place %v, want %v", c.addr, c.on, got, c.want)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A device that has gone is closed and forgotten when nothing uses it any more.
func TestDeviceThatHasGoneIsForgotten(t *testing.T) {
	h, d := startedHost(t)
	h.list = func() ([]*verbs.Device, error) { return nil, nil }
	h.mu.Lock()
	d.retire()
	d.gone = true
	d.busy = 1
	d.retire()
	d.busy = 0
	d.users[nil] = struct{}{}
	d.retire()
	delete(d.users, nil)
	if len(h.devices) != 1 {
		t.Errorf("%d devices while it is in use", len(h.devices))
	}
	for range 2 { // once more has no effect
		if d.retire(); len(h.devices) != 0 {
			t.Errorf("%d devices afterwards", len(h.devices))
		}
	}
	h.mu.Unlock()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := d.ctx.QueryDevice(); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the device is still open after 20 s")
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// twice is a device that has each address at two places of its table.
//
//conformance:fake
type twice struct{ verbs.DriverDevice }

func (d twice) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return twiceContext{c}, err
}

//conformance:fake
type twiceContext struct{ verbs.DriverContext }

func (c twiceContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	table, err := c.DriverContext.GIDTable(port)
	return slices.Concat(table, table), err
}

// An address that is there twice has the last place.
func TestAddressThatIsThereTwice(t *testing.T) {
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", fuzzHere)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(driver.NewDevice(twice{driver.Of[verbs.DriverDevice](dev)}))
	if _, err := h.Devices(); err != nil {
		t.Fatal(err)
	}
	if got, want := h.devices[0].find(fuzzHere), (gidPlace{firstPort, 3}); got != want { // of two entries twice
		t.Errorf("place %v, want %v", got, want)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// shared is a device each of whose ports has the addresses of the first.
//
//conformance:fake
type shared struct{ verbs.DriverDevice }

func (d shared) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return sharedContext{c}, err
}

//conformance:fake
type sharedContext struct{ verbs.DriverContext }

func (c sharedContext) GIDTable(uint8) ([]verbs.GIDEntry, error) {
	return c.DriverContext.GIDTable(firstPort)
}

// An address that several ports have is that of the port which is asked for, else that of the last one.
func TestAddressOfSeveralPorts(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	ports, err := fab.OpenPorts("a", []netip.Addr{fuzzHere}, []netip.Addr{fuzzThere})
	if err != nil {
		t.Fatal(err)
	}
	defer ports.Close()
	ctx, err := driver.NewDevice(shared{driver.Of[verbs.DriverDevice](ports.Device())}).Open()
	if err != nil {
		t.Fatal(err)
	}
	d := &device{ctx: ctx}
	for asked, want := range map[uint8]uint8{0: 2, 1: 1, 2: 2} {
		if got := d.findOn(asked, fuzzHere); got.port != want || got == noPlace {
			t.Errorf("port %d: place %v, want port %d", asked, got, want)
		}
	}
	if got := d.find(fuzzHere); got.port != 2 {
		t.Errorf("without a port: place %v, want port 2", got)
	}
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
}

// The key 0 is the default partition, or the first of the table; an empty entry is none.
func TestPartitionsOfAPort(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true, PKeys: []uint16{0xffff, 1, 2}})
	ctx, err := fab.Open("a", fuzzHere)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{ctx: ctx}
	for _, c := range []struct {
		table []uint16
		key   uint16
		index uint16
		found uint16 // 0: none
	}{
		{[]uint16{0, 0x8003, 0xffff}, 0, 2, 0xffff}, {[]uint16{0, 0x8003, 0x0004}, 0, 1, 0x8003},
		{[]uint16{0, 0x8003, 0x7fff}, 0, 2, 0x7fff}, {[]uint16{0, 0x8003, 0x0003}, 0x0003, 2, 0x0003},
		{[]uint16{0, 0x8003}, 0x0003, 1, 0x8003}, {[]uint16{0, 0x8003}, 0x8004, 0, 0},
	} {
		if err := fab.SetPKeys(ctx, 1, c.table...); err != nil {
			t.Fatal(err)
		}
		if index, found, ok := d.partition(1, c.key); index != c.index || found != c.found || ok != (c.found != 0) {
			t.Errorf("%#x in %#x: entry %d, %#x, %v, want %d, %#x", c.key, c.table, index, found, ok, c.index, c.found)
		}
	}
	id := &ID{ps: PSTCP, binding: binding{sgid: gidPlace{1, 0}}}
	if err := fab.SetPKeys(ctx, 1, 0xffff, 0x8003, 0x8004); err != nil {
		t.Fatal(err)
	}
	id.mu.Lock()
	id.dev, id.pkey, id.path.PKey = d, 0x8003, 0x8004
	for _, route := range []bool{false, true} {
		id.haveRoute = route
		want := map[bool]uint16{false: 1, true: 2}[route] // the ID's own without a route
		if index, err := id.qpPKeyIndex("create_qp"); index != want || err != nil {
			t.Errorf("with a route %v: entry %d, want %d; %v", route, index, want, err)
		}
	}
	id.mu.Unlock()
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
}

// tabled is a device whose ports have a P_Key table of its own.
//
//conformance:fake
type tabled struct {
	verbs.DriverDevice
	keys []uint16
}

func (d tabled) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return tabledContext{c, d.keys}, err
}

//conformance:fake
type tabledContext struct {
	verbs.DriverContext
	keys []uint16
}

func (c tabledContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	attr, err := c.DriverContext.QueryPort(port)
	attr.PKeyTblLen = uint16(len(c.keys))
	return attr, err
}

func (c tabledContext) PKeyTable(uint8) ([]uint16, error) { return c.keys, nil }

// onTable is a device with a P_Key table.
func onTable(t *testing.T, keys ...uint16) *device {
	t.Helper()
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", fuzzHere)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := driver.NewDevice(tabled{driver.Of[verbs.DriverDevice](dev), keys}).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ctx.Close() })
	return &device{ctx: ctx}
}

// A port without table, and one that cannot be asked, is in the default partition only. Datagrams have no entry there.
func TestPortWithoutPartitions(t *testing.T) {
	for port, d := range map[uint8]*device{1: onTable(t), 77: onTable(t, 0x8003)} {
		for key, want := range map[uint16]bool{0: true, 0xffff: true, 0x7fff: false, 0x8003: false} {
			if index, found, ok := d.partition(port, key); index != 0 || found != 0xffff || ok != want {
				t.Errorf("port %d, %#x: entry %d, %#x, %v, want %v", port, key, index, found, ok, want)
			}
		}
		if key := d.pkeyOf(port, 0); key != 0 {
			t.Errorf("port %d: a datagram has the P_Key %#x", port, key)
		}
	}
}

// The first of several entries counts, for the other membership and for the key 0.
func TestFirstEntryOfAPartition(t *testing.T) {
	d := onTable(t, 0x8003, 0x8003, 0x8004)
	for _, key := range []uint16{0x8003, 0x0003, 0} {
		if index, found, ok := d.partition(1, key); index != 0 || found != 0x8003 || !ok {
			t.Errorf("%#x: entry %d, %#x, %v", key, index, found, ok)
		}
	}
}

// A device whose port cannot be asked for its MTU may have the largest one.
func TestPathMTUOfAClosedDevice(t *testing.T) {
	h, d := startedHost(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if m := d.mtuCode(fuzzHere); m != uint8(verbs.MTU4096) {
		t.Errorf("path MTU code %d, want %d", m, verbs.MTU4096)
	}
}

// placed is a device that has its addresses on each of some network interfaces.
//
//conformance:fake
type placed struct {
	verbs.DriverDevice
	on []string
}

func (d placed) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return placedContext{c, d.on}, err
}

//conformance:fake
type placedContext struct {
	verbs.DriverContext
	on []string
}

func (c placedContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	table, err := c.DriverContext.GIDTable(port)
	var all []verbs.GIDEntry
	for _, on := range c.on {
		for _, e := range table {
			e.NetDev = on
			all = append(all, e)
		}
	}
	return all, err
}

// onInterfaces is a device with an address on each of some network interfaces.
func onInterfaces(t *testing.T, local netip.Addr, on ...string) *device {
	t.Helper()
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", local)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := driver.NewDevice(placed{driver.Of[verbs.DriverDevice](dev), on}).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ctx.Close() })
	return &device{ctx: ctx}
}

// Of the places of an address that one counts which is on the interface of the zone, more than one of the port that is
// asked for; else the last one.
func TestPlaceOnTheInterfaceOfTheZone(t *testing.T) {
	local := netip.MustParseAddr("fe80::1")
	d := onInterfaces(t, local, "eth1", "eth2", "")
	for zone, want := range map[string]string{"eth1": "eth1", "eth2": "eth2", "": "", "eth9": ""} {
		for _, port := range []uint8{0, 1, 2} {
			at := d.findOn(port, local.WithZone(zone))
			if got := d.netDev(at); got != want || at == noPlace {
				t.Errorf("zone %q, port %d: %v on %q, want %q", zone, port, at, got, want)
			}
		}
	}
}

// Of devices with the same address that one has it which is on the interface of the zone, else the first that is there.
func TestOwnerOfAnAddressOfSeveralDevices(t *testing.T) {
	local := netip.MustParseAddr("fe80::1")
	var devices []*device
	for _, on := range []string{"eth1", "eth2", "eth3"} {
		devices = append(devices, onInterfaces(t, local, on))
	}
	for _, c := range []struct {
		gone int // -1: none
		zone string
		want int
	}{{-1, "eth1", 0}, {-1, "eth2", 1}, {-1, "eth3", 2}, {-1, "", 0}, {-1, "eth9", 0}, {0, "", 1}, {0, "eth9", 1}, {0,
		"eth3", 2}} {
		for i, d := range devices {
			d.gone = i == c.gone
		}
		if d, at := ownerOf(devices, local.WithZone(c.zone)); d != devices[c.want] || at == noPlace {
			t.Errorf("zone %q without device %d: %v of device %d, want %d", c.zone, c.gone, at, slices.Index(devices, d), c.want)
		}
	}
	if d, at := ownerOf(devices, fuzzHere); d != nil || at != noPlace {
		t.Errorf("the owner of another address is %v, %v", d, at)
	}
}
