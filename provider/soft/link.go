package soft

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// binding is a device's link and the addresses that it is bound to. An IPv6 address whose duplicate address detection
// is not complete cannot be bound yet (EADDRNOTAVAIL); it is bound after a later change of addresses.
type binding struct {
	mu sync.Mutex // guards link and addrs
	// +checklocks:mu
	link link.Link // nil while no link is open
	// +checklocks:mu
	addrs []netip.Addr
}

// open opens a link at the addresses that now returns, or at some of them if the others are not available. It returns
// EADDRNOTAVAIL if none is available, and every other error. now is called with mu held: a later change finds the link.
func (b *binding) open(now func() []netip.Addr, open func([]netip.Addr) (link.Link, error)) (link.Link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	addrs := now()
	l, err := open(addrs)
	bound := addrs
	for i := 0; err != nil && errnoOf(err) == eaddrnotavail && len(addrs) > 1 && i < len(addrs); i++ {
		bound = addrs[i : i+1]
		l, err = open(bound)
	}
	if err != nil {
		return nil, err
	}
	b.link, b.addrs = l, bound
	b.add(addrs)
	return l, nil
}

// follow binds an open link to other addresses, except those that cannot be bound yet.
func (b *binding) follow(addrs []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil {
		return
	}
	b.keep(addrs)
	b.add(addrs)
	b.keep(addrs) // if no address remained at first
}

// renew makes follow bind all addresses again, because the link's interface was deleted and made again.
func (b *binding) renew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addrs = nil
}

// keep gives back the addresses that are not among addrs, if one remains: a link has at least one.
//
// +checklocks:b.mu
func (b *binding) keep(addrs []netip.Addr) {
	kept := slices.DeleteFunc(slices.Clone(b.addrs), func(a netip.Addr) bool { return !slices.Contains(addrs, a) })
	if len(kept) < len(b.addrs) && len(kept) > 0 && b.link.SetAddrs(kept) == nil {
		b.addrs = kept
	}
}

// add binds the addresses that are not bound yet.
//
// +checklocks:b.mu
func (b *binding) add(addrs []netip.Addr) {
	for _, a := range addrs {
		if slices.Contains(b.addrs, a) {
			continue
		}
		if next := append(slices.Clone(b.addrs), a); b.link.SetAddrs(next) == nil {
			b.addrs = next
		}
	}
}

// unset removes the link after it was closed.
func (b *binding) unset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.link, b.addrs = nil, nil
}

// envFault is the environment variable that defines faults.
const envFault = "VERBENA_FAULT"

// faultsAsked returns the faults that VERBENA_FAULT defines, nil if it is not set.
func faultsAsked() (*fault.Config, error) {
	text := os.Getenv(envFault)
	if text == "" {
		return nil, nil
	}
	cfg, err := parseFaults(text)
	if err != nil {
		return nil, err
	}
	return &cfg, nil
}

// parseFaults reads a list such as loss=0.01,delay=2ms,seed=7.
func parseFaults(text string) (cfg fault.Config, err error) {
	f := &cfg.Send
	chances := map[string]*float64{"loss": &f.Loss, "duplicate": &f.Duplicate, "reorder": &f.Reorder,
		"corrupt": &f.Corrupt, "mark": &f.Mark}
	times := map[string]*time.Duration{"delay": &f.Delay, "jitter": &f.Jitter}
	cfg.Seed = 1
	seen := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		bad := func(allowed string) error {
			return fail(verbs.EINVAL, "%s: %s=%s: %s", envFault, name, value, allowed)
		}
		if seen[name] {
			return cfg, bad("must be given once")
		}
		seen[name] = true
		switch chance, time := chances[name], times[name]; {
		case chance != nil:
			if *chance, err = strconv.ParseFloat(value, 64); err != nil || !(*chance >= 0 && *chance < 1) { // NaN is neither
				return cfg, bad("must be a probability, at least 0 and less than 1, such as 0.01")
			}
		case time != nil:
			if *time, err = parseDelay(value); err != nil {
				return cfg, bad("must be a time of 0 to 1m, such as 2ms")
			}
		case name == "seed":
			if cfg.Seed, err = strconv.ParseUint(value, 0, 64); err != nil {
				return cfg, bad("must be a number of 64 bits")
			}
		default:
			return cfg, fail(verbs.EINVAL,
				"%s: unknown fault %q: must be loss, duplicate, reorder, corrupt, mark, delay, jitter or seed, each with =VALUE",
				envFault, name)
		}
	}
	return cfg, nil
}

// parseDelay parses a time of 0 to 1 minute.
func parseDelay(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > time.Minute) {
		err = strconv.ErrRange
	}
	return d, err
}

// withShm returns the link with shared memory to other processes of this host, or the link itself where that is not
// supported or VERBENA_SHM=0 disables it. iface is the interface of the addresses, empty if they are of several.
func withShm(l link.Link, addrs []netip.Addr, iface string) link.Link {
	ranges := l.Capabilities().QPNs
	if ranges == nil || !shm.Enabled() {
		return l
	}
	d := &shmDirectory{iface: iface}
	for _, r := range ranges {
		d.slots = append(d.slots, host.SlotOf(r.First))
	}
	s, err := shm.Wrap(l, d)
	if err != nil {
		return l // an old kernel, or a sandbox
	}
	if s.SetAddrs(addrs) != nil {
		return l
	}
	return s
}

const minQPN = 16 // the first QPN that is not well-known

// shmDirectory is a shm.Directory: a process is named by an address and a QPN slot that it owns (see package host).
// Its sockets are abstract ones, which exist in one network namespace, as the addresses do.
type shmDirectory struct {
	shm.Sockets
	slots []int
	iface string // as withShm says
}

// Owner names the process that has a QP. It returns an empty string for QP 1, whose packets package host distributes.
func (d *shmDirectory) Owner(addr netip.Addr, qpn uint32) string {
	if qpn < minQPN {
		return ""
	}
	return d.name(addr, host.SlotOf(qpn))
}

// name returns the name of the process of a slot of an address. Several interfaces may have the same link-local
// address: without the interface it names no process.
func (d *shmDirectory) name(addr netip.Addr, slot int) string {
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		if d.iface == "" {
			return ""
		}
		addr = addr.WithZone(d.iface)
	}
	return shmName(addr, slot)
}

// Recipient returns the last QP number of the slot in the communication ID of a packet for QP 1, and the ID; see
// shm.PostOffice.
func (d *shmDirectory) Recipient(pkt []byte) (qpn, conn uint32, ok bool) {
	id, ok := host.Recipient(pkt)
	_, qpn = host.QPNs(host.SlotOfID(id))
	return qpn, id, ok && id != 0
}

// shmName returns the name of the socket of an address and a QPN slot.
func shmName(addr netip.Addr, slot int) string {
	b := append(make([]byte, 0, 96), "@verbena-shm2/"...)
	b = append(strconv.AppendInt(b, int64(os.Geteuid()), 10), '/')
	b = append(strconv.AppendInt(b, wire.Port, 10), '/')
	b = append(addr.AppendTo(b), '/')
	return string(strconv.AppendInt(b, int64(slot), 10))
}

// Follow listens at the addresses; see shm.Follower.
func (d *shmDirectory) Follow(addrs []netip.Addr, accept func(*net.UnixConn)) {
	var names []string
	for _, a := range addrs {
		for _, slot := range d.slots {
			if name := d.name(a, slot); name != "" {
				names = append(names, name)
			}
		}
	}
	d.Listen(names, accept)
}
