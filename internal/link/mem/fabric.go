package mem

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Config configures a fabric. The zero value is a network without faults in real time.
type Config struct {
	Seed   uint64
	Faults fault.Faults
	// Now returns the time in nanoseconds, not negative and never going back; nil: real time since NewFabric. It
	// must not call the fabric.
	Now func() int64
	// MTU is the largest packet, BTH to ICRC, in bytes; 0 means 8952, the largest in a jumbo frame.
	MTU int
	// Queue is the maximum of packets in flight to one port; 0 means 4096. Further packets are lost.
	Queue int
	// Bandwidth is that of each link's receiving side in bytes per second; 0 is unlimited.
	Bandwidth int64
}

const (
	defaultMTU   = 8952
	defaultQueue = 4096

	firstSourcePort = 0xC000
)

// Stats counts the packets of a fabric, copies included.
type Stats struct {
	Sent      uint64 // packets given to the fabric
	Delivered uint64
	Lost      uint64 // lost by a fault
	Repeated  uint64 // copies made by a fault
	Corrupted uint64
	Cut       uint64 // lost by a partition
	Unknown   uint64 // unknown destination address
	Overflow  uint64 // lost because the queue was full
}

// Fabric is the network. Its methods are safe for concurrent use.
type Fabric struct {
	cfg   Config
	epoch time.Time // time 0 of real time
	hub   hub       // of Ethernet frames

	mu     sync.Mutex
	inject *fault.Injector
	links  []*Link // in the order of opening
	byAddr map[netip.Addr]*Link
	cuts   map[[2]netip.Addr]bool
	free   []*packet
	// +checklocks:mu
	ports int // opened so far
	stats Stats
}

// packet is one packet in flight.
type packet struct {
	buf  []byte // BTH to ICRC
	path link.Path
	flow wire.Flow
}

// NewFabric makes a network without links.
func NewFabric(cfg Config) *Fabric {
	if cfg.MTU == 0 {
		cfg.MTU = defaultMTU
	}
	if cfg.Queue == 0 {
		cfg.Queue = defaultQueue
	}
	return &Fabric{
		cfg:    cfg,
		epoch:  time.Now(),
		inject: fault.NewInjector(cfg.Seed, cfg.Faults),
		byAddr: map[netip.Addr]*Link{},
		cuts:   map[[2]netip.Addr]bool{},
	}
}

// SetFaults changes the faults for packets that are sent from now on.
func (f *Fabric) SetFaults(faults fault.Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inject.SetFaults(faults)
}

// Cut loses all packets from a to b that are sent from now on. A partition needs a Cut in both directions.
func (f *Fabric) Cut(a, b netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[[2]netip.Addr{a, b}] = true
}

// Heal ends Cut(a, b).
func (f *Fabric) Heal(a, b netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cuts, [2]netip.Addr{a, b})
}

// Stats reads the counters.
func (f *Fabric) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Open opens a link with the given addresses and number of ports. It returns EADDRINUSE if another link has one of
// them.
func (f *Fabric) Open(addrs []netip.Addr, ports int) (link.Link, error) {
	if ports < 1 {
		return nil, fmt.Errorf("link/mem: %d ports: must be at least 1: %w", ports, syscall.EINVAL)
	}
	l := &Link{fabric: f, groups: map[netip.Addr]int{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	for range ports {
		l.ports = append(
			l.ports,
			&port{link: l, source: uint16(firstSourcePort + f.ports&0x3FFF), signal: make(chan struct{}, 1)},
		)
		f.ports++
	}
	if err := l.setAddrs(addrs); err != nil {
		return nil, err
	}
	f.links = append(f.links, l)
	return l, nil
}

// now returns the fabric's time.
func (f *Fabric) now() int64 {
	if f.cfg.Now != nil {
		return f.cfg.Now()
	}
	return int64(time.Since(f.epoch))
}

// NextDelivery returns the earliest time at which a packet can be received; it may be in the past. ok is false if
// no packet is in flight.
func (f *Fabric) NextDelivery() (at int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		for _, p := range l.ports {
			if t, some := p.queue.Next(); some && (!ok || t < at) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// Tick announces that Config.Now has changed, to the goroutines in Wait.
func (f *Fabric) Tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		for _, p := range l.ports {
			p.poke()
		}
	}
}

// send applies the faults to packet i of b, and delivers the rest.
func (f *Fabric) send(now int64, from *port, b *link.TxBatch, i int) {
	path, data := b.Packets[i].Path, b.Bytes(i)
	f.stats.Sent++
	if f.cuts[[2]netip.Addr{path.Src, path.Dst}] {
		f.stats.Cut++
		return
	}
	v := f.inject.Judge(path.Src, path.Dst, data[:len(data)-wire.ICRCLen])
	if v.Drop {
		f.stats.Lost++
		return
	}
	path = v.Path(path)
	at := now + int64(v.Delay)
	flow := wire.NewFlow(path.Src, path.Dst, cmp.Or(path.Source, from.source), wire.Port)
	b.Seal(i, flow, 0)
	c := crossing{at: at, path: path, flow: flow, data: data, flip: v.Flip}
	f.route(&c)
	c.flip = 0
	for range v.Extra {
		f.stats.Repeated++
		f.route(&c)
	}
}

// Inject sends a UDP datagram as if from UDP port source of a machine at src to the RoCEv2 port of dst. It need not
// be a packet: nothing is appended, and no fault applies.
func (f *Fabric) Inject(src, dst netip.Addr, source uint16, datagram []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Sent++
	path := link.Path{Src: src.Unmap(), Dst: dst.Unmap()}
	flow := wire.NewFlow(path.Src, path.Dst, source, wire.Port)
	f.route(&crossing{at: f.now(), path: &path, flow: flow, data: datagram})
}

// crossing is a datagram in flight.
type crossing struct {
	at   int64 // time of arrival
	path *link.Path
	flow wire.Flow
	data []byte // BTH to ICRC
	flip int
}

// route queues a datagram at every link with its destination address.
func (f *Fabric) route(c *crossing) {
	if !c.path.Dst.IsMulticast() {
		l := f.byAddr[c.path.Dst]
		if l == nil {
			f.stats.Unknown++
			return
		}
		qpn := 0
		if len(c.data) >= wire.BTHLen {
			qpn = int(wire.BTH(c.data).DestQPN())
		}
		f.enqueue(l, l.ports[qpn%len(l.ports)], c)
		return
	}
	for _, l := range f.links {
		if l.groups[c.path.Dst] > 0 {
			f.enqueue(l, l.ports[0], c)
		}
	}
}

func (f *Fabric) enqueue(l *Link, to *port, c *crossing) {
	if to.queue.Len() >= f.cfg.Queue {
		f.stats.Overflow++
		return
	}
	at := c.at
	p := f.newPacket()
	p.path, p.flow = *c.path, c.flow
	p.buf = append(p.buf[:0], c.data...)
	if c.flip > 0 {
		f.stats.Corrupted++
		f.inject.Flip(p.buf, c.flip)
	}
	if f.cfg.Bandwidth > 0 {
		l.freeAt = max(l.freeAt, at) + int64(len(p.buf))*int64(time.Second)/f.cfg.Bandwidth
		at = l.freeAt
	}
	to.queue.Push(at, p)
	to.poke()
}

func (f *Fabric) newPacket() *packet {
	if n := len(f.free); n > 0 {
		p := f.free[n-1]
		f.free = f.free[:n-1]
		return p
	}
	return new(packet)
}

// remove removes a closed link.
func (f *Fabric) remove(l *Link) {
	f.links = slices.DeleteFunc(f.links, func(o *Link) bool { return o == l })
	for _, a := range l.addrs {
		delete(f.byAddr, a)
	}
}
