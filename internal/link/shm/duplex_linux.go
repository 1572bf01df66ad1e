package shm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// A Duplex is an end of a stream of bytes in both directions between two processes of a user. Each end owns a piece of
// memory, which the other one can only read: its words, and the ring with the bytes that it sends.
//
// Its methods must not be called concurrently. It does not detect the end of the other process; callers have other
// means.
type Duplex struct {
	fd        int // a unix socket for wake-ups
	own, peer *memory
	prod      *ring.Producer
	cons      *ring.Consumer
	rest      []byte // what is left of the record that is being read
	sleep     *atomic.Uint64
	room      *atomic.Uint64
	woken     uint64 // the last value of the peer's sleep that was answered
	freed     uint64 // the last value of the peer's room that was answered
	told      uint64 // how far this end had read then
	quiet     int    // bytes written since the peer was woken, if it slept
	gone      bool   // the peer has closed its end
	fault     bool   // bytes to send could not be read
	bad       bool   // the peer has written an invalid record

	Sent, Received uint64 // records
}

// Offsets in the memory of an end.
const (
	duplexHead   = 0        // how far the owner has read the peer's ring
	duplexSleep  = line     // odd while the owner wants a wake-up when there are bytes for it
	duplexRoom   = 2 * line // odd while the owner wants a wake-up when there is room in its ring
	duplexRing   = page     // the ring
	ringOfDuplex = 1 << 20
	duplexSize   = duplexRing + ringOfDuplex
	// wakeStep is how many bytes a sender writes before it wakes a reader that sleeps, unless it flushes. Wake-ups cost
	// both processes more than the copies of less.
	wakeStep = ringOfDuplex / 2
	// roomStep is how much room a sender that waits for room gets at once, at least.
	roomStep = ringOfDuplex / 2

	// maxPiece is the length of a record, so that the reader copies one while the sender writes the next.
	maxPiece = 16 << 10
	// duplexMagic identifies the protocol: "VRBdup", version 1.
	duplexMagic = 0x5652_4264_7570_0001
	// duplexBytes is the kind of its records.
	duplexBytes ring.Kind = 1
)

// Duplexes are limited, since each has two mappings, a descriptor and a ring of its own.
const maxDuplexes = 512

var duplexes atomic.Int32

// mayOpen returns EMFILE if the process has too many ends.
func mayOpen() error {
	most := maxDuplexes
	if n := fdset.Limit(); n > 0 {
		most = min(most, n/8)
	}
	if int(duplexes.Load()) >= most {
		return fmt.Errorf("link/shm: %d connections use shared memory, the limit: %w", most, syscall.EMFILE)
	}
	return nil
}

// Bytes that the ends send over the socket.
const (
	duplexWake  = 'w' // look at the rings
	duplexReady = 'r' // the sender reads its peer's ring
)

// A DuplexListener waits for one peer.
type DuplexListener struct {
	l     *untrusted.Listener
	Token uint64 // random: only a process that is told can connect
}

// duplexName returns the name of a listener. Each user of the host can read it, so it does not tell the token.
func duplexName(token uint64) *net.UnixAddr {
	sum := sha256.Sum256(fmt.Appendf(nil, "verbena-duplex %016x", token))
	return &net.UnixAddr{Name: fmt.Sprintf("@verbena-duplex/%d/%x", os.Geteuid(), sum[:16]), Net: "unix"}
}

// ListenDuplex listens for a process that knows a random token. It returns an error if the process has too many ends.
func ListenDuplex() (*DuplexListener, error) {
	if err := mayOpen(); err != nil {
		return nil, err
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	d := &DuplexListener{Token: binary.LittleEndian.Uint64(b[:])}
	l, err := net.ListenUnix("unix", duplexName(d.Token))
	if err != nil {
		return nil, err
	}
	fdset.AddConn(l)
	d.l = untrusted.Keep(l)
	d.l.Admit = peeruser.Own // others would take the place of the peer
	return d, nil
}

// Accept waits for the peer, for at most handshakeTimeout, and closes the listener.
func (d *DuplexListener) Accept() (*Duplex, error) {
	defer d.Close()
	_ = d.l.SetDeadline(time.Now().Add(handshakeTimeout))
	c, err := d.l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	fdset.AddConn(c)
	return newDuplex(c, duplexMagic, d.Token)
}

// Close closes the listener. Accept does so too.
func (d *DuplexListener) Close() { _ = d.l.Close() }

// DialDuplex connects to the process that has made a token.
func DialDuplex(token uint64) (*Duplex, error) {
	if err := mayOpen(); err != nil {
		return nil, err
	}
	c, err := net.DialUnix("unix", nil, duplexName(token))
	if err != nil {
		return nil, err
	}
	fdset.AddConn(c)
	return newDuplex(c, token, duplexMagic)
}

// newDuplex does the handshake, which is the same at both ends, and closes c. Each end sends a word: the one that dials
// the token, the other one duplexMagic.
func newDuplex(c *net.UnixConn, word, want uint64) (*Duplex, error) {
	defer func() { _ = untrusted.Close(c) }()
	if err := errors.Join(sameUser(c), c.SetDeadline(time.Now().Add(handshakeTimeout))); err != nil {
		return nil, err
	}
	own, file, err := create(duplexSize)
	if err != nil {
		return nil, err
	}
	err = sendFrame(c, frame{kind: frameHello, size: ringOfDuplex, word: word}, file)
	_ = file.Close()
	if err != nil {
		own.release()
		return nil, err
	}
	peer, err := peerOfDuplex(c, want)
	if err != nil {
		own.release()
		return nil, err
	}
	d := &Duplex{fd: -1, own: own, peer: peer, sleep: own.word(duplexSleep), room: own.word(duplexRoom)}
	duplexes.Add(1)
	if err := d.open(c); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// peerOfDuplex maps the memory of the other end.
func peerOfDuplex(c *net.UnixConn, want uint64) (*memory, error) {
	hello, fds, err := expect(c, frameHello, 1)
	if err != nil {
		return nil, err
	}
	defer closeFDs(fds)
	if hello.word != want || hello.size != ringOfDuplex {
		return nil, fmt.Errorf("link/shm: the peer has a wrong token, or a ring of %d bytes: must be %d: %w", hello.size,
			ringOfDuplex, syscall.EPROTO)
	}
	return attach(fds[0], duplexSize)
}

// rings makes the rings. The end sleeps.
func (d *Duplex) rings() (err error) {
	if d.prod, err = ring.NewProducer(d.own.bytes[duplexRing:], d.peer.word(duplexHead)); err != nil {
		return err
	}
	d.cons, err = ring.NewConsumer(d.peer.bytes[duplexRing:], d.own.word(duplexHead))
	d.sleep.Store(1)
	return err
}

// open takes the socket out of Go's poller and makes the rings.
func (d *Duplex) open(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	e := raw.Control(func(s uintptr) { d.fd, err = fdset.Dup(int(s)) })
	if err = errors.Join(e, err); err != nil {
		d.fd = -1
		return err
	}
	fdset.Add(d.fd)
	return d.rings()
}

// Close ends the stream. The peer can still read what was sent.
func (d *Duplex) Close() {
	if d.own == nil {
		return
	}
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
	}
	d.own.release()
	d.peer.release()
	d.own, d.peer, d.rest = nil, nil, nil
	duplexes.Add(-1)
}

// FD is the socket that is readable when the peer has sent a wake-up or has closed its end.
func (d *Duplex) FD() int { return d.fd }

// Start tells the peer that this end reads what it sends.
func (d *Duplex) Start() { d.signal(duplexReady) }

// signal sends a byte. A full socket has a wake-up already.
func (d *Duplex) signal(b byte) {
	_, _ = unix.SendmsgBuffers(d.fd, [][]byte{{b}}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// OnEvent reads the socket. It reports whether the peer has called Start since the last call, and whether it has closed
// its end.
func (d *Duplex) OnEvent() (ready, gone bool) {
	var b [64]byte
	n, _, err := unix.Recvfrom(d.fd, b[:], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false, d.gone
	case err != nil || n == 0:
		d.gone = true
	}
	for _, c := range b[:max(n, 0)] {
		ready = ready || c == duplexReady
	}
	return ready, d.gone
}

// Ready reports whether there is something to read, an invalid record included.
func (d *Duplex) Ready() bool { return len(d.rest) > 0 || !d.bad && d.cons.Ready() }

// Sleep asks the peer for a wake-up when it sends something. It reports false if there is something to read.
func (d *Duplex) Sleep() bool {
	n := d.sleep.Load() // only this end writes it
	d.sleep.Store(n + 1 + n&1)
	if d.Ready() {
		d.Awake()
		return false
	}
	return true
}

// Awake asks for no more wake-ups.
func (d *Duplex) Awake() {
	if n := d.sleep.Load(); n&1 != 0 {
		d.sleep.Store(n + 1)
	}
}

// AwaitRoom flushes, and asks the peer for a wake-up when it has read something. It reports false if there is room.
func (d *Duplex) AwaitRoom() bool {
	d.Flush()
	n := d.room.Load()
	d.room.Store(n + 1 + n&1)
	if d.hasRoom() {
		d.room.Store(n + 2 + n&1)
		return false
	}
	return true
}

// hasRoom reports whether a record finds room, or an error.
func (d *Duplex) hasRoom() bool {
	return d.gone || d.prod.Unread() <= ringOfDuplex-roomStep || d.prod.Err() != nil
}

// Write copies bytes into the ring and returns their number. A peer that sleeps may learn of them only by Flush, which
// must follow the last Write before a pause. The error is EAGAIN if there is no room, EFAULT if the
// bytes cannot be read, EPIPE if the peer has closed its end, and EPROTO if it has written an invalid value.
func (d *Duplex) Write(v [][]byte) (n int, err error) {
	left := 0
	for _, b := range v {
		left += len(b)
	}
	from := gather{v: v}
	for left > 0 && !d.gone && !d.fault {
		k := min(left, maxPiece)
		to := d.prod.Put(duplexBytes, 0, k)
		if to == nil {
			break
		}
		if d.fault = !from.copy(to); d.fault {
			break // the record is never published
		}
		d.prod.Publish()
		d.Sent++
		n, left = n+k, left-k
		if d.quiet += k; d.quiet >= wakeStep {
			d.Flush()
		}
	}
	switch {
	case n > 0:
		return n, nil
	case d.gone:
		return 0, unix.EPIPE
	case d.fault:
		return 0, unix.EFAULT
	case d.prod.Err() != nil:
		return 0, unix.EPROTO
	}
	return 0, unix.EAGAIN
}

// gather reads vectors.
type gather struct {
	v   [][]byte
	off int // in v[0]
}

// copy fills a slice. It reports false if the bytes cannot be read.
func (g *gather) copy(to []byte) bool {
	for len(to) > 0 {
		b := g.v[0][g.off:]
		n, ok := mr.Copy(to, b)
		if !ok {
			return false
		}
		to, g.off = to[n:], g.off+n
		if n == len(b) {
			g.v, g.off = g.v[1:], 0
		}
	}
	return true
}

// Flush wakes the peer if it sleeps and does not know of all that was written.
func (d *Duplex) Flush() {
	if d.quiet == 0 {
		return
	}
	d.quiet = 0
	if s := d.peer.word(duplexSleep).Load(); s&1 != 0 && s != d.woken {
		d.woken = s
		d.signal(duplexWake)
	}
}

// Read copies bytes to place and what follows to buf, and returns their number. The error is EAGAIN if there are none,
// EFAULT if place cannot be written, and EPROTO if the peer has written an invalid value. The bytes in buf do not
// change any more.
func (d *Duplex) Read(place, buf []byte) (n int, err error) {
	for _, to := range [2][]byte{place, buf} {
		for len(to) > 0 && d.next() {
			k, ok := mr.Copy(to, d.rest)
			if !ok && n > 0 {
				return n, nil
			}
			if !ok {
				return 0, unix.EFAULT
			}
			n += k
			to, d.rest = to[k:], d.rest[k:]
		}
		if len(to) > 0 {
			break // what arrives now belongs into place
		}
	}
	switch {
	case n > 0:
		return n, nil
	case d.bad || d.cons.Err() != nil:
		return 0, unix.EPROTO
	}
	return 0, unix.EAGAIN
}

// next makes rest the next record if it is empty. It reports whether there are bytes.
func (d *Duplex) next() bool {
	if len(d.rest) > 0 {
		return true
	}
	if d.bad {
		return false
	}
	d.free(false)
	r, ok := d.cons.Next()
	if !ok {
		d.free(true)
		return false
	}
	if r.Kind != duplexBytes || r.Aux != 0 || len(r.Data) == 0 {
		d.bad = true
		return false
	}
	d.Received++
	d.rest = r.Data
	return true
}

// free gives the space of the records that were read back to the peer: now, or now and then. It wakes a peer that waits
// for room when there is enough.
func (d *Duplex) free(now bool) {
	d.cons.Release(now)
	r := d.peer.word(duplexRoom).Load() // after the head was stored
	if r&1 == 0 || r == d.freed || !now && d.cons.Position()-d.told < roomStep {
		return
	}
	d.cons.Release(true)
	d.freed, d.told = r, d.cons.Position()
	d.signal(duplexWake)
}
