package perftest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/internal/winsock"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// version is the version of perftest whose exchange is implemented. Versions before oldest use another one.
const (
	version    = "6.06"
	versionLen = 16
	oldest     = 5.70
)

// dest is the address of a QP as the ends exchange it (struct pingpong_dest).
type dest struct {
	lid, outReads, qpn, psn uint32
	rkey                    uint32
	vaddr                   uint64
	gid                     verbs.GID
	srqn                    uint32
	gidIndex                uint32
}

const (
	destTextLen = 108 // with a GID, which RoCE devices always send
	destLen     = 56  // binary, over rdma_cm
)

// text returns the form for TCP.
func (d *dest) text() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%04x:%04x:%06x:%06x:%08x:%016x:", d.lid, d.outReads, d.qpn, d.psn, d.rkey, d.vaddr)
	for _, x := range d.gid {
		fmt.Fprintf(&b, "%02x:", x)
	}
	fmt.Fprintf(&b, "%08x:\x00", d.srqn)
	return []byte(b.String())
}

func parseDest(b []byte) (d dest, err error) {
	parts := strings.Split(strings.TrimRight(string(b), "\x00"), ":")
	if len(parts) != 24 {
		return d, fmt.Errorf("the peer sent %q, which is not a perftest address", b)
	}
	num := func(s string, bits int) uint64 {
		v, e := strconv.ParseUint(s, 16, bits)
		if e != nil {
			err = fmt.Errorf("the peer sent %q, which is not a perftest address", b)
		}
		return v
	}
	d.lid, d.outReads = uint32(num(parts[0], 32)), uint32(num(parts[1], 32))
	d.qpn, d.psn = uint32(num(parts[2], 24)), uint32(num(parts[3], 24))
	d.rkey, d.vaddr = uint32(num(parts[4], 32)), num(parts[5], 64)
	for i := range d.gid {
		d.gid[i] = byte(num(parts[6+i], 8))
	}
	d.srqn = uint32(num(parts[22], 32))
	return d, err
}

// binary returns the form for rdma_cm.
func (d *dest) binary() []byte {
	b := make([]byte, destLen)
	be := binary.BigEndian
	for i, v := range []uint32{d.lid, d.outReads, d.qpn, d.psn, d.rkey} {
		be.PutUint32(b[4*i:], v)
	}
	be.PutUint64(b[24:], d.vaddr)
	copy(b[32:], d.gid[:])
	be.PutUint32(b[48:], d.srqn)
	be.PutUint32(b[52:], d.gidIndex)
	return b
}

func (d *dest) fromBinary(b []byte) error {
	be := binary.BigEndian
	for i, v := range []*uint32{&d.lid, &d.outReads, &d.qpn, &d.psn, &d.rkey} {
		*v = be.Uint32(b[4*i:])
	}
	d.vaddr = be.Uint64(b[24:])
	copy(d.gid[:], b[32:])
	d.srqn, d.gidIndex = be.Uint32(b[48:]), be.Uint32(b[52:])
	if d.qpn > 0xffffff || d.psn > 0xffffff {
		return fmt.Errorf("the peer sent QPN %#x and PSN %#x: must be 0 to 0xffffff", d.qpn, d.psn)
	}
	return nil
}

// A channel carries the messages between the ends other than the test traffic.
type channel interface {
	send(b []byte) error
	recv(n int) ([]byte, error)
	binary() bool // addresses are structs, not text
	peer() netip.Addr
	allow(d time.Duration) // time-out for each message of the peer; 0: none
	ended() bool           // the peer has ended, as far as this end can know
}

// peer is the other end.
type peer struct {
	channel
	client bool // this end sends first
}

// exchange swaps messages of equal length. The client sends first.
func (p *peer) exchange(mine []byte) ([]byte, error) {
	if p.client {
		if err := p.send(mine); err != nil {
			return nil, err
		}
		return p.recv(len(mine))
	}
	theirs, err := p.recv(len(mine))
	if err != nil {
		return nil, err
	}
	return theirs, p.send(mine)
}

// shake swaps addresses. Repeated, it only synchronizes the ends.
func (p *peer) shake(mine *dest) (theirs dest, err error) {
	if p.binary() {
		b, err := p.exchange(mine.binary())
		if err == nil {
			err = theirs.fromBinary(b)
		}
		return theirs, err
	}
	b, err := p.exchange(mine.text())
	if err != nil {
		return theirs, err
	}
	return parseDest(b)
}

// greet swaps versions and machine parameters. warning is for the user.
func (p *peer) greet() (warning string, err error) {
	b, err := p.exchange(append([]byte(version), make([]byte, versionLen-len(version))...))
	if err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return "", fmt.Errorf(
			"the peer is not a perftest program: it answered %q; run the same ib_* program there, with the same -R", b)
	case v < oldest:
		return "", fmt.Errorf(
			"the peer is perftest %s, whose exchange is incompatible; install perftest %s there, or at least %.2f", text,
			version, oldest)
	case text != version:
		warning = fmt.Sprintf(
			"the peer is perftest %s, this end uses the exchange of %s; if the test fails or hangs, install %s there",
			text, version, version)
	}
	for _, v := range []uint32{4096, 64} { // page, cache line
		if _, err := p.exchange(binary.BigEndian.AppendUint32(nil, v)); err != nil {
			return "", err
		}
	}
	return warning, nil
}

// agreeMTU swaps MTU codes and returns the smaller one.
func (p *peer) agreeMTU(m verbs.MTU) (verbs.MTU, error) {
	b, err := p.exchange([]byte{'0' + byte(m), 0})
	if err != nil {
		return 0, err
	}
	theirs := verbs.MTU(b[0] - '0')
	if theirs >= verbs.MTU256 && theirs < m {
		return theirs, nil
	}
	return m, nil
}

// swapReports swaps results.
func (p *peer) swapReports(mine *bwReport) (theirs bwReport, err error) {
	be := binary.BigEndian
	words := []uint64{uint64(mine.size), mine.iters, math.Float64bits(mine.peak), math.Float64bits(mine.average),
		math.Float64bits(mine.rate)}
	for i, w := range words {
		b, err := p.exchange(be.AppendUint64(nil, w))
		if err != nil {
			return theirs, err
		}
		words[i] = be.Uint64(b)
	}
	theirs.size, theirs.iters = int(words[0]), words[1]
	theirs.peak, theirs.average, theirs.rate = math.Float64frombits(words[2]), math.Float64frombits(words[3]),
		math.Float64frombits(words[4])
	return theirs, nil
}

// tcp is the channel without -R.
type tcp struct {
	net.Conn
	in   *bufio.Reader
	stop context.Context // ends every wait
	time time.Duration   // time-out for a message; 0: none
}

func newTCP(stop context.Context, c net.Conn) *tcp {
	return &tcp{Conn: c, in: bufio.NewReader(c), stop: stop}
}

func dialTCP(c context.Context, host string, port uint16) (*tcp, error) {
	d := net.Dialer{Timeout: longest}
	conn, err := d.DialContext(c, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		err = exchange.DialError(host, port, err)
		if winsock.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w, and -R at both ends or at neither", err)
		}
		return nil, err
	}
	return newTCP(c, conn), nil
}

func acceptTCP(c context.Context, port uint16) (*tcp, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(c, "tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("couldn't listen to port %d: %w; choose another one with -p", port, err)
	}
	defer l.Close()
	stop := context.AfterFunc(c, func() { l.Close() })
	defer stop()
	conn, err := l.Accept()
	if err != nil {
		return nil, errors.Join(err, c.Err())
	}
	return newTCP(c, conn), nil
}

func (t *tcp) send(b []byte) error {
	_, err := t.Write(b)
	return gone(err)
}

func (t *tcp) recv(n int) ([]byte, error) {
	var by time.Time
	if t.time > 0 {
		by = time.Now().Add(t.time)
	}
	if err := t.SetReadDeadline(by); err != nil {
		return nil, gone(err)
	}
	if err := t.stop.Err(); err != nil { // hangUp was called before
		return nil, err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(t.in, b)
	if errors.Is(err, os.ErrDeadlineExceeded) && t.stop.Err() == nil {
		return nil, mute(t.time)
	}
	return b, gone(err)
}

func (t *tcp) allow(d time.Duration) { t.time = d }

func (t *tcp) ended() bool {
	_ = t.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := t.in.Peek(1)
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// gone explains the usual ways in which a connection ends.
func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf(
			"the peer has closed the connection: look at its output; run the same test at both ends, "+
				"with the same -R, -b, -a and -q (%w)", err)
	}
	return err
}

// mute returns the error for a peer that sends nothing.
func mute(d time.Duration) error {
	return fmt.Errorf(
		"no message from the peer for %v: run the same ib_* program there, of perftest %.2f or newer, "+
			"with the same options (%w)",
		d, oldest, os.ErrDeadlineExceeded)
}

func (t *tcp) binary() bool { return false }

func (t *tcp) peer() netip.Addr {
	return t.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
}

// cmChannel is the channel with -R: an RC connection.
type cmChannel struct {
	id      *rdmacm.ID
	in, out *verbs.MR
	stop    context.Context
	time    time.Duration
}

func newCMChannel(c context.Context, id *rdmacm.ID) (*cmChannel, error) {
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1,
		MaxRecvSGE: 1}}
	if id.QP() == nil {
		if err := id.CreateQP(nil, &init); err != nil {
			return nil, err
		}
	}
	ch := &cmChannel{id: id, stop: c}
	// The server of WRITE and READ only waits for the client's last message, and a killed client says nothing.
	err := id.SetKeepAlive(longest / 2)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	if ch.in, err = id.RegMsgs(make([]byte, destLen)); err != nil {
		return nil, err
	}
	if ch.out, err = id.RegMsgs(make([]byte, destLen)); err != nil {
		return nil, err
	}
	return ch, ch.post()
}

func (ch *cmChannel) post() error { return ch.id.PostRecv(0, ch.in.Bytes(), ch.in) }

func (ch *cmChannel) send(b []byte) error {
	copy(ch.out.Bytes(), b)
	if err := ch.id.PostSend(0, ch.out.Bytes()[:len(b)], ch.out, verbs.SendSignaled); err != nil {
		return err
	}
	wc, err := ch.id.GetSendComp(ch.stop)
	if err != nil {
		return err
	}
	return wc.Err()
}

func (ch *cmChannel) recv(n int) ([]byte, error) {
	c, cancel := ch.stop, func() {}
	if ch.time > 0 {
		c, cancel = context.WithTimeout(c, ch.time)
	}
	defer cancel()
	wc, err := ch.id.GetRecvComp(c)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, mute(ch.time)
	}
	if err != nil {
		return nil, err
	}
	if err := wc.Err(); err != nil {
		return nil, fmt.Errorf("the peer has ended the connection: look at its output (%w)", err)
	}
	if int(wc.ByteLen) != n {
		return nil,
			fmt.Errorf("the peer sent %d bytes instead of %d: run the same test at both ends, with the same options",
				wc.ByteLen, n)
	}
	b := append([]byte(nil), ch.in.Bytes()[:n]...)
	return b, ch.post()
}

func (ch *cmChannel) allow(d time.Duration) { ch.time = d }
func (ch *cmChannel) ended() bool           { return false }
func (ch *cmChannel) binary() bool          { return true }
func (ch *cmChannel) peer() netip.Addr      { return ch.id.PeerAddr().Addr().Unmap().WithZone("") }

// end closes the connection. On iWARP the client must begin: the C program posts a receive after the last message, and
// fails if the stream has ended.
func (ch *cmChannel) end(client bool) error {
	if !client && ch.id.Verbs().Device().TransportType() == verbs.TransportIWARP {
		ch.outlast()
	}
	c, cancel := context.WithTimeout(ch.stop, goodbye)
	defer cancel()
	_ = ch.id.Disconnect(c)
	return errors.Join(ch.in.Close(), ch.out.Close(), ch.id.DestroyQP(), ch.id.Close())
}

// outlast waits until the peer has closed the connection: the posted receive is flushed.
func (ch *cmChannel) outlast() {
	c, cancel := context.WithTimeout(ch.stop, goodbye)
	defer cancel()
	for {
		if wc, err := ch.id.GetRecvComp(c); err != nil || wc.Err() != nil {
			return
		}
	}
}
