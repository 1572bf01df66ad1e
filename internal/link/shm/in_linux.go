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

// inLane is the receiving end of a lane.
type inLane struct {
	shape
	conn    *net.UnixConn
	rings   *memory    // the sender's
	heads   *memory    // ours
	rx      [][]inRing // by our port, then the sender's
	turns   []int      // by our port: which of the sender's comes first
	used    []*atomic.Uint64
	over    atomic.Bool   // nothing more will come
	drained atomic.Uint64 // bits of the ports that have taken the last of it
	once    sync.Once
	shares  atomic.Pointer[map[uint64]*memory] // of the sender, by their numbers
}

// inRing is the ring from one port of the sender. The port that receives owns it.
type inRing struct {
	cons  *ring.Consumer // nil until the sender uses the ring
	flows *[maxFlows]flow
	open  bool          // the batch shows records of it
	seen  atomic.Uint64 // the position of cons, for waits
}

// span is the QP numbers of a port.
type span struct{ first, last uint32 }

// spansOf are those of a link's ports; none if it has none.
func spansOf(l link.Link, ports int) (spans []span) {
	n, ok := link.As[link.Numbered](l)
	if !ok {
		return nil
	}
	for i := range ports {
		first, last, ok := n.QPNs(i)
		if !ok {
			return nil
		}
		spans = append(spans, span{first, last})
	}
	return spans
}

// acceptLane sets a lane up whose sender has connected to us. status is the memory of the receiving link.
func acceptLane(c *net.UnixConn, ports int, ranges []span, status *os.File) (*inLane, error) {
	if err := errors.Join(sameUser(c), c.SetDeadline(time.Now().Add(handshake))); err != nil {
		return nil, err
	}
	hello, _, err := expect(c, frameHello, 0)
	if err != nil {
		return nil, err
	}
	if hello.word != magic {
		return nil, fmt.Errorf("link/shm: the peer speaks another version of lanes (%#x, not %#x): %w", hello.word, uint64(magic), syscall.EPROTO)
	}
	l := &inLane{conn: c, shape: shape{n: int(hello.port), m: ports, ring: int(hello.size)}}
	if err := l.check(); err != nil {
		return nil, err
	}
	m, file, err := create(l.headsSize())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l.heads = m
	if err := sendFrame(c, frame{kind: frameWelcome, port: uint8(ports), size: uint32(len(ranges)), word: magic}, file, status); err != nil {
		return nil, err
	}
	for i, r := range ranges {
		if err := sendFrame(c, frame{kind: frameNumbers, port: uint8(i), size: r.first, word: uint64(r.last)}); err != nil {
			return nil, err
		}
	}
	_, fds, err := expect(c, frameLane, 1)
	if err != nil {
		return nil, err
	}
	defer closeFDs(fds)
	if l.rings, err = attach(fds[0], l.ringsSize()); err != nil {
		return nil, err
	}
	l.shares.Store(new(map[uint64]*memory))
	for j := range l.m {
		l.rx = append(l.rx, make([]inRing, l.n))
		l.turns = append(l.turns, 0)
		l.used = append(l.used, l.rings.word(activeAt(j)))
	}
	return l, c.SetDeadline(time.Time{})
}

// start tells the sender that it may begin. The lane is in the link's list by now.
func (l *inLane) start() error { return sendFrame(l.conn, frame{kind: frameReady}) }

// watch reads what the sender says until the lane ends, and calls wake for the ports that it names.
func (l *inLane) watch(wake func(port int)) {
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
		at := 0
		for ; have-at >= frameLen; at += frameLen {
			switch f := parseFrame(b[at:]); f.kind {
			case frameWake:
				if int(f.port) < l.m {
					ports |= 1 << f.port
				}
			case frameShare:
				if len(fds) > 0 {
					err = l.answer(f.word, l.openFirst(f, &fds))
				}
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

// openFirst opens the share that a frame is about with the first descriptor, which it closes.
func (l *inLane) openFirst(f frame, fds *[]int) error {
	fd := (*fds)[0]
	*fds = (*fds)[1:]
	defer unix.Close(fd)
	if !directAllowed() {
		return syscall.EACCES
	}
	return l.open(f.word, fd, f.size)
}

// stop ends the lane; what is in its rings is still received.
func (l *inLane) stop() {
	l.over.Store(true)
	l.once.Do(func() { l.conn.Close() })
}

// leave ends the lane on purpose.
func (l *inLane) leave() {
	_ = l.conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_ = sendFrame(l.conn, frame{kind: frameBye})
	l.stop()
}

// active are the sender's ports that have used their rings to port j.
func (l *inLane) active(j int) uint64 {
	return l.used[j].Load() & (1<<l.n - 1)
}

// waits tells whether there is something in the ring from the sender's port i to ours, j. Anybody may ask.
func (l *inLane) waits(j, i int) bool {
	at := l.ringAt(i, j)
	return ring.ReadyAt(l.rings.bytes[at:at+l.ring], l.rx[j][i].seen.Load())
}

// ringOf is the ring from the sender's port i to ours, j.
func (l *inLane) ringOf(j, i int) (*inRing, error) {
	r := &l.rx[j][i]
	if r.cons == nil {
		at := l.ringAt(i, j)
		c, err := ring.NewConsumer(l.rings.bytes[at:at+l.ring:at+l.ring], l.heads.word(l.headAt(i, j)))
		if err != nil {
			return nil, err
		}
		r.cons, r.flows = c, new([maxFlows]flow)
	}
	return r, nil
}
