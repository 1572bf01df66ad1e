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

	"github.com/verbena-rdma/verbena/internal/link"
)

// Link is a link that goes through shared memory to processes of this host, and through another link to everybody else.
type Link struct {
	link.Link // the other one
	dir       Directory
	ports     []*port
	status    *memory
	file      *os.File // of status
	hold      time.Duration

	in     atomic.Pointer[[]*inLane]
	onLost atomic.Pointer[func()]

	mu     sync.Mutex // guards what follows, and changes of in
	hops   map[string]*hop
	greet  map[*net.UnixConn]bool // connections on which lanes are being set up
	closed bool
	done   sync.WaitGroup // goroutines
}

// hop is the way to one process.
type hop struct {
	lane    *outLane // nil until it is set up
	waiting []*route // for that
}

// route is where packets for one QP go.
type route struct {
	lane  atomic.Pointer[outLane]
	state atomic.Uint32
	begun time.Time
}

const (
	routeWaits uint32 = iota // for its lane
	routeOther               // over the other link
	routeLane
	routeDead // the process ended before the lane was set up; over the other link too
)

// holdBack is how long packets wait at most for a lane to be set up, so that they do not overtake
// those that went the other way before. Those of a path that must stay in order wait until it is clear which way they go.
const holdBack = 20 * time.Millisecond

// maxInLanes bounds what other processes can make us hold.
const maxInLanes = 4096

// Wrap makes a link that finds processes of this host with dir, and uses l for everything else. Closing it closes l. The
// caller passes incoming connections to Accept.
func Wrap(l link.Link, dir Directory) (link.Link, error) {
	s := &Link{Link: l, dir: dir, hold: holdBack, hops: make(map[string]*hop), greet: make(map[*net.UnixConn]bool)}
	s.in.Store(new([]*inLane))
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

// Unwrap is the other link.
func (l *Link) Unwrap() link.Link { return l.Link }

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// RecvBuffer is that of the other link, 0 if it has none.
func (l *Link) RecvBuffer() int {
	if b, ok := l.Link.(interface{ RecvBuffer() int }); ok {
		return b.RecvBuffer()
	}
	return 0
}

// SetAddrs replaces the local addresses, for the directory too if it wants to know them.
func (l *Link) SetAddrs(addrs []netip.Addr) error {
	if err := l.Link.SetAddrs(addrs); err != nil {
		return err
	}
	if f, ok := l.dir.(Follower); ok {
		f.Follow(addrs, l.Accept)
	}
	return nil
}

// OnLost has f called when a lane to a process has ended; see link.Neighbours.
func (l *Link) OnLost(f func()) { l.onLost.Store(&f) }

// Lost tells how the way to the QP at the end of a prepared path is lost; see link.Neighbours.
func (l *Link) Lost(path *link.Path) link.Loss {
	r, _ := path.Route.(*route)
	switch {
	case r == nil:
		return link.NotLost
	case r.state.Load() == routeDead:
		return link.PeerDied
	case r.lane.Load() == nil:
		return link.NotLost
	}
	switch r.lane.Load().end.Load() {
	case laneLeft:
		return link.PeerLeft
	case laneBroke:
		return link.PeerDied
	}
	return link.NotLost
}

// Prepare looks for the process at the end of a path; see link.Neighbours.
func (l *Link) Prepare(path *link.Path, qpn uint32) (near bool) {
	r := l.route(path.Dst, qpn)
	path.Route = r
	return r.state.Load() != routeOther
}

// route finds out where packets for a QP go. It does not wait for a lane to be set up.
func (l *Link) route(dst netip.Addr, qpn uint32) *route {
	r := &route{begun: time.Now()}
	name := ""
	if !dst.IsMulticast() {
		name = l.dir.Owner(dst, qpn)
	}
	l.mu.Lock()
	if name == "" || l.closed {
		r.state.Store(routeOther)
		l.mu.Unlock()
		return r
	}
	h := l.hops[name]
	if h != nil {
		if h.lane != nil {
			r.settle(h.lane, routeOther)
		} else {
			h.waiting = append(h.waiting, r)
		}
		l.mu.Unlock()
		return r
	}
	h = &hop{waiting: []*route{r}}
	l.hops[name] = h
	l.mu.Unlock()
	c, err := l.dir.Dial(name)
	if err != nil || !l.greeting(c) {
		l.reached(name, h, nil, routeOther)
		return r
	}
	go l.reach(name, h, c)
	return r
}

// settle says what became of the lane that a route waits for; if that is nil, otherwise says what packets do instead.
func (r *route) settle(l *outLane, otherwise uint32) {
	if l == nil {
		r.state.Store(otherwise)
		return
	}
	r.lane.Store(l)
	r.state.Store(routeLane)
}

// reach sets a lane to a process up and watches it until it ends.
func (l *Link) reach(name string, h *hop, c *net.UnixConn) {
	defer l.done.Done()
	lane, err := dialLane(c, len(l.ports))
	if !l.greeted(c) && err == nil {
		lane.leave()
		err = net.ErrClosed
	}
	if err != nil {
		c.Close()
		if !ended(err) {
			l.reached(name, h, nil, routeOther)
			return
		}
		l.reached(name, h, nil, routeDead)
	} else {
		l.reached(name, h, lane, routeLane)
		lane.watch()
	}
	l.mu.Lock()
	if l.hops[name] == h {
		delete(l.hops, name)
	}
	closed := l.closed
	l.mu.Unlock()
	if f := l.onLost.Load(); f != nil && !closed {
		(*f)()
	}
}

// ended tells whether a lane could not be set up because the other process has ended. One that does not want a lane says so.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// reached tells those who wait what became of the lane to a process; if that is nil, otherwise says what they do instead.
func (l *Link) reached(name string, h *hop, lane *outLane, otherwise uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range h.waiting {
		r.settle(lane, otherwise)
	}
	h.waiting, h.lane = nil, lane
	if lane == nil {
		delete(l.hops, name)
	}
}

// greeting notes that a lane is being set up over c by a goroutine that is about to start, unless the link is closed: then c is closed too.
func (l *Link) greeting(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return false
	}
	l.greet[c] = true
	l.done.Add(1)
	return true
}

// greeted says that the setting up has ended, and tells whether the link is still open.
func (l *Link) greeted(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.greet, c)
	return !l.closed
}

// Accept takes a connection on which another process, or this one, wants to set a lane to this link up.
func (l *Link) Accept(c *net.UnixConn) {
	if l.greeting(c) {
		go l.receive(c)
	}
}

func (l *Link) receive(c *net.UnixConn) {
	defer l.done.Done()
	lane, err := acceptLane(c, len(l.ports), spansOf(l.Link, len(l.ports)), l.file)
	l.greeted(c)
	if err == nil {
		err = l.add(lane)
	}
	if err != nil {
		_ = sendFrame(c, frame{kind: frameBye}) // it is no end of ours
		c.Close()
		return
	}
	lane.watch(func(p int) { l.ports[p].inner.Wake() })
	for _, p := range l.ports {
		p.inner.Wake() // to take the rest of it
	}
}

// add lets the ports look at a lane, and its sender use it.
func (l *Link) add(lane *inLane) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(*l.in.Load()) >= maxInLanes {
		return net.ErrClosed
	}
	next := append(slices.Clone(*l.in.Load()), lane)
	l.in.Store(&next)
	if err := lane.start(); err != nil {
		lane.stop()
		return nil // watch finds out too, and the ports
	}
	return nil
}

// remove forgets a lane that has ended and is empty.
func (l *Link) remove(lane *inLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*l.in.Load()), func(o *inLane) bool { return o == lane })
	l.in.Store(&next)
}

// Close closes the lanes and the other link.
func (l *Link) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		for _, h := range l.hops {
			if h.lane != nil {
				h.lane.leave()
			}
		}
		for _, lane := range *l.in.Load() {
			lane.leave()
		}
		l.in.Store(new([]*inLane))
		for c := range l.greet {
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
