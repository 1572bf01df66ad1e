package shm

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// outLane is the sending end of a lane.
type outLane struct {
	shape
	conn   *net.UnixConn
	raw    syscall.RawConn
	rings  *memory // ours
	heads  *memory // the receiver's
	status *memory // the receiver's
	tx     [][]*outRing
	table  portTable
	end    atomic.Uint32 // how the lane ended
	shares atomic.Pointer[[]*sharing]
	mu     sync.Mutex // guards changes of shares
}

// Ends of a lane.
const (
	laneLives uint32 = iota
	laneLeft         // the receiver has said so
	laneBroke        // the receiver died, or one of the two has found nonsense
)

// outRing is the ring from one port to one port of the receiver. The port that sends owns it.
type outRing struct {
	lane  *outLane
	prod  *ring.Producer
	flows flows
	sleep *atomic.Uint64 // of the receiver's port
	woken uint64         // the value of sleep for which it was woken
	wake  func(uintptr)  // writes the frame that wakes it; made once, since waking is part of sending
	bit   *atomic.Uint64
	from  uint64 // our bit in it
	dirty bool   // in the port's list of rings to publish

	gathered int // packets that the receiver may not see yet

	freed uint64    // when the ring was found full
	since time.Time // zero: it was not
}

// dialLane sets a lane up over a connection to its receiver.
func dialLane(c *net.UnixConn, ports int) (*outLane, error) {
	if err := errors.Join(sameUser(c), c.SetDeadline(time.Now().Add(handshake))); err != nil {
		return nil, err
	}
	l := &outLane{conn: c}
	l.shares.Store(new([]*sharing))
	size := defaultRing
	if ports > 4 {
		size /= 4
	}
	if err := sendFrame(c, frame{kind: frameHello, port: uint8(ports), size: uint32(size), word: magic}); err != nil {
		return nil, err
	}
	f, fds, err := expect(c, frameWelcome, 2)
	if err != nil {
		return nil, err
	}
	defer closeFDs(fds)
	l.shape = shape{n: ports, m: int(f.port), ring: size}
	if f.word != magic {
		return nil, syscall.EPROTO
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.heads, err = attach(fds[0], l.headsSize()); err != nil {
		return nil, err
	}
	if l.status, err = attach(fds[1], l.statusSize()); err != nil {
		return nil, err
	}
	if err := l.readNumbers(int(f.size)); err != nil {
		return nil, err
	}
	m, file, err := create(l.ringsSize())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l.rings = m
	if err := l.makeRings(); err != nil {
		return nil, err
	}
	if err := sendFrame(c, frame{kind: frameLane}, file); err != nil {
		return nil, err
	}
	if _, _, err := expect(c, frameReady, 0); err != nil {
		return nil, err
	}
	if l.raw, err = c.SyscallConn(); err != nil {
		return nil, err
	}
	return l, c.SetDeadline(time.Time{})
}

// readNumbers reads which QP numbers are whose at the receiver.
func (l *outLane) readNumbers(n int) error {
	l.table.ports = uint32(l.m)
	if n > l.m {
		return syscall.EPROTO
	}
	for range n {
		f, _, err := expect(l.conn, frameNumbers, 0)
		if err != nil {
			return err
		}
		if !l.table.set(int(f.port), f.size, uint32(min(f.word, 1<<32-1))) {
			return syscall.EPROTO
		}
	}
	return nil
}

func (l *outLane) makeRings() error {
	for i := range l.n {
		var row []*outRing
		for j := range l.m {
			at := l.ringAt(i, j)
			p, err := ring.NewProducer(l.rings.bytes[at:at+l.ring:at+l.ring], l.heads.word(l.headAt(i, j)))
			if err != nil {
				return err
			}
			b := frame{kind: frameWake, port: uint8(j)}.bytes()
			row = append(row, &outRing{
				lane: l, prod: p, sleep: l.status.word(sleepAt(j)), bit: l.rings.word(activeAt(j)), from: 1 << i,
				wake: func(fd uintptr) { writeNow(fd, b[:]) },
			})
		}
		l.tx = append(l.tx, row)
	}
	return nil
}

// watch returns when the lane ends.
func (l *outLane) watch() {
	end := laneBroke
	var b [frameLen]byte
	for {
		_, err := io.ReadFull(l.conn, b[:])
		f := parseFrame(b[:])
		if err == nil && f.kind == frameShared {
			l.shared(f.word, f.port == 1)
			continue
		}
		if err != nil || f.kind != frameBye {
			break
		}
		end = laneLeft
	}
	l.end.CompareAndSwap(laneLives, end)
	l.conn.Close()
}

// fail ends the lane because of nonsense; watch sees to the rest.
func (l *outLane) fail() {
	l.end.CompareAndSwap(laneLives, laneBroke)
	l.conn.Close()
}

// leave ends the lane on purpose.
func (l *outLane) leave() {
	b := frame{kind: frameBye}.bytes()
	l.write(b[:])
	l.end.CompareAndSwap(laneLives, laneLeft)
	l.conn.Close()
}

// write sends bytes without blocking.
func (l *outLane) write(b []byte) {
	_ = l.raw.Control(func(fd uintptr) { writeNow(fd, b) })
}

// writeNow sends bytes without blocking. What does not fit is not needed: the receiver has not read what came before it, and
// looks at everything when it does.
func writeNow(fd uintptr, b []byte) {
	_, _ = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

const (
	// chunk is how many bytes gather before the receiver may see them, and few how many packets, so that it is at work on some while we are on
	// others.
	chunk = 16 << 10
	few   = 16
	// patience is how long a full ring whose receiver takes nothing out holds packets back. Then they are lost, as in a network. A
	// receiver that lives may wait so long for a core.
	patience = 40 * time.Millisecond
)

// place is the place for a packet of n bytes; nil if there is none now. lost says that there will be none soon.
func (r *outRing) place(path *link.Path, n int, kind ring.Kind) (b []byte, lost bool) {
	if r.gathered == few || r.prod.Unpublished() >= chunk {
		r.prod.Publish()
		r.gathered = 0
	}
	number := r.flows.find(path)
	if number == noFlow {
		b := r.prod.Put(kindFlow, r.flows.next%maxFlows, flowLen)
		if b == nil {
			return nil, r.stuck()
		}
		f := flowOf(path)
		f.put(b)
		number = r.flows.add(path)
	}
	if b = r.prod.Put(kind, number, n); b == nil {
		return nil, r.stuck()
	}
	r.gathered++
	return b, false
}

// stuck tells whether the receiver has taken nothing out of a full ring for too long.
func (r *outRing) stuck() bool {
	if r.prod.Err() != nil {
		r.lane.fail()
		return true
	}
	r.publish() // what it waits for may be what it does not see yet
	now, freed := time.Now(), r.prod.Freed()
	if r.since.IsZero() || freed != r.freed {
		r.since, r.freed = now, freed
		return false
	}
	return now.Sub(r.since) > patience
}

// publish lets the receiver see the packets, and wakes its port if it sleeps: once for each sleep. It has stored that it
// sleeps before it looked at the ring for the last time, so either it saw the packets or we see that it sleeps.
func (r *outRing) publish() {
	r.prod.Publish()
	r.gathered = 0
	if s := r.sleep.Load(); s&1 != 0 && s != r.woken {
		r.woken = s
		_ = r.lane.raw.Control(r.wake)
	}
}
