package host

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/fdset"
)

// Config connects a group to the link.
type Config struct {
	// Open opens the next socket of the group, bound to its address. join is false for the first one, which is
	// bound alone. EADDRINUSE means that another program holds the port.
	Open func(join bool) (fd int, err error)
	// RecvBuffer is the requested size of the buffer of each socket in bytes, as SO_RCVBUF counts.
	RecvBuffer int
	// Loopback6: packets for IPv6 multicast groups arrive at the address itself; see udp.Link.Join.
	Loopback6 bool

	// Deliver receives packets that other processes received for this one. It may keep them.
	Deliver func(Mail)
	// Send sends the last wills of processes that have died.
	Send func([]Will)
	// Lead is called when this process becomes the reader of the socket of QP 1 and of that of strays, with
	// descriptors that it owns. Strays need not be read at once, and at a limited rate only. After an error, for want of
	// descriptors, it is called again.
	Lead func(gsi, strays int) error
	// Screen makes the screen of the requests for a process with a board; nil: there is none.
	Screen func(*board.Board) board.Screen
	// Lost is called when verbena serve has ended: the sockets of the slots receive nothing afterwards.
	Lost func(error)
}

// Receive buffers of one address, in bytes as the kernel accounts them: at most 16 MiB in all.
const (
	gsiBuffer   = 6<<20 - strayBuffer
	strayBuffer = 256 << 10
	slotBuffers = 10 << 20
	leastBuffer = 4 << 10 // of a socket that no process reads

	// memberBuffer limits the replies and the mail in the socket of one member, in bytes.
	memberBuffer = 64 << 10
)

// A leader serves the members of a group: it hands out sockets, records claims, and forwards mail.
type leader struct {
	key     Key
	cfg     *Config
	locks   *locks // nil if several users share the address, and so is wills
	wills   *wills
	sorter  sorter
	foreign sync.Map // of service IDs: the sessions of other processes that have claimed them

	mu     sync.Mutex // guards the following
	table  *table
	store  store
	filter requestFilter // as attached
	owned  []idRange     // as attached
	wide   bool          // all requests arrive at the socket of QP 1
	share  int           // buffer of each slot that has an owner, in bytes
	closed bool

	growing    bool // growLater runs
	sweepAgain bool // a new sweep is requested
	sweeping   bool // sweepAll runs

	// +checklocks:mu
	conns map[*net.UnixConn]struct{}
	// +checklocks:mu
	held []heldMail
	// +checklocks:mu
	former []formerOwner
	// +checklocks:mu
	local *session // of this process; nil in verbena serve
	// +checklocks:mu
	paces paces // of requests
	// +checklocks:mu
	connects paces
	// +checklocks:mu
	lastWills paces // that were collected

	multicast atomic.Pointer[[]netip.Addr] // IPv6 groups that members have joined
	reading   chan struct{}                // closed by startReading
	end       chan struct{}
	rejects   chan struct{} // has an element for each member that is being rejected
	done      sync.WaitGroup
	now       func() time.Time
}

func newLeader(key Key, cfg *Config, st store, lk *locks, w *wills) *leader {
	l := &leader{
		key: key, cfg: cfg, store: st, locks: lk, wills: w, table: newTable(lk == nil),
		conns: map[*net.UnixConn]struct{}{}, paces: paces{}, connects: paces{}, lastWills: paces{},
		reading: make(chan struct{}),
		end:     make(chan struct{}), rejects: make(chan struct{}, maxRejects), now: time.Now,
	}
	l.sorter.ready = make(chan struct{}, 1)
	l.multicast.Store(new([]netip.Addr))
	return l
}

// shared reports whether several users share the address.
func (l *leader) shared() bool { return l.locks == nil }

// slotSockets returns how many slots have sockets.
func (l *leader) slotSockets() int { return max(0, l.store.count()-FirstSlot) }

// grow opens the next chunk of sockets. mu is held, unless l is not shared yet.
func (l *leader) grow() (err error) {
	var fds []int
	defer func() { closeFDs(fds) }()
	have := l.store.count()
	for i := have; i < min(have+chunk, sockets); i++ {
		fd, err := l.cfg.Open(i > 0)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
		if i == 0 { // the first was bound alone: no other program holds the port
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return fmt.Errorf("link/udp: setsockopt SO_REUSEPORT to 1: %w", err)
			}
		}
		switch i {
		case GSI:
			setBuffer(fd, min(gsiBuffer, 2*l.cfg.RecvBuffer))
			continue
		case Strays:
			setBuffer(fd, strayBuffer)
			continue
		}
		setBuffer(fd, leastBuffer)
		if err := refuse(fd); err != nil {
			return fmt.Errorf("link/udp: setsockopt SO_ATTACH_FILTER: %w", err)
		}
	}
	all := fds
	fds = nil
	if err := l.store.add(all); err != nil {
		return err
	}
	return l.steer()
}

// steer attaches the program that chooses the socket of a packet.
func (l *leader) steer() (err error) {
	l.filter, l.owned = l.requests(), l.table.ownedSlots()
	prog := steering(l.slotSockets(), l.owned, l.cfg.Loopback6, l.filter)
	e := l.store.use(0, func(fds []int) { err = steer(fds[0], prog) })
	return errors.Join(e, err)
}

// requests returns the requests that arrive at the socket of QP 1.
func (l *leader) requests() requestFilter {
	if l.wide {
		return allRequests
	}
	return newRequestFilter(l.table.claimed)
}

// resteer attaches the program again after service IDs or slots were claimed or released. If it cannot be attached,
// requests and the messages of new connections arrive at the socket of strays.
func (l *leader) resteer() {
	if !l.requests().equal(l.filter) || !slices.Equal(l.table.ownedSlots(), l.owned) {
		_ = l.steer()
	}
}

// use calls f with the socket of index i.
func (l *leader) use(i int, f func(fd int)) error {
	err := error(unix.EBADF)
	e := l.store.use(i/chunk*chunk, func(fds []int) {
		if i%chunk < len(fds) {
			f(fds[i%chunk])
			err = nil
		}
	})
	return errors.Join(e, err)
}

// duplicate returns a descriptor of the socket of index i.
func (l *leader) duplicate(i int) (fd int, err error) {
	if e := l.use(i, func(of int) { fd, err = fdset.Dup(of) }); e != nil {
		return -1, e
	}
	return fd, err
}

// startReading passes on the sockets that the leader reads. It fails if the process has no descriptors left.
func (l *leader) startReading() error {
	l.mu.Lock()
	gsi, err := l.duplicate(GSI)
	strays := -1
	if err == nil {
		strays, err = l.duplicate(Strays)
	}
	l.mu.Unlock()
	if err != nil {
		closeFDs([]int{gsi, strays})
		return fmt.Errorf("link/udp: duplicating the sockets of QP 1: %w", err)
	}
	if err := l.cfg.Lead(gsi, strays); err != nil {
		return err
	}
	close(l.reading)
	return nil
}

// handle answers a request. The caller owns the descriptors of an answer to a claim.
func (l *leader) handle(s *session, f frame) (reply frame, fds []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply = frame{kind: kindReply, slot: f.slot, id: f.id, seq: f.seq}
	if l.closed { // see leave
		reply.errno = unix.ENETDOWN
		return reply, nil
	}
	switch f.kind {
	case kindJoin:
		reply.id = version
		fds, reply.errno = l.join(s, f)
	case kindClaim:
		reply.slot, fds, reply.errno = l.claim(s, f)
	case kindRelease:
		reply.errno = unix.EINVAL
		if l.table.has(s, f.slot) {
			l.unwatch(s, f.slot)
			l.table.unassign(s, f.slot)
			l.release(f.slot)
			reply.errno = 0
		}
	case kindListen:
		if reply.errno = l.table.listen(s, f.id); reply.errno == 0 && s.send != nil {
			l.foreign.Store(f.id, s)
			l.releaseHeld(f.id, s)
		}
		l.resteer()
	case kindUnlisten:
		l.foreign.CompareAndDelete(f.id, s)
		if l.table.unlisten(s, f.id) {
			l.noteRelease(f.id, s)
		}
		l.resteer()
	case kindEnter:
		reply.errno = l.table.enter(s, f.addr)
		l.listMulticast()
	case kindLeave:
		l.table.leave(s, f.addr)
		l.listMulticast()
	default:
		reply.errno = unix.EINVAL
	}
	return reply, fds
}

// join returns the descriptors that a new member needs besides its sockets. The leader owns them.
func (l *leader) join(s *session, f frame) (fds []int, errno syscall.Errno) {
	if f.id != version {
		return nil, unix.EPROTO
	}
	if f.resume {
		return nil, 0
	}
	if v, ok := l.store.(*vault); ok {
		return []int{v.fd, l.locks.fd}, 0
	}
	if s.will != nil {
		return nil, unix.EALREADY
	}
	fd, err := createWills(1)
	if err != nil {
		return nil, errnoOf(err)
	}
	if s.will, err = openWills(fd, 1); err != nil {
		unix.Close(fd)
		return nil, errnoOf(err)
	}
	l.watch(s, s.will, 0)
	return []int{fd}, 0
}

// watch makes the screen of a member: by the board of its first slot, or of its own memory.
func (l *leader) watch(s *session, w *wills, n int) {
	if s.send == nil || l.cfg.Screen == nil || s.screen.Load() != nil {
		return
	}
	if b := w.board(n); b != nil {
		screen := l.cfg.Screen(b)
		s.screen.Store(&screen)
	}
}

// unwatch replaces the screen of a member that releases a slot, if it was made by the board of that slot: the next
// owner writes to that.
func (l *leader) unwatch(s *session, n int) {
	if l.shared() || s.slots[0] != n {
		return
	}
	s.screen.Store(nil)
	if len(s.slots) > 1 {
		l.watch(s, l.wills, s.slots[1])
	}
}

// screen reports whether a datagram for QP 1 is a request that another process has claimed, and whether it is dropped
// because that process gets too many.
func (l *leader) screen(mad []byte) (foreign, drop bool) {
	id, ok := requested(mad)
	if !ok {
		return false, false
	}
	s, ok := l.foreign.Load(id)
	if !ok {
		return false, false
	}
	screen := s.(*session).screen.Load()
	return true, screen != nil && (*screen).Drop(mad)
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != 0 {
		return errno
	}
	return unix.EIO
}

// busy reports whether a process owns a slot that no member has claimed from this leader.
func (l *leader) busy(n int) bool { return l.locks != nil && l.locks.taken(int64(n)) }

// claim assigns a slot to a member and returns a descriptor of its socket.
func (l *leader) claim(s *session, f frame) (n int, fds []int, errno syscall.Errno) {
	if f.resume {
		if l.shared() || f.slot < 0 || f.slot >= l.slotSockets() || l.table.slots[f.slot].owner != nil {
			return f.slot, nil, unix.EADDRINUSE
		}
		l.table.assign(s, f.slot)
		l.resteer()
		l.watch(s, l.wills, f.slot)
		return f.slot, nil, l.prepare(f.slot, true)
	}
	if errno := l.table.allowed(s); errno != 0 {
		return f.slot, nil, errno
	}
	if n = f.slot; n < 0 {
		if n = l.table.candidate(s, l.slotSockets(), l.busy); n < 0 {
			n = l.slotSockets()
		}
	}
	if n >= Slots {
		return f.slot, nil, unix.EUSERS
	}
	for n >= l.slotSockets() {
		if err := l.grow(); err != nil {
			return n, nil, errnoOf(err)
		}
	}
	if !l.table.mayHave(s, n) || l.busy(n) {
		return n, nil, unix.EADDRINUSE
	}
	if l.table.exceeds(s, n) {
		return n, nil, unix.EDQUOT
	}
	l.sendWills(n)
	l.table.assign(s, n)
	l.resteer()
	l.watch(s, l.wills, n)
	errno = l.prepare(n, false)
	if st := &l.table.slots[n]; errno == 0 && l.shared() && !st.confined {
		if err := l.use(FirstSlot+n, func(fd int) { errno = errnoOrZero(confine(fd, n)) }); err != nil {
			errno = errnoOf(err)
		}
		st.confined = errno == 0
	}
	if errno == 0 {
		fd, err := l.duplicate(FirstSlot + n)
		if err == nil {
			return n, []int{fd}, 0
		}
		errno = errnoOf(err)
	}
	l.unwatch(s, n)
	l.table.unassign(s, n)
	l.free(n)
	return n, nil, errno
}

func errnoOrZero(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return errnoOf(err)
}

// prepare opens the socket of a slot for its owner. It keeps packets that have arrived already if resume is set.
func (l *leader) prepare(n int, resume bool) syscall.Errno {
	l.divide()
	err := l.use(FirstSlot+n, func(fd int) {
		if !resume {
			drain(fd)
		}
		setBuffer(fd, l.share)
		if !l.shared() {
			admit(fd)
		}
	})
	return errnoOrZero(err)
}

// shareOf returns the buffer of each slot in bytes if owned slots have an owner: an equal part of the bound, divided by
// a power of two so that it rarely changes, and not more than the kernel accounts for the requested size.
func shareOf(owned, requested int) int {
	return min(slotBuffers>>bits.Len(uint(max(1, owned)-1)), 2*requested)
}

// divide divides the receive buffer space among the slots that have an owner. mu is held.
func (l *leader) divide() {
	share := shareOf(l.table.owned(), l.cfg.RecvBuffer)
	if share > l.share && l.share > 0 && l.shared() {
		if !l.growing && !l.closed {
			l.growing = true
			l.done.Go(l.growLater)
		}
		return
	}
	l.setShare(share)
}

// growTime is the time after which the buffers grow, if several users share the address. A member that claims and
// releases a slot again and again would otherwise have the buffers of all slots set each time.
const growTime = time.Second

func (l *leader) growLater() {
	select {
	case <-time.After(growTime):
	case <-l.end:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.growing = false
	if !l.closed {
		l.setShare(shareOf(l.table.owned(), l.cfg.RecvBuffer))
	}
}

// setShare sets the buffers of the slots that have an owner. mu is held.
func (l *leader) setShare(share int) {
	if share == l.share {
		return
	}
	l.share = share
	for first := 0; first < l.store.count(); first += chunk {
		_ = l.store.use(first, func(fds []int) {
			for i, fd := range fds {
				n := first + i - FirstSlot
				if n >= 0 && (l.table.slots[n].owner != nil || l.table.slots[n].held) {
					setBuffer(fd, share)
				}
			}
		})
	}
}

// listMulticast publishes the IPv6 groups that members have joined. mu is held.
func (l *leader) listMulticast() {
	var all []netip.Addr
	for a := range l.table.groups {
		if a.Is6() {
			all = append(all, a)
		}
	}
	l.multicast.Store(&all)
}
