package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// An rxRings is the receiving end of a ring set.
type rxRings struct {
	shape
	conn    *net.UnixConn
	id      uint64     // the sender's, for acknowledgements of counted requests
	rings   *memory    // of the sender
	heads   *memory    // of this process
	rx      [][]rxRing // indexed by port of this link, then of the sender
	turns   []int      // indexed by port of this link: the first port of the sender that is read next
	used    []*atomic.Uint64
	senders uint64        // a bit for each port of the sender
	over    atomic.Bool   // no more packets will be added
	invalid atomic.Bool   // a record was invalid: nothing is received any more
	drained atomic.Uint64 // bits of the ports that have received all packets after over
	once    sync.Once
	checks  int                                // checks of source addresses; guarded by sources.mu
	shares  atomic.Pointer[map[uint64]*memory] // of the sender, by their numbers
	sender  atomic.Pointer[senderMemory]       // nil: it cannot be read
}

// An rxRing is the ring from one port of the sender. The receiving port owns it.
type rxRing struct {
	rings *rxRings
	from  int            // the port of the sender
	cons  *ring.Consumer // nil until the sender has used the ring
	flows *[maxFlows]flow
	shown uint64        // the value of seen
	seen  atomic.Uint64 // a position of cons, for waits
	count counts
}

// show stores the position of cons for waits. A store costs as much as a lock, so it is done when the port finds the
// ring empty or gives space back, and not for each packet. Until then waits may report packets that were taken. It
// misses none: the sender does not write to the word at the stored position, which release stores before the head.
func (r *rxRing) show() {
	if at := r.cons.Position(); at != r.shown {
		r.shown = at
		r.seen.Store(at)
	}
}

// release gives the space of the records that were taken back to the sender, now and then.
func (r *rxRing) release() {
	if r.cons.Due() {
		r.show()
	}
	r.cons.Release(false)
}

// acceptRings does the handshake of a ring set with a sender that has connected. status is the memory of the
// receiving link.
func acceptRings(c *net.UnixConn, ports int, ranges []link.QPNRange, status *os.File) (*rxRings, error) {
	if err := errors.Join(sameUser(c), c.SetDeadline(time.Now().Add(handshakeTimeout))); err != nil {
		return nil, err
	}
	hello, _, err := expect(c, frameHello, 0)
	if err != nil {
		return nil, err
	}
	if hello.word != magic {
		return nil, fmt.Errorf("link/shm: magic of the peer %#x: must be %#x: %w", hello.word, uint64(magic), syscall.EPROTO)
	}
	l := &rxRings{conn: c, shape: shape{n: int(hello.port), m: ports, ring: int(hello.size)}}
	if err := l.check(); err != nil {
		return nil, err
	}
	m, file, err := create(l.headsSize())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l.heads = m
	if err := newProof(m); err != nil {
		return nil, err
	}
	if err := sendFrame(c, frame{kind: frameWelcome, port: uint8(ports), size: uint32(len(ranges)), word: magic}, file,
		status); err != nil {
		return nil, err
	}
	for i, r := range ranges {
		if err := sendFrame(c, frame{kind: frameNumbers, port: uint8(i), size: r.First, word: uint64(r.Last)}); err != nil {
			return nil, err
		}
	}
	f, fds, err := expect(c, frameRings, 1)
	if err != nil {
		return nil, err
	}
	defer closeFDs(fds)
	if l.rings, err = attach(fds[0], l.ringsSize()); err != nil {
		return nil, err
	}
	l.id = f.word
	l.shares.Store(new(map[uint64]*memory))
	l.prepare()
	return l, c.SetDeadline(time.Time{})
}

// prepare sets the fields that follow from the shape and the memory.
func (l *rxRings) prepare() {
	for j := range l.m {
		l.rx = append(l.rx, make([]rxRing, l.n))
		l.turns = append(l.turns, 0)
		l.used = append(l.used, l.rings.word(activeAt(j)))
	}
	l.senders = 1<<l.n - 1
}

// start permits the sender to begin. The ring set is in the list of the link already.
func (l *rxRings) start() error { return sendFrame(l.conn, frame{kind: frameReady}) }

// watch reads frames of the sender until the ring set ends, and calls wake for the ports that they name. It calls wake
// for all ports if the socket may have been full, in which case the sender has dropped wake-ups: after a full read, and
// after frames about shares, of which there may be many.
func (l *rxRings) watch(wake func(port int)) {
	var b [64 * frameLen]byte
	var fds []int
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	for have := 0; ; {
		n, oobn, flags, _, err := l.conn.ReadMsgUnix(b[have:], oob)
		if oobn > 0 {
			fds = append(fds, rights(oob[:oobn])...)
		}
		if err != nil || n == 0 || flags&unix.MSG_CTRUNC != 0 || len(fds) > maxFDs {
			break
		}
		have += n
		var ports uint64
		if have == len(b) {
			ports = 1<<l.m - 1
		}
		at := 0
		for ; have-at >= frameLen; at += frameLen {
			f := parseFrame(b[at:])
			if f.kind == frameShare || f.kind == frameUnshare {
				ports = 1<<l.m - 1
			}
			switch f.kind {
			case frameWake:
				if int(f.port) < l.m {
					ports |= 1 << f.port
				}
			case frameShare:
				if len(fds) > 0 {
					err = l.answer(f.word, l.openFirst(f, &fds))
				}
			case frameMemory:
				err = l.openMemory(f.word)
			case frameUnshare:
				l.close(f.word)
			}
		}
		have = copy(b[:], b[at:have])
		for ; ports != 0; ports &= ports - 1 {
			wake(bits.TrailingZeros64(ports))
		}
		if err != nil {
			break
		}
	}
	closeFDs(fds)
	l.stop()
}

// openFirst opens the share of a frame with the first descriptor, which it closes.
func (l *rxRings) openFirst(f frame, fds *[]int) error {
	fd := (*fds)[0]
	*fds = (*fds)[1:]
	defer unix.Close(fd)
	if !directAllowed() {
		return syscall.EACCES
	}
	return l.open(f.word, fd, f.size)
}

// stop ends the ring set. Packets in its rings are still received.
func (l *rxRings) stop() {
	l.over.Store(true)
	l.once.Do(func() { l.conn.Close() })
}

// leave ends the ring set because the device is closed.
func (l *rxRings) leave() {
	_ = l.conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_ = sendFrame(l.conn, frame{kind: frameBye})
	l.stop()
}

// active returns a bit for each port of the sender that has used its ring to port j.
func (l *rxRings) active(j int) uint64 {
	return l.used[j].Load() & l.senders
}

// waits reports whether the ring from the sender's port i to port j of this link has packets. Any goroutine may call
// it.
func (l *rxRings) waits(j, i int) bool {
	at := l.ringAt(i, j)
	return ring.ReadyAt(l.rings.bytes[at:at+l.ring], l.rx[j][i].seen.Load())
}

// ringOf returns the ring from the sender's port i to port j of this link.
func (l *rxRings) ringOf(j, i int) (*rxRing, error) {
	r := &l.rx[j][i]
	if r.cons == nil {
		at := l.ringAt(i, j)
		c, err := ring.NewConsumer(l.rings.bytes[at:at+l.ring:at+l.ring], l.heads.word(l.headAt(i, j)))
		if err != nil {
			return nil, err
		}
		r.rings, r.from, r.cons, r.flows = l, i, c, new([maxFlows]flow)
	}
	return r, nil
}
