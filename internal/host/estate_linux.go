package host

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bequest is a management datagram that the survivors of a process send to QP 1 of a peer: the last word of one of its connections.
type Bequest struct {
	To       netip.Addr
	TClass   uint8
	HopLimit uint8
	MAD      []byte // without the zeros behind its longest part, MaxBequest at most
}

// The estate is memory of all processes of a group. A header has a word for each lane, the number of slots that may be in use; then come the
// slots of each lane. The owner of the lane's name writes both. A slot is valid while its first word is not zero, which is stored last:
//
//	0   1 + length of the datagram, traffic class and hop limit, a byte each from the lowest one
//	8   the peer's address, 16 bytes
//	32  the datagram
const (
	estateSlots  = 1 << 14 // connections of a lane that others end for it; there may be more
	slotLen      = 128
	slotMAD      = 32
	laneLen      = estateSlots * slotLen
	estateHeader = 1 << 16 // a multiple of any page size, as laneLen is
	estateLen    = estateHeader + Lanes*laneLen

	// MaxBequest is the longest datagram, in bytes.
	MaxBequest = slotLen - slotMAD
)

type estate struct {
	fd     int
	header []byte

	mu    sync.Mutex // guards what follows
	lanes map[int]*lane
	gone  bool
}

// lane is the part of the estate of a lane that is ours.
type lane struct {
	estate *estate
	count  *atomic.Uint64
	mem    []byte
	free   []int
	next   int
}

// createEstate makes the memory, and returns -1 where that is not possible: then a process dies in silence.
func createEstate() (fd int) {
	fd, err := unix.MemfdCreate("verbena-estate", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1
	}
	if err = unix.Ftruncate(fd, estateLen); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1
	}
	return fd
}

// openEstate maps memory that this process or another one has made, nil if it is not what it should be.
func openEstate(fd int) *estate {
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW // so that no access can raise SIGBUS
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	var st unix.Stat_t
	if err != nil || got&seals != seals || unix.Fstat(fd, &st) != nil || st.Size != estateLen {
		return nil
	}
	e := &estate{fd: fd, lanes: map[int]*lane{}}
	if e.header, err = unix.Mmap(fd, 0, estateHeader, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil
	}
	return e
}

func word(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b[off : off+8 : off+8][0]))
}

func (e *estate) count(n int) *atomic.Uint64 { return word(e.header, 8*n) }

func (e *estate) mapLane(n int) ([]byte, error) {
	return unix.Mmap(e.fd, int64(estateHeader+n*laneLen), laneLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// left reads what the last owner of a lane has left. The caller has the lane's name.
func (e *estate) left(n int) (all []Bequest) {
	count := int(min(e.count(n).Load(), estateSlots))
	if count == 0 {
		return nil
	}
	mem, err := e.mapLane(n)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Munmap(mem) }()
	for i := range count {
		if b, ok := readSlot(mem[i*slotLen:][:slotLen]); ok {
			all = append(all, b)
		}
	}
	return all
}

func readSlot(s []byte) (b Bequest, ok bool) {
	w := word(s, 0).Load()
	n := int(w&0xff) - 1
	if n < 0 || n > MaxBequest {
		return b, false
	}
	b = Bequest{TClass: uint8(w >> 8), HopLimit: uint8(w >> 16), MAD: append([]byte(nil), s[slotMAD:slotMAD+n]...)}
	b.To = netip.AddrFrom16([16]byte(s[8:24])).Unmap()
	return b, true
}

func writeSlot(s []byte, b *Bequest) {
	word(s, 0).Store(0)
	to := b.To.As16()
	copy(s[8:], to[:])
	n := copy(s[slotMAD:], b.MAD)
	word(s, 0).Store(uint64(1+n) | uint64(b.TClass)<<8 | uint64(b.HopLimit)<<16)
}

// own is the part of a lane that is ours, nil if there is none.
func (e *estate) own(n int) *lane {
	l := e.lanes[n]
	if l != nil || e.gone {
		return l
	}
	mem, err := e.mapLane(n)
	if err != nil {
		return nil
	}
	l = &lane{estate: e, count: e.count(n), mem: mem}
	l.count.Store(0)
	e.lanes[n] = l
	return l
}

// close leaves nothing.
func (e *estate) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return
	}
	e.gone = true
	for _, l := range e.lanes {
		l.count.Store(0)
		_ = unix.Munmap(l.mem)
	}
	_ = unix.Munmap(e.header)
}

// Slot holds the last word of one connection. It is safe for concurrent use.
type Slot struct {
	lane *lane
	n    int
	to   Bequest // where to
}

// Bequeath makes an empty slot for the last words of a connection to a peer, in a lane that this process has claimed. nil if there is none.
func (g *Group) Bequeath(lane int, to netip.Addr, tclass, hopLimit uint8) *Slot {
	e := g.estate
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.own(lane)
	if l == nil || e.gone {
		return nil
	}
	s := &Slot{lane: l, n: l.next, to: Bequest{To: to.WithZone(""), TClass: tclass, HopLimit: hopLimit}}
	switch k := len(l.free); {
	case k > 0:
		s.n, l.free = l.free[k-1], l.free[:k-1]
	case l.next == estateSlots:
		return nil
	default:
		l.next++
	}
	return s
}

func (s *Slot) bytes() []byte { return s.lane.mem[s.n*slotLen:][:slotLen] }

// Set replaces what is sent when this process dies. It is copied, the first MaxBequest bytes of it; behind them a datagram has zeros.
func (s *Slot) Set(mad []byte) {
	e := s.lane.estate
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return
	}
	b := s.to
	b.MAD = mad[:min(len(mad), MaxBequest)]
	writeSlot(s.bytes(), &b)
	if n := uint64(s.n + 1); n > s.lane.count.Load() {
		s.lane.count.Store(n)
	}
}

// Drop gives the slot back: nothing is sent.
func (s *Slot) Drop() {
	e := s.lane.estate
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return
	}
	word(s.bytes(), 0).Store(0)
	s.lane.free = append(s.lane.free, s.n)
}

// Left is what the last owner of a lane, which this process has just claimed, has left to be sent.
func (g *Group) Left(lane int) []Bequest {
	if g.estate == nil {
		return nil
	}
	defer g.estate.count(lane).Store(0)
	return g.estate.left(lane)
}

// Times of the search for what the dead have left. The name of a process that is killed may go some time after its connection to the
// leader, so there are several rounds, with longer and longer pauses.
const (
	settleRounds = 16
	settleLonger = 8 // rounds
)

// settle begins to look for lanes without an owner, and sends what was left there.
func (g *Group) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.again = true
	if g.closed || g.settling || g.estate == nil || g.Send == nil {
		return
	}
	g.settling = true
	g.done.Go(g.settleAll)
}

func (g *Group) settleAll() {
	for round := 0; ; round++ {
		g.mu.Lock()
		if g.again {
			g.again, round = false, 0
		}
		if g.closed || round == settleRounds {
			g.settling = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		for n := range Lanes {
			g.inherit(n)
		}
		select {
		case <-time.After(pause << min(round, settleLonger)):
		case <-g.stopped:
		}
	}
}

// inherit sends what was left in a lane that nobody has. Whoever has its name is alive, or has just claimed it and sends it.
func (g *Group) inherit(n int) {
	if g.estate.count(n).Load() == 0 {
		return
	}
	box, err := g.names.open(laneName(n), func(Mail) {})
	if err != nil {
		return
	}
	defer box.Close()
	if left := g.estate.left(n); len(left) > 0 { // it may have closed in peace before we had the name
		g.Send(left)
	}
	g.estate.count(n).Store(0)
}
