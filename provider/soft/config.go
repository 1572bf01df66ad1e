package soft

import (
	"net/netip"
	"runtime"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/verbs"
)

// Config describes a device that a program makes itself, for tests and simulations. No C function does this.
type Config struct {
	// Name of the device; empty means vrb0.
	Name string
	// Addrs are its local addresses, at least one.
	Addrs []netip.Addr
	// Shards is how many parts the device runs its QPs in, at most 64; 0 means as many as GOMAXPROCS, at most 16.
	Shards int
	// Link opens the link; nil means UDP sockets at port 4791. It is called for the device's first QP, and once more each time
	// that a device all of whose contexts were closed comes to life again.
	Link func(addrs []netip.Addr, ports int) (link.Link, error)
	// MTU is that of the Link: its largest packet in bytes, BTH to ICRC, from which the port's path MTU follows; 0 means that of jumbo frames.
	MTU int
	// Raw opens the link of Ethernet frames, for RAW_PACKET QPs, while there are any. nil means a packet socket of the
	// interface that has Addrs, or none if Link is not nil.
	Raw func() (link.Raw, error)
	// Clock reads the time in nanoseconds; it never goes back. nil means the monotonic clock.
	Clock func() int64
	// Manual means that the device has no goroutines: the calls of a program and Device.Step do everything.
	Manual bool
	// FirstQPN is the first QP number to be given, 0 for a random one.
	FirstQPN uint32
}

const (
	defaultName   = "vrb0"
	defaultShards = 16 // at most
)

// Device is a device made by New.
type Device struct {
	*verbs.Device
	dev *device
}

// New makes a device. verbs.Devices does not list it. EINVAL if the name or the addresses are not possible.
func New(c Config) (*Device, error) {
	if c.Name == "" {
		c.Name = defaultName
	}
	if !goodName(c.Name) {
		return nil, fail(verbs.EINVAL, "%q is not a device name; one has 1 to 63 letters, digits, '_', '-' or '.'", c.Name)
	}
	if c.Shards < 0 || c.Shards > engine.MaxShards {
		return nil, fail(verbs.EINVAL, "%d shards are not possible; 1 to %d are", c.Shards, engine.MaxShards)
	}
	s := spec{name: c.Name}
	for _, a := range c.Addrs {
		a = a.Unmap().WithZone("")
		if !a.IsValid() || a.IsMulticast() || a.IsUnspecified() {
			return nil, fail(verbs.EINVAL, "%v is not the address of one machine", a)
		}
		s.addrs = append(s.addrs, a)
	}
	if len(s.addrs) == 0 {
		return nil, fail(verbs.EINVAL, "a device needs an address")
	}
	d := newDevice(s)
	d.cfg = c
	d.virtual = c.Link != nil
	return &Device{Device: verbs.NewDevice(d), dev: d}, nil
}

// Step runs a Manual device once and tells whether there is more to do at once.
func (d *Device) Step() (busy bool) {
	if e := d.dev.running(); e != nil {
		d.dev.frames.Step()
		return e.Step()
	}
	return false
}

// NextDeadline is the time, as Config.Clock counts, at which a Manual device needs a Step for a timer; math.MaxInt64 if it does not.
func (d *Device) NextDeadline() int64 {
	if e := d.dev.running(); e != nil {
		return min(e.NextDeadline(), d.dev.frames.NextDeadline())
	}
	return engine.Never
}

// shards is how many shards the device's engine gets.
func (c *Config) shards() int {
	if c.Shards > 0 {
		return c.Shards
	}
	return min(runtime.GOMAXPROCS(0), defaultShards)
}
