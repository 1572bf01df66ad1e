package shm

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// A Link sends through shared memory to processes of this host, and over another link to all others.
type Link struct {
	link.Link // the other link
	dir       Directory
	mail      PostOffice // dir, if it is one; else nil
	ports     []*port
	status    *memory
	file      *os.File // of status
	hold      time.Duration

	sources  sources
	own      atomic.Pointer[[]netip.Addr] // the local addresses without zones; nil: not known, and all are admitted
	ringSets int                          // limit of ring sets from other processes

	screen atomic.Pointer[link.Screen] // see SetScreen
	in     atomic.Pointer[[]*rxRings]
	onLost atomic.Pointer[func()]

	mu sync.Mutex // guards the following, and changes of in
	// +checklocks:mu
	processes map[string]*process
	// +checklocks:mu
	handshakes map[*net.UnixConn]bool // connections with a handshake in progress
	// +checklocks:mu
	incoming int // handshakes that other processes have started
	// +checklocks:mu
	closed bool
	done   sync.WaitGroup // goroutines
}

// A process is the state of the connection to one process.
type process struct {
	rings   *txRings // nil until the handshake has succeeded
	route   *route   // through the rings; nil until then
	waiting []*route // for the handshake
}

// A route is the way of packets for one QP, or for all whose packets go through the same rings.
type route struct {
	rings atomic.Pointer[txRings]
	state atomic.Uint32
	begun time.Time
	early atomic.Int32 // datagrams that have not waited for the handshake
}

const (
	routeWaits uint32 = iota // for the handshake
	routeOther               // over the other link
	routeRings               // through rings
	routeDead                // the process ended during the handshake; over the other link too
)

// holdBack limits how long packets wait for a handshake, so that they are not reordered with earlier packets over the
// other link. Packets of a path that must stay in order wait until the handshake has ended.
const holdBack = 20 * time.Millisecond

// maxRingSets limits the ring sets from other processes, each of which has a descriptor: at most a quarter of those
// that this process can open. maxIncoming limits the handshakes in progress.
const (
	maxRingSets = 4096
	maxIncoming = 64
)

func ringSetsAllowed() int {
	n := fdset.Limit()
	if n == 0 {
		return maxRingSets
	}
	return min(n/4, maxRingSets)
}

// Wrap returns a link that finds processes of this host with dir, and uses l for all others. Closing it closes l. The
// caller passes incoming connections to Accept.
func Wrap(l link.Link, dir Directory) (link.Link, error) {
	s := &Link{Link: l, dir: dir, hold: holdBack, processes: make(map[string]*process),
		handshakes: make(map[*net.UnixConn]bool)}
	s.in.Store(new([]*rxRings))
	s.ringSets = ringSetsAllowed()
	if v, ok := dir.(Surveyor); ok {
		s.sources.local = v.Local
	}
	s.mail, _ = dir.(PostOffice)
	inner := l.Ports()
	if len(inner) > maxPorts {
		return l, nil
	}
	var err error
	if s.status, s.file, err = create(shape{m: len(inner)}.statusSize()); err != nil {
		return nil, err
	}
	for i, p := range inner {
		s.ports = append(s.ports, newPort(s, i, p))
	}
	return s, nil
}

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// Capabilities returns those of the other link, with Neighbours.
func (l *Link) Capabilities() link.Capabilities {
	c := l.Link.Capabilities()
	c.Neighbours = l
	if c.Screener != nil {
		c.Screener = l
	}
	return c
}

// SetAddrs replaces the local addresses, also in the directory if it is a Follower.
func (l *Link) SetAddrs(addrs []netip.Addr) error {
	if err := l.Link.SetAddrs(addrs); err != nil {
		return err
	}
	own := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		own[i] = a.Unmap().WithZone("")
	}
	l.own.Store(&own)
	if f, ok := l.dir.(Follower); ok {
		f.Follow(addrs, l.Accept)
	}
	return nil
}

// owns reports whether packets may be for an address: over UDP the kernel delivers only those for local addresses.
func (l *Link) owns(dst netip.Addr) bool {
	own := l.own.Load()
	return own == nil || slices.Contains(*own, dst)
}

// admits reports whether the sender of a ring set may send packets of a flow.
func (l *Link) admits(r *rxRings, f *flow, now int64) bool {
	return l.owns(f.dst) && l.sources.admit(r, f.src, now)
}

// OnLost sets the function that is called after a ring set to a process has ended; see link.Neighbours.
func (l *Link) OnLost(f func()) { l.onLost.Store(&f) }

// Lost returns whether and why the process at the end of a prepared path is lost; see link.Neighbours.
func (l *Link) Lost(path *link.Path) link.Loss {
	r, _ := path.Route.(*route)
	switch {
	case r == nil:
		return link.NotLost
	case r.state.Load() == routeDead:
		return link.PeerDied
	case r.rings.Load() == nil:
		return link.NotLost
	}
	switch r.rings.Load().end.Load() {
	case ringsClosed:
		return link.PeerLeft
	case ringsBroken:
		return link.PeerDied
	}
	return link.NotLost
}

// Prepare finds the process at the end of a path; see link.Neighbours.
func (l *Link) Prepare(path *link.Path, qpn uint32) (near bool) {
	r := l.route(path.Dst, qpn)
	path.Route = r
	return r.state.Load() != routeOther
}

// route returns the route of packets for a QP. It does not wait for the handshake.
func (l *Link) route(dst netip.Addr, qpn uint32) *route {
	name := ""
	if !dst.IsMulticast() {
		name = l.dir.Owner(dst, qpn)
	}
	l.mu.Lock()
	h := l.processes[name]
	if h != nil && h.rings != nil && !l.closed && h.rings.alive() { // otherwise another process may have the name by now
		l.mu.Unlock()
		return h.route
	}
	r := &route{begun: time.Now()}
	switch {
	case name == "" || l.closed:
		r.state.Store(routeOther)
		l.mu.Unlock()
		return r
	case h != nil && h.rings == nil:
		h.waiting = append(h.waiting, r)
		l.mu.Unlock()
		return r
	}
	h = &process{waiting: []*route{r}}
	l.processes[name] = h
	l.mu.Unlock()
	c, err := l.dir.Dial(name)
	if err != nil || !l.beginHandshake(c) {
		l.connected(name, h, nil, routeOther)
		return r
	}
	go l.connect(name, h, c)
	return r
}

// resolve ends the wait of a route: with the ring set or, if it is nil, with the state otherwise.
func (r *route) resolve(l *txRings, otherwise uint32) {
	if l == nil {
		r.state.Store(otherwise)
		return
	}
	r.rings.Store(l)
	r.state.Store(routeRings)
}

// connect does the handshake with a process and watches the ring set until it ends.
func (l *Link) connect(name string, h *process, c *net.UnixConn) {
	defer l.done.Done()
	rings, err := dialRings(c, len(l.ports))
	if !l.endHandshake(c) && err == nil {
		rings.leave()
		err = net.ErrClosed
	}
	if err != nil {
		_ = untrusted.Close(c)
		if !ended(err) {
			l.connected(name, h, nil, routeOther)
			return
		}
		l.connected(name, h, nil, routeDead)
	} else {
		l.connected(name, h, rings, routeRings)
		rings.watch()
	}
	l.mu.Lock()
	if l.processes[name] == h {
		delete(l.processes, name)
	}
	closed := l.closed
	l.mu.Unlock()
	if f := l.onLost.Load(); f != nil && !closed {
		(*f)()
	}
}

// ended reports whether a handshake failed because the other process has ended. A process that refuses it sends a
// bye.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// connected resolves the waiting routes to a process: with the ring set or, if it is nil, with the state otherwise. If
// the link was closed meanwhile, the ring set ends at once.
func (l *Link) connected(name string, h *process, rings *txRings, otherwise uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range h.waiting {
		r.resolve(rings, otherwise)
	}
	h.waiting, h.rings = nil, rings
	if rings == nil {
		delete(l.processes, name)
		return
	}
	h.route = new(route)
	h.route.resolve(rings, otherwise)
	if l.closed {
		rings.leave()
	}
}

// beginHandshake records a handshake over c, for a goroutine that is about to start. If the link is closed, it closes
// c and returns false.
func (l *Link) beginHandshake(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = untrusted.Close(c)
		return false
	}
	l.handshakes[c] = true
	l.done.Add(1)
	return true
}

// endHandshake removes the record, and reports whether the link is still open.
func (l *Link) endHandshake(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshakes, c)
	return !l.closed
}

// Accept takes over a connection on which another process, or this one, starts the handshake of a ring set to this
// link.
func (l *Link) Accept(c *net.UnixConn) {
	if sameUser(c) != nil { // before the connection counts; Sockets leaves these out
		refuse(c)
		return
	}
	l.mu.Lock()
	full := l.incoming >= maxIncoming
	if !full {
		l.incoming++
	}
	l.mu.Unlock()
	switch {
	case full:
		refuse(c)
	case l.beginHandshake(c):
		go l.receive(c)
	default:
		l.endAccept()
	}
}

// endAccept removes a handshake from incoming.
func (l *Link) endAccept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.incoming--
}

// refuse ends a connection. The bye shows that this process lives.
func refuse(c *net.UnixConn) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_ = sendFrame(c, frame{kind: frameBye})
	_ = untrusted.Close(c)
}

func (l *Link) receive(c *net.UnixConn) {
	defer l.done.Done()
	rings, err := acceptRings(c, len(l.ports), l.Link.Capabilities().QPNs, l.file)
	l.endAccept()
	l.endHandshake(c)
	if err == nil {
		err = l.add(rings)
	}
	if err != nil {
		refuse(c)
		return
	}
	rings.watch(func(p int) { l.ports[p].inner.Wake() })
	for _, p := range l.ports {
		p.inner.Wake() // to receive the remaining packets
	}
}

// add makes the ports read a ring set, and permits the sender to use it.
func (l *Link) add(rings *rxRings) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(*l.in.Load()) >= l.ringSets {
		return net.ErrClosed
	}
	next := append(slices.Clone(*l.in.Load()), rings)
	l.in.Store(&next)
	if err := rings.start(); err != nil {
		rings.stop()
		return nil // watch and the ports notice the end too
	}
	return nil
}

// remove removes a ring set that has ended and is empty.
func (l *Link) remove(rings *rxRings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*l.in.Load()), func(o *rxRings) bool { return o == rings })
	l.in.Store(&next)
}

// Close closes the ring sets and the other link.
func (l *Link) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		for _, h := range l.processes {
			if h.rings != nil {
				h.rings.leave()
			}
		}
		for _, rings := range *l.in.Load() {
			rings.leave()
		}
		l.in.Store(new([]*rxRings))
		for c := range l.handshakes {
			c.Close()
		}
	}
	l.mu.Unlock()
	if f, ok := l.dir.(Follower); ok {
		f.Follow(nil, nil)
	}
	err := l.Link.Close()
	l.done.Wait()
	l.file.Close()
	return err
}
