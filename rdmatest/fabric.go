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
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// Faults says what happens to packets; the zero value is a perfect network. Its fields:
//
//	Loss, Duplicate, Reorder, Corrupt float64   probabilities, 0 to 1: lost, comes twice, overtaken, one to three bits flipped
//	Delay, Jitter       time.Duration           of every packet: so long, and a random time from 0 to that besides
//	ReorderDelay        time.Duration           the longest time that Reorder holds a packet back; 0 means 100 µs
//	Script func(p Packet) (v Verdict, decided bool)
//
// A Script that is not nil is asked about each packet first; if it has decided, its verdict holds, otherwise the probabilities do. It
// must not keep or change p.Data.
type Faults = fault.Faults

// Packet is what a Faults.Script is shown: Src and Dst (netip.Addr), Data (the bytes from the BTH to the padding), Nth (uint64: the packet's
// number in this fabric, from 0), and the method Opcode.
type Packet = fault.Packet

// Verdict is what a Faults.Script decides about a packet: Drop (bool), Extra (int: copies besides the packet itself), Flip (int: bits to
// flip at random places), Delay (time.Duration). The zero value lets it pass.
type Verdict = fault.Verdict

// Stats counts what the fabric did to packets, copies included, in fields of type uint64: Sent, Delivered, Lost (by the faults), Repeated, Corrupted, Cut (by
// Fabric.Cut), Unknown (nobody has the address), Overflow (the receiver's queue was full).
type Stats = mem.Stats

// Config says how a fabric is made. The zero value is a perfect network in virtual time.
type Config struct {
	Seed   uint64 // of all chance
	Faults Faults
	// MTU is the largest packet in bytes, BTH to ICRC, which bounds the path MTU; 0 means 8952.
	MTU int
	// RealTime lets time pass by itself.
	RealTime bool
	// Shards of each device; 0 means one in virtual time and GOMAXPROCS in real time.
	Shards int
}

// Fabric is a network in memory.
type Fabric struct {
	cfg   Config
	net   *mem.Fabric
	now   int64 // virtual time
	start time.Time

	mu      sync.Mutex
	devices []*soft.Device
	opened  []*verbs.Context
}

// The addresses of a fabric's devices, if the test does not choose: 198.18.0.1 and so on, of the range
// that RFC 2544 set aside for such networks.
var firstAddr = netip.AddrFrom4([4]byte{198, 18, 0, 1})

// New makes a network without devices.
func New(c Config) *Fabric {
	f := &Fabric{cfg: c, start: time.Now()}
	mc := mem.Config{Seed: c.Seed, Faults: c.Faults, MTU: c.MTU}
	if !c.RealTime {
		mc.Now = func() int64 { return f.now }
	}
	f.net = mem.NewFabric(mc)
	return f
}

// Open makes a device of that name, with the given addresses, and opens it. Devices without addresses get 198.18.0.1, 198.18.0.2 and so on, in
// their order. The test closes the context, or Close does.
func (f *Fabric) Open(name string, addrs ...netip.Addr) (*verbs.Context, error) {
	dev, err := f.NewDevice(name, addrs...)
	if err != nil {
		return nil, err
	}
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, ctx)
	return ctx, nil
}

// NewDevice makes a device without opening it, for tests that open it more than once.
func (f *Fabric) NewDevice(name string, addrs ...netip.Addr) (*verbs.Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(addrs) == 0 {
		a := firstAddr
		for range f.devices {
			a = a.Next()
		}
		addrs = []netip.Addr{a}
	}
	c := soft.Config{
		Name: name, Addrs: addrs, Shards: f.cfg.Shards, MTU: f.cfg.MTU,
		Link: func(addrs []netip.Addr, ports int) (link.Link, error) { return f.net.Open(addrs, ports) },
		Raw:  f.net.OpenRaw,
	}
	if !f.cfg.RealTime {
		c.Manual, c.Clock = true, func() int64 { return f.now }
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

// Close closes what Open opened and the test has not closed. Objects that still exist keep
// their context open; the error of such a context is returned.
func (f *Fabric) Close() error {
	f.mu.Lock()
	opened := f.opened
	f.opened = nil
	f.mu.Unlock()
	var first error
	for _, ctx := range opened {
		if err := ctx.Close(); err != nil && !errors.Is(err, os.ErrClosed) && first == nil {
			first = err
		}
	}
	return first
}

// Now is the time since New.
func (f *Fabric) Now() time.Duration {
	if f.cfg.RealTime {
		return time.Since(f.start)
	}
	return time.Duration(f.now)
}

// Advance lets every device do what it can do now and then moves virtual time to the next
// moment at which something happens. It returns false if nothing has happened, and nothing will unless the test does something.
func (f *Fabric) Advance() bool {
	moved := f.settle()
	next := f.next()
	if next == math.MaxInt64 {
		return moved
	}
	f.now = max(f.now, next)
	f.settle()
	return true
}

// Run advances virtual time until done says true, and returns whether it did before the time limit passed. Then
// exactly that time has passed.
func (f *Fabric) Run(done func() bool, limit time.Duration) bool {
	end := f.now + int64(limit)
	for f.settle(); !done(); f.Advance() {
		if f.now >= end || f.next() > end {
			f.now = max(f.now, end)
			f.settle()
			return done()
		}
	}
	return true
}

// settle runs the devices until none has anything to do at this moment, and tells whether one had.
func (f *Fabric) settle() (moved bool) {
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

// next is when something happens next.
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

// Inject puts a UDP datagram under way as if a machine at src had sent it from UDP port source to port 4791 of dst, which
// may be a multicast group. It need not be a packet: its bytes arrive as they are, ICRC and all, and Faults do not
// touch it.
func (f *Fabric) Inject(src, dst netip.Addr, source uint16, datagram []byte) {
	f.net.Inject(src, dst, source, datagram)
}

// InjectFrame sends an Ethernet frame, without its check sequence, to all devices that have RAW_PACKET QPs, as if another machine
// had sent it. Frames go to every such device at once; Faults do not touch them.
func (f *Fabric) InjectFrame(frame []byte) { f.net.InjectRaw(frame) }

// Counters tells what the device behind a context of this fabric has counted since its first QP was made, under the names
// of the kernel's hw_counters where the kernel has it: "duplicate_request", "rx_icrc_errors", "bad_pkey". It is nil for
// other contexts.
func (f *Fabric) Counters(ctx *verbs.Context) map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		if d.Device != ctx.Device() {
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

// SetFaults changes what happens to packets that are sent from now on.
func (f *Fabric) SetFaults(faults Faults) { f.net.SetFaults(faults) }

// Cut takes the cable between two addresses out: what either sends to the other is lost until Heal.
func (f *Fabric) Cut(a, b netip.Addr) {
	f.net.Cut(a, b)
	f.net.Cut(b, a)
}

// Heal puts it in again.
func (f *Fabric) Heal(a, b netip.Addr) {
	f.net.Heal(a, b)
	f.net.Heal(b, a)
}

// Stats reads what the fabric has counted.
func (f *Fabric) Stats() Stats { return f.net.Stats() }
