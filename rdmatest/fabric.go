package rdmatest

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// Config configures a fabric. The zero value is a perfect network in virtual time.
type Config struct {
	Seed   uint64 // of all random numbers
	Faults Faults
	// MTU is the largest packet in bytes, from BTH to ICRC; it bounds the path MTU. 0 means 8952.
	MTU int
	// RealTime selects real time instead of virtual time.
	RealTime bool
	// PKeys is the P_Key table of each device, as soft.Config has it; empty: 0xFFFF alone. See Fabric.SetPKeys.
	PKeys []uint16
	// Shards is the number of shards of each device; 0 means 1 in virtual time and GOMAXPROCS in real time.
	Shards int
}

// Fabric is a network in memory. In virtual time one goroutine uses it, with Config.RealTime it is safe for concurrent
// use.
type Fabric struct {
	cfg   Config
	net   *mem.Fabric
	now   int64 // virtual time in ns
	start time.Time

	mu      sync.Mutex // guards the following
	devices []*soft.Device
	// +checklocks:mu
	opened []*verbs.Context
}

// firstAddr is the default address of the first device, 198.18.0.1, in the range that RFC 2544 reserves for
// test networks.
var firstAddr = netip.AddrFrom4([4]byte{198, 18, 0, 1})

// New returns a network without devices. It has no C twin, as the rest of this package.
func New(c Config) *Fabric {
	f := &Fabric{cfg: c, start: time.Now()}
	mc := mem.Config{Seed: c.Seed, Faults: c.Faults.internal(), MTU: c.MTU}
	if !c.RealTime {
		mc.Now = func() int64 { return f.now }
	}
	f.net = mem.NewFabric(mc)
	return f
}

// Open creates a device with this name and these addresses, and opens it. Devices without addresses get
// 198.18.0.1, 198.18.0.2 and so on, in the order of their creation. The context is closed by the test, or
// else by Close. EINVAL for a name or an address that soft.New refuses.
func (f *Fabric) Open(name string, addrs ...netip.Addr) (*verbs.Context, error) {
	dev, err := f.NewDevice(name, addrs...)
	if err != nil {
		return nil, err
	}
	return f.open(dev)
}

// open opens a device for Close.
func (f *Fabric) open(dev *verbs.Device) (*verbs.Context, error) {
	vctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, vctx)
	return vctx, nil
}

// OpenPorts is Open for a device with several ports, each with its addresses, of which it has at least one.
func (f *Fabric) OpenPorts(name string, ports ...[]netip.Addr) (*verbs.Context, error) {
	dev, err := f.newDevice(name, ports)
	if err != nil {
		return nil, err
	}
	return f.open(dev)
}

// NewDevice creates a device without opening it, for tests that open it more than once. The test closes its contexts;
// Close does not. EINVAL as for Open.
func (f *Fabric) NewDevice(name string, addrs ...netip.Addr) (*verbs.Device, error) {
	return f.newDevice(name, [][]netip.Addr{addrs})
}

// newDevice creates a device with the addresses of each port.
func (f *Fabric) newDevice(name string, ports [][]netip.Addr) (*verbs.Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var addrs []netip.Addr
	if len(ports) > 0 {
		addrs, ports = ports[0], ports[1:]
	}
	if len(addrs) == 0 {
		a := firstAddr
		for range f.devices {
			a = a.Next()
		}
		addrs = []netip.Addr{a}
	}
	links := softlink.Links{
		Open: func(addrs []netip.Addr, ports int) (link.Link, error) { return f.net.Open(addrs, ports) },
		Raw:  f.net.OpenRaw, MTU: f.cfg.MTU,
	}
	c := soft.Config{Name: name, Addrs: addrs, MorePorts: ports, Shards: f.cfg.Shards, PKeys: f.cfg.PKeys}
	c = softlink.On(c, links)
	// The engine's own clock counts the processor's ticks, which stand still while a testing/synctest bubble's time jumps.
	c.Clock = func() int64 { return int64(f.Now()) }
	if !f.cfg.RealTime {
		c.Manual = true
		c.Shards = max(1, c.Shards)
		// Random QP numbers would make runs differ.
		c.FirstQPN = uint32(0x100 * (1 + len(f.devices)))
	}
	dev, err := soft.New(c)
	if err != nil {
		return nil, fmt.Errorf("rdmatest: device %q: %w", name, err)
	}
	f.devices = append(f.devices, dev)
	return dev.Device, nil
}

// Close closes the contexts that Open and OpenPorts returned and the test has not closed. An object that still exists
// keeps its context open; Close returns the first such error (EBUSY), and may be called again.
func (f *Fabric) Close() error {
	f.mu.Lock()
	opened := f.opened
	f.opened = nil
	f.mu.Unlock()
	var first error
	var left []*verbs.Context
	for _, vctx := range opened {
		if err := vctx.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			left = append(left, vctx)
			if first == nil {
				first = err
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, left...)
	return first
}

// Now returns the time since New, in virtual time as far as the test has advanced it. With Config.RealTime it is safe
// for concurrent use.
func (f *Fabric) Now() time.Duration {
	if f.cfg.RealTime {
		return time.Since(f.start)
	}
	return time.Duration(f.now)
}

// Advance runs everything that the devices can do now and then moves virtual time to the next event. It
// returns false if nothing has happened and no event is pending, so that only the test can cause one. Advance and Run
// are for virtual time: with Config.RealTime the devices run by themselves, and the test waits.
func (f *Fabric) Advance() bool {
	moved := f.runDue()
	next := f.next()
	if next == math.MaxInt64 {
		return moved
	}
	f.now = max(f.now, next)
	f.runDue()
	return true
}

// Run advances virtual time until done returns true, and reports whether it did within the time limit. If
// not, exactly that time has passed.
func (f *Fabric) Run(done func() bool, limit time.Duration) bool {
	end := f.now + int64(limit)
	for f.runDue(); !done(); f.Advance() {
		if f.now >= end || f.next() > end {
			f.now = max(f.now, end)
			f.runDue()
			return done()
		}
	}
	return true
}

// runDue runs the devices until none has anything to do at this time, and reports whether one had.
func (f *Fabric) runDue() (moved bool) {
	for busy := true; busy; moved = moved || busy {
		busy = false
		for _, d := range f.devices {
			busy = d.Step() || busy
		}
		if at, ok := f.net.NextDelivery(); ok && at <= f.now {
			busy = true
		}
	}
	return moved
}

// next returns the time of the next event.
func (f *Fabric) next() int64 {
	next := int64(math.MaxInt64)
	if at, ok := f.net.NextDelivery(); ok {
		next = at
	}
	for _, d := range f.devices {
		next = min(next, d.NextDeadline())
	}
	return next
}

// Inject sends a UDP datagram as if a host at src had sent it from UDP port source to port 4791 of dst,
// which may be a multicast group. It need not be a packet: its bytes arrive unchanged, including the ICRC,
// and Faults do not apply.
func (f *Fabric) Inject(src, dst netip.Addr, source uint16, datagram []byte) {
	f.net.Inject(src, dst, source, datagram)
}

// InjectFrame sends an Ethernet frame, without its check sequence, to all devices with RAW_PACKET QPs or flow rules, as
// if another host had sent it. It arrives immediately, and Faults do not apply.
func (f *Fabric) InjectFrame(frame []byte) { f.net.InjectRaw(frame) }

// Counters returns the counters of the device of a context of this fabric since it was opened, under the kernel's
// hw_counters names where the kernel has them: "duplicate_request", "rx_icrc_errors", "bad_pkey". It returns nil for
// other contexts.
func (f *Fabric) Counters(vctx *verbs.Context) map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		if d.Device != vctx.Device() {
			continue
		}
		values := map[string]uint64{}
		for _, c := range d.Counters() {
			values[c.Name] = c.Value
		}
		return values
	}
	return nil
}

// SetFaults replaces the faults for packets that are sent from now on.
func (f *Fabric) SetFaults(faults Faults) { f.net.SetFaults(faults.internal()) }

// SetPKeys replaces the P_Key table of a port of the device of a context, as a subnet manager would; see soft.SetPKeys.
func (f *Fabric) SetPKeys(vctx *verbs.Context, port uint8, keys ...uint16) error {
	return soft.SetPKeys(vctx.Device(), port, keys...)
}

// Cut disconnects two addresses: packets between them are lost until Heal.
func (f *Fabric) Cut(a, b netip.Addr) {
	f.net.Cut(a, b)
	f.net.Cut(b, a)
}

// Heal reconnects two addresses after Cut.
func (f *Fabric) Heal(a, b netip.Addr) {
	f.net.Heal(a, b)
	f.net.Heal(b, a)
}

// Stats returns the fabric's packet counts.
func (f *Fabric) Stats() Stats { return Stats(f.net.Stats()) }
