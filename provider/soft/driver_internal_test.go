package soft

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/verbs"
)

func okay(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inMemoryPorts makes a device of two ports on a network in memory.
func inMemoryPorts(t *testing.T, first, second []netip.Addr) *Device {
	t.Helper()
	d, err := New(softlink.On(Config{Addrs: first, MorePorts: [][]netip.Addr{second}}, softlink.Links{
		Open: mem.NewFabric(mem.Config{}).Open, Raw: mem.NewFabric(mem.Config{}).OpenRaw}))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// domainOf opens a device, with a PD and a CQ. The function closes all of them.
func domainOf(t *testing.T, d *Device) (p *verbs.PD, cq *verbs.CQ, end func()) {
	t.Helper()
	c := opened(t, d)
	p, err := c.AllocPD()
	okay(t, err)
	cq, err = c.CreateCQ(8, nil)
	okay(t, err)
	return p, cq, func() { okay(t, errors.Join(cq.Close(), p.Close(), c.Close())) }
}

// TestPeerDeathsAreReported: each of those that watch learns of the death of a peer's process, until it stops.
func TestPeerDeathsAreReported(t *testing.T) {
	d := inMemory(t, 0)
	p, end := withQP1(t, d)
	defer end()
	var got [2][]gsi.PeerDeath
	var stop [2]func()
	for i := range got {
		stop[i] = p.WatchPeers(func(dead gsi.PeerDeath) { got[i] = append(got[i], dead) })
	}
	peer := netip.MustParseAddr("10.0.0.7")
	d.dev.watchers.peerDied(1, 2, peer, false)
	stop[0]()
	d.dev.watchers.peerDied(3, 4, peer, true)
	stop[1]()
	d.dev.watchers.peerDied(5, 6, peer, false)
	first := gsi.PeerDeath{QPN: 1, DestQPN: 2, Peer: peer}
	second := gsi.PeerDeath{QPN: 3, DestQPN: 4, Peer: peer, Silent: true}
	if !slices.Equal(got[0], []gsi.PeerDeath{first}) || !slices.Equal(got[1], []gsi.PeerDeath{first, second}) {
		t.Errorf("%+v", got)
	}
}

// willsLink has the last wills of a link that several processes share.
type willsLink struct {
	link.Link
	asked link.Path
}

func (l *willsLink) Capabilities() link.Capabilities { return link.Capabilities{LastWills: l} }

func (l *willsLink) NewLastWill(p *link.Path) link.LastWill {
	l.asked = *p
	return lastWill{}
}

type lastWill struct{ link.LastWill }

// TestLastWillOfAConnection: the last will goes along the path of its connection; a link without last wills has none.
func TestLastWillOfAConnection(t *testing.T) {
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, l := range []*willsLink{{}, nil} {
		fabric := mem.NewFabric(mem.Config{})
		d, err := New(softlink.On(Config{Addrs: []netip.Addr{src}}, softlink.Links{
			Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
				inner, err := fabric.Open(addrs, ports)
				if l == nil || err != nil {
					return inner, err
				}
				l.Link = inner
				return l, nil
			}}))
		okay(t, err)
		c := opened(t, d)
		domain, err := c.AllocPD()
		okay(t, err)
		p := driver.Of[*pd](domain)
		if w := p.NewLastWill(src, dst, 1, 2, 3); w != nil {
			t.Error("a last will before the first QP")
		}
		if prefix, bits := p.CommIDs(); prefix != 0 || bits != 0 {
			t.Errorf("IDs before the first QP: %#x, %d", prefix, bits)
		}
		okay(t, errors.Join(domain.Close(), c.Close()))
		p, end := withQP1(t, d)
		w := p.NewLastWill(src, dst, 1, 2, 3)
		if (w == lastWill{}) != (l != nil) || l == nil && w != nil {
			t.Errorf("%v", w)
		}
		if want := (link.Path{Src: src, Dst: dst, TClass: 1, HopLimit: 2, PKey: 3}); l != nil && !l.asked.Equal(&want) {
			t.Errorf("%+v, want %+v", l.asked, want)
		}
		end()
	}
}

// TestPartitionOfAPeer: the entry for a peer's P_Key is that of the local address's port; two limited members have
// none.
func TestPartitionOfAPeer(t *testing.T) {
	d := inMemoryPorts(t, addrs("10.0.0.1"), addrs("10.0.0.2")).dev
	d.pkeys[0], d.pkeys[1] = newPKeyTable([]uint16{0xffff, 0x8001, 0x0002}), newPKeyTable([]uint16{0x8003})
	c, err := d.Open(nil)
	okay(t, err)
	defer c.Close()
	for _, w := range []struct {
		local string
		key   uint16
		index uint16
		ok    bool
	}{
		{"10.0.0.1", 0xffff, 0, true}, {"10.0.0.1", 0x0001, 1, true}, {"10.0.0.1", 0x8002, 2, true},
		{"10.0.0.1", 0x0002, 0, false}, {"10.0.0.1", 0x8003, 0, false}, {"10.0.0.2", 0x0003, 0, true},
		{"10.0.0.2", 0xffff, 0, false},
	} {
		if i, ok := d.FindPKey(netip.MustParseAddr(w.local), w.key); i != w.index || ok != w.ok {
			t.Errorf("%s, %#x: %d, %v, want %d, %v", w.local, w.key, i, ok, w.index, w.ok)
		}
	}
	for port, want := range []uint16{0, 0x8001, 0, 0} {
		if k := d.PKey(uint8(port), 1); k != want {
			t.Errorf("entry 1 of port %d: %#x, want %#x", port, k, want)
		}
	}
}

// events counts the device events of a context.
type events struct {
	verbs.DriverContextEvents
	fatal int
}

func (e *events) DeviceEvent(t verbs.EventType) {
	if t == verbs.EventDeviceFatal {
		e.fatal++
	}
}

// TestLostAddressIsFatal: the end of the process that has shared an address is fatal for all contexts. The device can
// be opened again after they are closed.
func TestLostAddressIsFatal(t *testing.T) {
	d := inMemory(t, 0).dev
	var a, b events
	var open []verbs.DriverContext
	for _, e := range []*events{&a, &b} {
		c, err := d.Open(e)
		okay(t, err)
		open = append(open, c)
	}
	if d.lost(errors.New("it has ended")); a.fatal != 1 || b.fatal != 1 {
		t.Errorf("%d and %d events, want 1 each", a.fatal, b.fatal)
	}
	for _, c := range open {
		if _, err := d.Open(&events{}); errnoOf(err) != syscall.ENETDOWN {
			t.Errorf("opened beside a context of before: %v", err)
		}
		okay(t, c.Close())
	}
	c, err := d.Open(&events{})
	okay(t, err)
	okay(t, c.Close())
}

// TestInterfacesAreWatchedWhileDevicesAreOpen: the interfaces are watched from the first open device to the last one.
func TestInterfacesAreWatchedWhileDevicesAreOpen(t *testing.T) {
	var m monitor
	a, b := inMemory(t, 0).dev, inMemory(t, 0).dev
	watched := func(want bool) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		if (m.stop != nil) != want {
			t.Errorf("%d devices, watched: %v", len(m.devices), !want)
		}
	}
	watched(false)
	for range 2 {
		m.add(a)
		watched(true)
		m.add(b)
		m.remove(a)
		watched(true)
		m.remove(b)
		watched(false)
	}
}

// TestInterfacesArePolled: where the system does not report changes, the interfaces are looked at again and again,
// until that ends.
func TestInterfacesArePolled(t *testing.T) {
	looks := make(chan struct{})
	stop := pollInterfaces(func() { looks <- struct{}{}; looks <- struct{}{} })
	look := func() {
		t.Helper()
		select {
		case <-looks:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody looks")
		}
	}
	look()
	look()
	look() // the second look has begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("stop does not wait for the last look")
	case <-time.After(50 * time.Millisecond):
	}
	look()
	<-stopped
}

// TestInterfaceOfAnAddress: an address of a device on several interfaces has its own, any other the port's.
func TestInterfaceOfAnAddress(t *testing.T) {
	s := &spec{name: "x", iface: "a", addrs: addrs("10.0.0.1", "10.0.0.2"), on: []string{"a", "b"}}
	for a, want := range map[string]string{"10.0.0.1": "a", "10.0.0.2": "b", "10.0.0.3": "other"} {
		if got := s.netdev(netip.MustParseAddr(a), "other"); got != want {
			t.Errorf("%s is on %s, want %s", a, got, want)
		}
	}
	s.on = nil
	if got := s.netdev(netip.MustParseAddr("10.0.0.2"), "other"); got != "other" {
		t.Errorf("on one interface: %s", got)
	}
}

// TestZonesOfAddresses: the zone of a link-local address is the interface of the device; one that is no interface is
// refused.
func TestZonesOfAddresses(t *testing.T) {
	d, err := New(Config{Addrs: addrs("fe80::9%lo")})
	if err != nil {
		t.Skip(err)
	}
	if d.Interface() != "lo" || d.dev.spec.on != nil {
		t.Errorf("interface %q, %v", d.Interface(), d.dev.spec.on)
	}
	if _, err := New(Config{Addrs: addrs("fe80::9%nosuch0")}); !errors.Is(err, verbs.ENODEV) {
		t.Errorf("%v, want ENODEV", err)
	}
}

// TestGroupsOfTheFirstPort: a QP of another port joins groups if that port is on the interface of the first one.
func TestGroupsOfTheFirstPort(t *testing.T) {
	d := inMemoryPorts(t, addrs("10.0.0.1"), addrs("10.0.0.2"))
	p, cq, end := domainOf(t, d)
	defer end()
	q, err := p.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	okay(t, err)
	defer q.Close()
	group := verbs.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))
	drv := driver.Of[*qp](q)
	if err := drv.DetachMcast(group, 0); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a group that was not joined: %v", err)
	}
	okay(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 2}, verbs.QPAttrState|verbs.QPAttrPort|
		verbs.QPAttrPKeyIndex|verbs.QPAttrQKey))
	okay(t, errors.Join(drv.AttachMcast(group, 0), drv.DetachMcast(group, 0)))
	other := *d.dev.at(2)
	other.iface = "other0"
	d.dev.ports[1].Store(&other)
	if err := drv.AttachMcast(group, 0); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("a port on another interface: %v", err)
	}
	okay(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	okay(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort|
		verbs.QPAttrPKeyIndex|verbs.QPAttrQKey))
	okay(t, errors.Join(drv.AttachMcast(group, 0), drv.DetachMcast(group, 0)))
}

// TestV_QPM_12_PortWithoutTheIndex: the path of a QP in SQD keeps its GID index, which the new port must have.
func TestV_QPM_12_PortWithoutTheIndex(t *testing.T) {
	d := inMemoryPorts(t, addrs("10.0.0.1", "10.0.0.3", "10.0.0.4"), addrs("10.0.0.2"))
	p, cq, end := domainOf(t, d)
	defer end()
	q, err := p.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	okay(t, err)
	defer q.Close()
	info, err := q.LocalInfo()
	okay(t, err)
	okay(t, q.Connect(info, &verbs.ConnectOptions{}))
	drv := driver.Of[*qp](q)
	a, _, err := q.Query(verbs.QPAttrAV)
	okay(t, err)
	a.AHAttr.GRH.SGIDIndex = 3
	okay(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD}, verbs.QPAttrState))
	for draining := true; draining; {
		_, draining = drv.QP.Query()
	}
	okay(t, q.Modify(&verbs.QPAttr{AHAttr: a.AHAttr}, verbs.QPAttrAV))
	if err := drv.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD, PortNum: 2}, verbs.QPAttrPort); !errors.Is(err,
		verbs.EINVAL) {
		t.Errorf("%v, want EINVAL", err)
	}
	if now, err := drv.Query(); err != nil || now.PortNum != 1 || now.AHAttr.GRH.SGIDIndex != 3 {
		t.Errorf("afterwards: port %d, index %d, %v", now.PortNum, now.AHAttr.GRH.SGIDIndex, err)
	}
}

// TestPortOfARawQP: a QP for frames keeps the port that the program has set.
func TestPortOfARawQP(t *testing.T) {
	p, cq, end := domainOf(t, inMemory(t, 0))
	defer end()
	q, err := p.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	okay(t, err)
	defer q.Close()
	drv := driver.Of[*rawQP](q)
	if n, err := drv.PostRecv([]verbs.RecvWR{{}}); n != 0 || !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a receive in RESET: %d, %v", n, err)
	}
	okay(t, drv.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort))
	okay(t, drv.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState))
	if a, err := drv.Query(); err != nil || a.PortNum != 1 || a.QPState != verbs.QPSRTR {
		t.Errorf("port %d in %v, %v", a.PortNum, a.QPState, err)
	}
	okay(t, drv.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	if a, err := drv.Query(); err != nil || a.PortNum != 0 {
		t.Errorf("port %d after RESET, %v", a.PortNum, err)
	}
	without := &rawQP{}
	if n, err := without.PostSend([]verbs.SendWR{{}}); n != 0 || !errors.Is(err, verbs.EINVAL) {
		t.Errorf("without a send queue: %d, %v", n, err)
	}
}

// TestXRCTargetsHaveNoQueues: nothing can be posted to a handle of an XRC_RECV QP.
func TestXRCTargetsHaveNoQueues(t *testing.T) {
	var h handle
	if n, err := h.PostSend(make([]verbs.SendWR, 1)); n != 0 || !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a send: %d, %v", n, err)
	}
	if n, err := h.PostRecv(make([]verbs.RecvWR, 1)); n != 0 || !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a receive: %d, %v", n, err)
	}
}

// TestTextsOfErrors: an error has the text of its operation and of its cause, and the errno of the cause.
func TestTextsOfErrors(t *testing.T) {
	cause := syscall.ENOSPC
	for _, c := range []struct {
		err  error
		want string
	}{
		{verbsError("closing the link", cause), "closing the link: " + cause.Error()}, {verbsError("", cause), cause.Error()},
	} {
		if c.err.Error() != c.want || !errors.Is(c.err, syscall.ENOSPC) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
	if verbsError("closing", nil) != nil {
		t.Error("an error without a cause")
	}
	if err := fail(verbs.EINVAL, "port %d", 3); err.Error() != "port 3" || !errors.Is(err, verbs.EINVAL) {
		t.Errorf("%v", err)
	}
}

// TestUsableIndices: the error of a peer that a port cannot reach lists the indices that are usable.
func TestUsableIndices(t *testing.T) {
	p := &portInfo{addrs: addrs("10.0.0.1")}
	p.table.update(addrs("10.0.0.1", "10.0.0.2"))
	if got := p.usable(); got != "usable GID indices are 1 (10.0.0.1)" {
		t.Errorf("%q", got)
	}
	p.addrs = nil
	if got := p.usable(); got != "the device has no address" {
		t.Errorf("%q", got)
	}
	if p.name = "vrb0"; p.where() != "device vrb0" {
		t.Errorf("%q", p.where())
	}
	if p.iface = "eth9"; p.where() != "interface eth9" {
		t.Errorf("%q", p.where())
	}
}

// TestIndicesOfAddresses: a GID keeps its index while its address exists, whatever is added and removed before it.
func TestIndicesOfAddresses(t *testing.T) {
	d := inMemoryPorts(t, addrs("10.0.0.1", "10.0.0.2", "10.0.0.3"), addrs("10.0.0.9")).dev
	first := d.look(1, nil)
	d.spec.addrs, d.spec.onPort = addrs("10.0.0.3", "10.0.0.4", "10.0.0.9"), []uint8{1, 1, 2}
	next := d.look(1, first)
	for a, want := range map[string]int{"10.0.0.1": -1, "10.0.0.2": -1, "10.0.0.3": 3, "10.0.0.4": 1} {
		if got := next.index(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s has index %d, want %d", a, got, want)
		}
	}
	if got := first.index(netip.MustParseAddr("10.0.0.1")); got != 1 {
		t.Errorf("the earlier state has changed: index %d", got)
	}
}

// TestViolationsOfAPort: a packet with a wrong key counts at its port, the first one if it is none.
func TestViolationsOfAPort(t *testing.T) {
	d := inMemoryPorts(t, addrs("10.0.0.1"), addrs("10.0.0.2"))
	c := opened(t, d)
	defer c.Close()
	for _, port := range []uint8{1, 2, 2, 0, 9} {
		d.dev.BadPKey(port)
	}
	d.dev.BadQKey(2)
	for port, want := range [][2]uint32{{2, 0}, {3, 1}} {
		if a, err := c.QueryPort(uint8(port + 1)); err != nil || a.BadPKeyCntr != want[0] || a.QKeyViolCntr != want[1] {
			t.Errorf("port %d: %d and %d, %v, want %v", port+1, a.BadPKeyCntr, a.QKeyViolCntr, err, want)
		}
	}
}

// TestAttributesAfterReset: a QP in RESET has none of the attributes that it had before.
func TestAttributesAfterReset(t *testing.T) {
	p, cq, end := domainOf(t, inMemory(t, 0))
	defer end()
	q, err := p.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	okay(t, err)
	defer q.Close()
	okay(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QKey: 77}, verbs.QPAttrState|verbs.QPAttrPort|
		verbs.QPAttrPKeyIndex|verbs.QPAttrQKey))
	drv := driver.Of[*qp](q)
	if a, err := drv.Query(); err != nil || a.QKey != 77 || a.PortNum != 1 {
		t.Errorf("in INIT: Q_Key %d, port %d, %v", a.QKey, a.PortNum, err)
	}
	okay(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	if a, err := drv.Query(); err != nil || a.QKey != 0 {
		t.Errorf("in RESET: Q_Key %d, %v", a.QKey, err)
	}
}

// TestLongestFrame: a request of a QP for frames has at most the longest message.
func TestLongestFrame(t *testing.T) {
	p, cq, end := domainOf(t, inMemory(t, 0))
	defer end()
	q, err := p.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 2, MaxRecvSGE: 1}})
	okay(t, err)
	defer q.Close()
	drv := driver.Of[*rawQP](q)
	for more, want := range []error{nil, verbs.EINVAL} {
		drv.SQ.Lock()
		err := drv.fill(drv.SQ, drv.SQ.Next(), &verbs.SendWR{Opcode: verbs.WRSend,
			SGList: []verbs.SGE{{Length: maxMessage}, {Length: uint32(more)}}})
		drv.SQ.Abort()
		drv.SQ.Unlock()
		if !errors.Is(err, want) {
			t.Errorf("2^31 + %d bytes: %v, want %v", more, err, want)
		}
	}
}

// states counts the reports of a handle.
type states struct {
	verbs.DriverQPEvents
	reports int
}

func (s *states) StateChanged(verbs.QPState) { s.reports++ }

// TestX_QPO_01_OtherHandlesLearnOfAMove: the handle that moves the QP gets no report of it, each other one gets one.
func TestX_QPO_01_OtherHandlesLearnOfAMove(t *testing.T) {
	c := opened(t, inMemory(t, 0))
	defer c.Close()
	dom, err := driver.Of[*deviceContext](c).OpenXRCD(-1, 0)
	okay(t, err)
	defer dom.Close()
	var first, second states
	a, err := dom.(*xrcDomain).CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}, &first)
	okay(t, err)
	b, err := dom.(*xrcDomain).OpenQP(a.QPN(), &second)
	okay(t, err)
	okay(t, a.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort|
		verbs.QPAttrPKeyIndex|verbs.QPAttrAccessFlags))
	if first.reports != 0 || second.reports != 1 {
		t.Errorf("%d and %d reports, want 0 and 1", first.reports, second.reports)
	}
	okay(t, errors.Join(b.Destroy(), a.Destroy()))
}

// TestCaptureThatEnds: a capture has the packets from its begin to its end, also if the device sends meanwhile.
func TestCaptureThatEnds(t *testing.T) {
	d := inMemory(t, 0)
	p, cq, end := domainOf(t, d)
	defer end()
	q, err := p.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 8}})
	okay(t, err)
	defer q.Close()
	info, err := q.LocalInfo()
	okay(t, err)
	okay(t, q.Connect(info, &verbs.ConnectOptions{}))
	message := func() {
		t.Helper()
		okay(t, q.PostRecv(verbs.RecvWR{}))
		okay(t, q.PostSend(verbs.SendWR{Opcode: verbs.WRSend}))
		var wcs [2]verbs.WC
		for got, until := 0, time.Now().Add(20*time.Second); got < 2; {
			n, err := cq.Poll(wcs[got:])
			okay(t, err)
			if got += n; time.Now().After(until) {
				t.Fatal("the message does not come")
			}
		}
	}
	message()
	var during, after int
	for _, ends := range []bool{false, true} {
		var file bytes.Buffer
		sink := pcap.NewSink(&file, 0)
		d.dev.capture.add(sink)
		if ends {
			d.dev.capture.remove(sink)
		}
		message()
		if !ends {
			d.dev.capture.remove(sink)
		}
		okay(t, sink.Close())
		if ends {
			after = file.Len()
		} else {
			during = file.Len()
		}
	}
	if during == 0 || after != 0 {
		t.Errorf("%d bytes of a capture, %d of one that has ended", during, after)
	}
}
