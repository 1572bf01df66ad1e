package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/secret"
)

// A txRings is the sending end of a ring set.
type txRings struct {
	shape
	conn   *net.UnixConn
	raw    syscall.RawConn
	rings  *memory // of this process
	heads  *memory // of the receiver
	status *memory // of the receiver
	tx     [][]*txRing
	table  portTable
	end    atomic.Uint32 // how the ring set ended
	shares atomic.Pointer[[]*sharing]
	away   atomic.Bool // the receiver reads memory of this process
	id     uint64      // random; acknowledgements of counted requests have it
	mu     sync.Mutex  // guards changes of shares
}

// States of a ring set at the sender.
const (
	ringsOpen   uint32 = iota // open
	ringsClosed               // the receiver has closed its device
	ringsBroken               // the receiver died, or an end has found an invalid value
)

// A txRing is the ring from one port to one port of the receiver. The sending port owns it.
type txRing struct {
	rings *txRings
	prod  ring.Producer
	flows flows
	sleep *atomic.Uint64 // of the port of the receiver
	woken uint64         // the value of sleep at the last wake-up
	wake  func(uintptr)  // writes the wake frame; created once, since waking is part of sending
	bit   *atomic.Uint64
	from  uint64  // the bit of the port in bit
	dirty bool    // in the list of rings that the port publishes
	after *txRing // the next in that list

	gathered int    // packets not yet published
	single   uint32 // kind and flow of the last of them if that may become a pair; otherwise 0
	counted  counted

	freed uint64    // the freed position when the ring was found full
	since time.Time // when the ring was found full; zero: it was not
}

// dialRings does the handshake over a connection to the receiver.
func dialRings(c *net.UnixConn, ports int) (*txRings, error) {
	if err := errors.Join(sameUser(c), c.SetDeadline(time.Now().Add(handshakeTimeout))); err != nil {
		return nil, err
	}
	l := &txRings{conn: c, id: secret.Uint64()}
	l.shares.Store(new([]*sharing))
	err := l.greet(ports)
	if err == nil {
		err = l.sendRings()
	}
	if err != nil {
		return nil, err
	}
	if l.raw, err = c.SyscallConn(); err != nil {
		return nil, err
	}
	if directAllowed() {
		if err := sendFrame(c, l.offer()); err != nil {
			return nil, err
		}
	}
	return l, c.SetDeadline(time.Time{})
}

// greet is the first half of the handshake: the shape of the ring set, the receiver's memory and its numbers.
func (l *txRings) greet(ports int) error {
	size := defaultRing
	if ports > 4 {
		size /= 4
	}
	if err := ask(l.conn, frame{kind: frameHello, port: uint8(ports), size: uint32(size), word: magic}); err != nil {
		return err
	}
	f, fds, err := expect(l.conn, frameWelcome, 2)
	if err != nil {
		return err
	}
	defer closeFDs(fds)
	l.shape = shape{n: ports, m: int(f.port), ring: size}
	if f.word != magic {
		return syscall.EPROTO
	}
	if err := l.check(); err != nil {
		return err
	}
	if l.heads, err = attach(fds[0], l.headsSize()); err != nil {
		return err
	}
	if l.status, err = attach(fds[1], l.statusSize()); err != nil {
		return err
	}
	return l.readNumbers(int(f.size))
}

// sendRings is the second half: it makes the rings and waits until the receiver has them.
func (l *txRings) sendRings() error {
	m, file, err := create(l.ringsSize())
	if err != nil {
		return err
	}
	defer file.Close()
	l.rings = m
	if err := l.makeRings(); err != nil {
		return err
	}
	if err := ask(l.conn, frame{kind: frameRings, word: l.id}, file); err != nil {
		return err
	}
	_, _, err = expect(l.conn, frameReady, 0)
	return err
}

// ask writes a frame to a process that may have refused the handshake already, and closed its end. Then its bye shows
// that it lives: the error is not one that ended reports.
func ask(c *net.UnixConn, f frame, files ...*os.File) error {
	err := sendFrame(c, f, files...)
	if err == nil || !ended(err) {
		return err
	}
	if _, _, none := expect(c, frameBye, 0); none == nil {
		return fmt.Errorf("link/shm: the peer refuses the handshake: %w", syscall.ECONNREFUSED)
	}
	return err
}

// readNumbers reads the ranges of QP numbers of the receiver's ports.
func (l *txRings) readNumbers(n int) error {
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

func (l *txRings) makeRings() error {
	for i := range l.n {
		var row []*txRing
		for j := range l.m {
			at := l.ringAt(i, j)
			p, err := ring.NewProducer(l.rings.bytes[at:at+l.ring:at+l.ring], l.heads.word(l.headAt(i, j)))
			if err != nil {
				return err
			}
			b := frame{kind: frameWake, port: uint8(j)}.bytes()
			row = append(row, &txRing{
				rings: l, prod: *p, sleep: l.status.word(sleepAt(j)), bit: l.rings.word(activeAt(j)), from: 1 << i,
				wake: func(fd uintptr) { writeNow(fd, b[:]) },
			})
		}
		l.tx = append(l.tx, row)
	}
	return nil
}

// watch reads frames of the receiver until the ring set ends.
func (l *txRings) watch() {
	end := ringsBroken
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
		end = ringsClosed
	}
	l.end.CompareAndSwap(ringsOpen, end)
	l.conn.Close()
}

// alive reports whether the receiver lives, so far as the kernel knows: watch may not have run since it ended.
func (l *txRings) alive() bool {
	ended := true
	if l.end.Load() == ringsOpen {
		_ = l.raw.Control(func(fd uintptr) {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
			ended = n > 0
		})
	}
	return !ended
}

// fail ends the ring set because of an invalid value.
func (l *txRings) fail() {
	l.end.CompareAndSwap(ringsOpen, ringsBroken)
	l.conn.Close()
}

// leave ends the ring set because the device is closed.
func (l *txRings) leave() {
	b := frame{kind: frameBye}.bytes()
	l.write(b[:])
	l.end.CompareAndSwap(ringsOpen, ringsClosed)
	l.conn.Close()
}

// write sends bytes without blocking.
func (l *txRings) write(b []byte) {
	_ = l.raw.Control(func(fd uintptr) { writeNow(fd, b) })
}

// writeNow sends bytes without blocking. It drops what does not fit: the receiver of wake-ups has earlier frames to
// read, and then reads all rings; see rxRings.watch.
func writeNow(fd uintptr, b []byte) {
	_, _ = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

const (
	// chunk is the number of bytes, and chunkPackets the number of packets, after which the sender publishes, so
	// that the receiver works on them while the sender writes more.
	chunk        = 16 << 10
	chunkPackets = 16
	// fullTimeout limits how long packets wait while the receiver takes nothing out of a full ring. Then they are
	// dropped, as in a network. A live receiver on a busy machine waits hundreds of milliseconds for a core, and shows
	// only each eighth of the ring that it has read; packets that are dropped meanwhile use up the retries of their QPs.
	// Packets that are not sent again (UC) have a limit of their own, and so have datagrams (UD), which otherwise keep
	// others to other peers waiting.
	fullTimeout     = 500 * time.Millisecond
	fullAnyTimeout  = 40 * time.Millisecond
	fullOnceTimeout = 2 * time.Second
)

// placeLine is place for a packet that gets a line of its own or the rest of the last one, on a path whose flow is that
// of the last packet. It returns nil if it is not such a packet, or if place has more to do.
func (r *txRing) placeLine(path *link.Path, n int, kind ring.Kind) []byte {
	if uint(n) > maxPair || r.gathered == chunkPackets || r.prod.Unpublished() >= chunk || !r.flows.last(path) {
		return nil
	}
	return r.put(kind, r.flows.number, n)
}

// put returns the place for a packet of n bytes of a flow: the rest of the line of the last packet, if that is of the
// same kind and flow and has room, or a record of its own. It returns nil if the ring is full.
func (r *txRing) put(kind ring.Kind, number uint32, n int) []byte {
	key := uint32(kind)<<8 | number
	if r.single == key {
		r.single = 0
		if first := r.prod.LastLen(); first+n <= maxPair {
			r.gathered++
			return r.prod.Extend(pairOf(kind), number|uint32(first)<<8, n)
		}
	}
	b := r.prod.Put(kind, number, n)
	if b == nil {
		return nil
	}
	r.gathered++
	r.single = 0
	if n < maxPair && pairOf(kind) != 0 {
		r.single = key
	}
	return b
}

// isPair reports whether records of a kind hold two packets.
func isPair(kind ring.Kind) bool { return kind == kindPair || kind == kindCountedPair }

// pairOf returns the kind of two packets of a kind; 0 if there is none.
func pairOf(kind ring.Kind) ring.Kind {
	switch kind {
	case kindPacket:
		return kindPair
	case kindCounted:
		return kindCountedPair
	}
	return 0
}

// place returns the place for a packet of n bytes; nil if the ring is full. lost reports that the ring has been full
// for too long.
func (r *txRing) place(path *link.Path, n int, kind ring.Kind) (b []byte, lost bool) {
	if r.gathered == chunkPackets || r.prod.Unpublished() >= chunk {
		r.prod.Publish()
		r.gathered, r.single = 0, 0
	}
	number := r.flows.find(path)
	if number == noFlow {
		b := r.prod.Put(kindFlow, r.flows.next%maxFlows, flowLen)
		if b == nil {
			return nil, r.stuck(path)
		}
		f := flowOf(path)
		f.put(b)
		number = r.flows.add(path)
		r.single = 0 // the last record is that of the flow, which may have the number of the packet before it
	}
	if b = r.put(kind, number, n); b == nil {
		return nil, r.stuck(path)
	}
	return b, false
}

// maxPair is the length in bytes of two packets that fit into one line.
const maxPair = ring.Line - 8

// stuck reports whether the receiver has taken nothing out of a full ring for as long as packets of the path may wait.
func (r *txRing) stuck(path *link.Path) bool {
	if r.prod.Err() != nil {
		r.rings.fail()
		return true
	}
	r.publish() // the receiver may wait for packets that are not published yet
	now, freed := time.Now(), r.prod.Freed()
	if r.since.IsZero() || freed != r.freed {
		r.since, r.freed = now, freed
		return false
	}
	limit := fullTimeout
	switch {
	case path.InOrder:
		limit = fullOnceTimeout
	case path.AnyOrder:
		limit = fullAnyTimeout
	}
	return now.Sub(r.since) > limit
}

// publish makes the packets visible to the receiver, and wakes its port if that sleeps: once for each sleep. The port
// stores that it sleeps before its last read of the ring, so either it sees the packets or the sender sees that it
// sleeps.
func (r *txRing) publish() {
	r.prod.Publish()
	r.gathered, r.single = 0, 0
	if s := r.sleep.Load(); s&1 != 0 && s != r.woken {
		r.woken = s
		_ = r.rings.raw.Control(r.wake)
	}
}
