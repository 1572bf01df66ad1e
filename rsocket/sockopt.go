package rsocket

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// Levels of options, with Linux's values on every system.
const (
	SolSocket   = 1
	IPProtoIP   = 0
	IPProtoTCP  = 6
	IPProtoIPv6 = 41
	SolRDMA     = 0x10000
)

// Options of SolSocket.
const (
	SoReuseAddr = 2
	SoError     = 4
	SoBroadcast = 6
	SoSndBuf    = 7
	SoRcvBuf    = 8
	SoKeepAlive = 9
	SoOOBInline = 10
	SoLinger    = 13
)

// Options of IPProtoTCP, IPProtoIP and IPProtoIPv6.
const (
	TCPNoDelay    = 1
	TCPMaxSeg     = 2
	TCPKeepIdle   = 4
	TCPKeepIntvl  = 5
	TCPKeepCnt    = 6
	TCPInfo       = 11
	TCPCongestion = 13
	IPTOS         = 1
	IPv6V6Only    = 26
)

// Options of SolRDMA: sizes of the queues, bytes inside a request, IO maps that the peer may publish, and the way to the
// peer (RDMA_SQSIZE and so on). They can be set before the connection is made only.
const (
	RDMASQSize    = 0
	RDMARQSize    = 1
	RDMAInline    = 2
	RDMAIOMapSize = 3
	RDMARoute     = 4
)

// sockOptions are a socket's options.
type sockOptions struct {
	Options
	keepAlive bool
	keepIdle  int // seconds
	lingerOn  bool
	oobInline bool
	reuse     bool
	noDelay   bool
	v6only    bool
	tos       uint8
	fdFlags   int
	route     []byte
}

func defaultSockOptions() sockOptions {
	return sockOptions{Options: Options{}.withDefaults(), lingerOn: true, keepIdle: keepIdle()}
}

// keepIdle is the system's, or two hours (W-RS-32).
var keepIdle = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_keepalive_time")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n > 0 {
			return n
		}
	}
	return 7200
})

// option is an option as a whole.
type option struct{ level, name int }

// SetOptionInt sets an option that is a number (rsetsockopt). ENOTSUP for an unknown one, EINVAL for a bad value, or if it is too
// late.
func (s *Socket) SetOptionInt(level, name, value int) error {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(value))
	return s.SetOption(level, name, b[:])
}

// OptionInt reads an option that is a number (rgetsockopt).
func (s *Socket) OptionInt(level, name int) (int, error) {
	var b [4]byte
	n, err := s.Option(level, name, b[:])
	if err != nil || n == 0 {
		return 0, err
	}
	return int(int32(binary.NativeEndian.Uint32(b[:]))), nil
}

// SetOption sets an option (rsetsockopt): the bytes of an int in the machine's byte order, of a struct linger, or an array of struct
// ibv_path_data. Errors are those of SetOptionInt.
func (s *Socket) SetOption(level, name int, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := option{level, name}
	if s.closed {
		return errBadSocket
	}
	if o == (option{SolRDMA, RDMARoute}) {
		return s.setRoute(value)
	}
	if len(value) < 4 {
		return s.badOption(syscall.EINVAL, o, "has 4 bytes, not %d", len(value))
	}
	v := int(int32(binary.NativeEndian.Uint32(value)))
	if s.dg != nil && level != SolRDMA {
		if err := s.dg.setUDPOption(level, name, v); err != nil {
			return err
		}
	}
	switch level {
	case SolSocket:
		return s.setSocket(o, v)
	case IPProtoTCP:
		return s.setTCP(o, v)
	case SolRDMA:
		return s.setRDMA(o, v)
	}
	switch o {
	case option{IPProtoIPv6, IPv6V6Only}:
		s.o.v6only = v != 0
		if s.id != nil {
			return s.id.SetAFOnly(v != 0)
		}
	case option{IPProtoIP, IPTOS}:
		s.o.tos = uint8(v)
		if s.id != nil {
			return s.id.SetTOS(uint8(v))
		}
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

func (s *Socket) badOption(errno syscall.Errno, o option, format string, args ...any) error {
	return fail("rsetsockopt", errno, "option %d of level %#x "+format, append([]any{o.name, o.level}, args...)...)
}

func (s *Socket) setSocket(o option, v int) error {
	// Buffers to come are as large as twice the value (R-OPT).
	size := func(to *int, least int) {
		if v > 0 && v < 1<<29 {
			*to = max(2*v, least)
		}
	}
	switch o.name {
	case SoKeepAlive:
		s.o.keepAlive = v != 0
		s.applyKeepalive()
	case SoLinger:
		s.o.lingerOn = v != 0
	case SoOOBInline:
		s.o.oobInline = v != 0
	case SoRcvBuf:
		size(&s.o.RecvBuf, minRecvBuf)
	case SoSndBuf:
		size(&s.o.SendBuf, minSendBuf)
	case SoReuseAddr:
		s.o.reuse = v != 0
		if s.id != nil {
			return s.id.SetReuseAddr(v != 0)
		}
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

func (s *Socket) setTCP(o option, v int) error {
	switch o.name {
	case TCPNoDelay:
		s.o.noDelay = v != 0
	case TCPMaxSeg, TCPKeepCnt, TCPKeepIntvl, TCPCongestion:
	case TCPKeepIdle:
		if v <= 0 {
			return s.badOption(syscall.EINVAL, o, "is %d; 1 second is the least", v)
		}
		s.o.keepIdle = v
		s.applyKeepalive()
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

func (s *Socket) setRDMA(o option, v int) error {
	if s.st != nil {
		return s.badOption(syscall.EINVAL, o, "can be set before the connection is made only")
	}
	v = min(max(v, 0), maxQueue)
	switch o.name {
	case RDMASQSize:
		s.o.SQSize = max(v, 1)
	case RDMARQSize:
		s.o.RQSize = max(v, 1)
	case RDMAInline:
		s.o.Inline = v
	case RDMAIOMapSize:
		s.o.IOMaps = rs.Unscale(rs.Scale(v))
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

func (s *Socket) setRoute(value []byte) error {
	o := option{SolRDMA, RDMARoute}
	switch {
	case s.st != nil || s.dg != nil:
		return s.badOption(syscall.EINVAL, o, "can be set before the connection of a stream is made only")
	case len(value) == 0 || len(value)%pathDataLen != 0:
		return s.badOption(syscall.EINVAL, o, "has %d bytes; paths have %d each", len(value), pathDataLen)
	}
	s.o.route = append([]byte(nil), value...)
	return nil
}

// applyKeepalive begins or ends looking after the peer.
func (s *Socket) applyKeepalive() {
	if s.st == nil {
		return
	}
	every := time.Duration(0)
	if s.o.keepAlive {
		every = time.Duration(s.o.keepIdle) * time.Second
	}
	s.st.startKeepalive(every)
}

// Option reads an option into value and tells how many bytes it has (rgetsockopt). ENOTSUP for an unknown one.
func (s *Socket) Option(level, name int, value []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := option{level, name}
	if s.closed {
		return 0, errBadSocket
	}
	switch o {
	case option{SolRDMA, RDMARoute}:
		return s.getRoute(value)
	case option{SolSocket, SoBroadcast}:
		return 0, nil
	case option{SolSocket, SoLinger}:
		if len(value) < 8 {
			break
		}
		binary.NativeEndian.PutUint32(value, uint32(number01(s.o.lingerOn)))
		binary.NativeEndian.PutUint32(value[4:], 0)
		return 8, nil
	}
	v, ok := s.number(o)
	switch {
	case !ok:
		return 0, fail("rgetsockopt", syscall.ENOTSUP, "option %d of level %#x is not known", name, level)
	case len(value) < 4:
		return 0, fail("rgetsockopt", syscall.EINVAL, "%d bytes are too few for the option", len(value))
	}
	binary.NativeEndian.PutUint32(value, uint32(v))
	return 4, nil
}

func number01(b bool) int {
	if b {
		return 1
	}
	return 0
}

// number is the value of an option that is a number.
func (s *Socket) number(o option) (int, bool) {
	so := &s.o
	switch o {
	case option{SolSocket, SoError}:
		return s.takeError(), true
	case option{SolSocket, SoKeepAlive}:
		return number01(so.keepAlive), true
	case option{SolSocket, SoLinger}:
		return number01(so.lingerOn), true
	case option{SolSocket, SoOOBInline}:
		return number01(so.oobInline), true
	case option{SolSocket, SoRcvBuf}:
		return s.sizes().RecvBuf, true
	case option{SolSocket, SoSndBuf}:
		return s.sizes().SendBuf, true
	case option{SolSocket, SoReuseAddr}:
		return number01(so.reuse), true
	case option{IPProtoTCP, TCPNoDelay}:
		return number01(so.noDelay), true
	case option{IPProtoTCP, TCPMaxSeg}:
		return s.pathMTU(), true
	case option{IPProtoTCP, TCPKeepIdle}:
		return so.keepIdle, true
	case option{IPProtoTCP, TCPKeepCnt}, option{IPProtoTCP, TCPKeepIntvl}, option{IPProtoTCP, TCPCongestion}:
		return 1, true
	case option{IPProtoTCP, TCPInfo}:
		return s.tcpState(), true
	case option{IPProtoIPv6, IPv6V6Only}:
		return number01(so.v6only), true
	case option{IPProtoIP, IPTOS}:
		return int(so.tos), true
	case option{SolRDMA, RDMASQSize}:
		return s.sizes().SQSize, true
	case option{SolRDMA, RDMARQSize}:
		return s.sizes().RQSize, true
	case option{SolRDMA, RDMAInline}:
		return s.sizes().Inline, true
	case option{SolRDMA, RDMAIOMapSize}:
		return s.sizes().IOMaps, true
	}
	return 0, false
}

// sizes are those in use, or those wished for.
func (s *Socket) sizes() Options {
	if s.st == nil {
		return s.o.Options
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return s.st.opts
}

// takeError is the pending error, which it clears.
func (s *Socket) takeError() int {
	if s.st == nil {
		return 0
	}
	if err := s.st.takeError(); err != nil {
		return int(errnoOf(err))
	}
	return 0
}

const unknownMTU = 2048

func (s *Socket) pathMTU() int {
	if s.st == nil {
		return unknownMTU
	}
	for _, p := range s.st.paths() {
		return p.MTU.Bytes()
	}
	return unknownMTU
}

// States of TCP_INFO.
const (
	tcpEstablished = 1
	tcpClose       = 7
	tcpListen      = 10
	tcpSynSent     = 2
)

func (s *Socket) tcpState() int {
	switch {
	case s.l != nil:
		return tcpListen
	case s.st == nil:
		return tcpClose
	case s.st.isConnecting():
		return tcpSynSent
	case s.st.isOver():
		return tcpClose
	}
	return tcpEstablished
}

// getRoute writes the paths in use.
func (s *Socket) getRoute(value []byte) (int, error) {
	if len(value) < pathDataLen {
		return 0, fail("rgetsockopt", syscall.EINVAL, "%d bytes are too few for a path of %d", len(value), pathDataLen)
	}
	var paths []byte
	switch {
	case s.st != nil:
		for _, p := range s.st.paths() {
			paths = appendPath(paths, &p)
		}
	default:
		paths = s.o.route
	}
	return copy(value[:len(value)/pathDataLen*pathDataLen], paths), nil
}

func (st *stream) paths() []rdmacm.PathRec { return st.id.Route().PathRec }
