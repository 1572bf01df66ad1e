package socket

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
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
	SoError     = 4  // read only: the errno of a failed connection, which reading clears
	SoBroadcast = 6  // read only, and of no bytes
	SoSndBuf    = 7  // bytes; the buffer gets twice as many, as in Linux; no effect once the connection is made
	SoRcvBuf    = 8  // as SoSndBuf
	SoKeepAlive = 9  // the time without messages is TCPKeepIdle
	SoOOBInline = 10 // kept, without effect
	SoLinger    = 13 // kept, without effect: Close waits at most two seconds
)

// Options of IPProtoTCP, IPProtoIP and IPProtoIPv6.
const (
	TCPNoDelay    = 1  // kept, without effect: data never waits for more data
	TCPMaxSeg     = 2  // reads the path MTU in bytes; setting it has no effect
	TCPKeepIdle   = 4  // seconds, at least 1; by default the system's tcp_keepalive_time, or 7200
	TCPKeepIntvl  = 5  // without effect
	TCPKeepCnt    = 6  // without effect
	TCPInfo       = 11 // read only: the state, 1 established, 2 connecting, 7 closed, 10 listening; see Option
	TCPCongestion = 13 // without effect
	IPTOS         = 1  // an int, or one byte as in C
	IPv6V6Only    = 26
)

// Options of SolRDMA: sizes of the queues, bytes inside a request, IO maps that the peer may publish, and the way
// to the peer (RDMA_SQSIZE and so on). They must be set before the connection is made.
const (
	RDMASQSize    = 0
	RDMARQSize    = 1
	RDMAInline    = 2
	RDMAIOMapSize = 3
	RDMARoute     = 4
)

// RDMAAgain is an option of SolRDMA that C does not have. It can only be set: after an attempt to connect that has
// failed, Connect may be called again, as with TCP. EINVAL otherwise.
const RDMAAgain = 0x100

// RDMAUnacked is an option of SolRDMA that C does not have. It can only be read: how many bytes of the send buffer the
// peer has not acknowledged.
const RDMAUnacked = 0x101

// sockOptions are the options of a socket.
type sockOptions struct {
	sock.Options
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
	return sockOptions{Options: sock.Options{}.WithDefaults(), lingerOn: true, keepIdle: keepIdle()}
}

// keepIdle returns the system's keepalive time in seconds, or two hours (W-RS-32).
var keepIdle = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_keepalive_time")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n > 0 {
			return n
		}
	}
	return 7200
})

// option is a level and a name.
type option struct{ level, name int }

// SetOptionInt sets an option that is a number (rsetsockopt). ENOTSUP for an unknown option; EINVAL for a bad value,
// or if the option must be set before the connection is made. A failure changes nothing.
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

// SetOption sets an option (rsetsockopt): the bytes of an int in the machine's byte order, of a struct linger, or of
// an array of struct ibv_path_data; of IPTOS one byte is enough. Errors are those of SetOptionInt. On Linux an option
// of a datagram socket whose level is neither SolRDMA nor that of UDP is set for the socket's UDP socket too, which may
// have others; the errors are those of the system then.
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
	udp := false
	// Those of UDP itself would split, join or hold back the messages of the protocol.
	if s.dg != nil && level != SolRDMA && level != ProtoUDP {
		if err := s.dg.SetUDPOption(level, name, value); err != nil {
			return err
		}
		udp = sock.UDPOptions
	}
	err := s.setNumber(o, value)
	if udp && (len(value) < 4 || errors.Is(err, syscall.ENOTSUP)) {
		return nil // the UDP socket has it
	}
	return err
}

// setNumber sets an option whose value begins with an int. mu is held.
//
// +checklocks:s.mu
func (s *Socket) setNumber(o option, value []byte) error {
	if o == (option{IPProtoIP, IPTOS}) && len(value) > 0 && len(value) < 4 {
		value = binary.NativeEndian.AppendUint32(nil, uint32(value[0]))
	}
	if len(value) < 4 {
		return s.badOption(syscall.EINVAL, o, "has %d bytes: must be at least 4", len(value))
	}
	v := int(int32(binary.NativeEndian.Uint32(value)))
	switch o.level {
	case SolSocket:
		return s.setSocket(o, v)
	case IPProtoTCP:
		return s.setTCP(o, v)
	case SolRDMA:
		return s.setRDMA(o, v)
	}
	switch o {
	case option{IPProtoIPv6, IPv6V6Only}:
		if s.id != nil {
			if err := s.id.SetAFOnly(v != 0); err != nil {
				return err
			}
		}
		s.o.v6only = v != 0
	case option{IPProtoIP, IPTOS}:
		if s.id != nil {
			if err := s.id.SetTOS(uint8(v)); err != nil {
				return err
			}
		}
		s.o.tos = uint8(v)
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

func (s *Socket) badOption(errno syscall.Errno, o option, format string, args ...any) error {
	return sock.Fail("rsetsockopt", errno, "option %d of level %#x "+format, append([]any{o.name, o.level}, args...)...)
}

// setSocket sets an option of SolSocket. mu is held.
//
// +checklocks:s.mu
func (s *Socket) setSocket(o option, v int) error {
	switch o.name {
	case SoKeepAlive:
		s.o.keepAlive = v != 0
		s.applyKeepalive()
	case SoLinger:
		s.o.lingerOn = v != 0
	case SoOOBInline:
		s.o.oobInline = v != 0
	case SoRcvBuf:
		setBuffer(&s.o.RecvBuf, v, sock.MinRecvBuf)
	case SoSndBuf:
		setBuffer(&s.o.SendBuf, v, sock.MinSendBuf)
	case SoReuseAddr:
		if s.id != nil {
			if err := s.id.SetReuseAddr(v != 0); err != nil {
				return err
			}
		}
		s.o.reuse = v != 0
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

// setBuffer sets the size of a buffer of the connection to come to twice the option's value (R-OPT). It ignores
// values out of range.
func setBuffer(size *int, v, least int) {
	if v > 0 && v < 1<<29 {
		*size = max(2*v, least)
	}
}

// setTCP sets an option of IPProtoTCP. mu is held.
//
// +checklocks:s.mu
func (s *Socket) setTCP(o option, v int) error {
	switch o.name {
	case TCPNoDelay:
		s.o.noDelay = v != 0
	case TCPMaxSeg, TCPKeepCnt, TCPKeepIntvl, TCPCongestion:
	case TCPKeepIdle:
		if v <= 0 {
			return s.badOption(syscall.EINVAL, o, "%d: must be at least 1 second", v)
		}
		s.o.keepIdle = v
		s.applyKeepalive()
	default:
		return s.badOption(syscall.ENOTSUP, o, "is not known")
	}
	return nil
}

// setRDMA sets an option of SolRDMA. mu is held.
//
// +checklocks:s.mu
func (s *Socket) setRDMA(o option, v int) error {
	if o.name == RDMAAgain {
		return s.connectAgain()
	}
	if s.st != nil {
		return s.badOption(syscall.EINVAL, o, "must be set before the connection is made")
	}
	v = min(max(v, 0), sock.MaxQueue)
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

// setRoute sets RDMA_ROUTE. mu is held.
//
// +checklocks:s.mu
func (s *Socket) setRoute(value []byte) error {
	o := option{SolRDMA, RDMARoute}
	switch {
	case s.st != nil || s.dg != nil:
		return s.badOption(syscall.EINVAL, o, "must be set before the connection of a stream is made")
	case len(value) == 0 || len(value)%pathDataLen != 0:
		return s.badOption(syscall.EINVAL, o, "has %d bytes: must be a multiple of %d, one or more paths", len(value),
			pathDataLen)
	}
	s.o.route = append([]byte(nil), value...)
	return nil
}

// applyKeepalive starts or ends the checks of an idle peer. mu is held.
//
// +checklocks:s.mu
func (s *Socket) applyKeepalive() {
	if s.st == nil {
		return
	}
	every := time.Duration(0)
	if s.o.keepAlive {
		every = time.Duration(s.o.keepIdle) * time.Second
	}
	s.st.SetKeepalive(every)
}

// Option reads an option into value and returns its length in bytes (rgetsockopt): that of an int, of a struct linger,
// or of the paths. IPTOS is one byte if there is no room for an int. TCPInfo is as much of a struct tcp_info as there
// is room for, if that is more than an int: the state, the size of the send queue as tcpi_snd_cwnd, and zeros. ENOTSUP
// for an unknown option.
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
	case option{IPProtoTCP, TCPInfo}:
		if len(value) > 4 {
			return copy(value, s.tcpInfo()), nil
		}
	}
	v, ok := s.number(o)
	switch {
	case !ok:
		return 0, sock.Fail("rgetsockopt", syscall.ENOTSUP, "option %d of level %#x is not known", name, level)
	case len(value) > 0 && len(value) < 4 && o == option{IPProtoIP, IPTOS}:
		value[0] = uint8(v)
		return 1, nil
	case len(value) < 4:
		return 0, sock.Fail("rgetsockopt", syscall.EINVAL, "%d bytes: must be at least 4", len(value))
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

// number returns the value of an option that is a number. mu is held.
//
// +checklocks:s.mu
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
	case option{SolRDMA, RDMAUnacked}:
		if s.st == nil {
			return 0, true
		}
		return s.st.Unacked(), true
	}
	return 0, false
}

// sizes returns the sizes in use, or before the connection is made the requested ones. mu is held.
//
// +checklocks:s.mu
func (s *Socket) sizes() sock.Options {
	if s.st == nil {
		return s.o.Options
	}
	return s.st.Options()
}

// takeError returns the pending error, and clears it. mu is held.
//
// +checklocks:s.mu
func (s *Socket) takeError() int {
	if s.st == nil {
		return 0
	}
	if err := s.st.TakeError(); err != nil {
		return int(sock.ErrnoOf(err))
	}
	return 0
}

const unknownMTU = 2048

// +checklocks:s.mu
func (s *Socket) pathMTU() int {
	if s.st == nil {
		return unknownMTU
	}
	if paths := s.st.Paths(); len(paths) > 0 {
		return paths[0].MTU.Bytes()
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

// +checklocks:s.mu
func (s *Socket) tcpState() int {
	switch {
	case s.l != nil:
		return tcpListen
	case s.st == nil:
		return tcpClose
	case s.st.IsConnecting():
		return tcpSynSent
	case s.st.IsOver():
		return tcpClose
	}
	return tcpEstablished
}

// tcpInfo returns a struct tcp_info of netinet/tcp.h.
//
// +checklocks:s.mu
func (s *Socket) tcpInfo() []byte {
	const state, sndCwnd, length = 0, 80, 104
	b := make([]byte, length)
	b[state] = uint8(s.tcpState())
	binary.NativeEndian.PutUint32(b[sndCwnd:], uint32(s.sizes().SQSize))
	return b
}

// getRoute writes the paths in use. mu is held.
//
// +checklocks:s.mu
func (s *Socket) getRoute(value []byte) (int, error) {
	if len(value) < pathDataLen {
		return 0, sock.Fail("rgetsockopt", syscall.EINVAL, "%d bytes: must be at least %d, one path", len(value), pathDataLen)
	}
	var paths []byte
	switch {
	case s.st != nil:
		for _, p := range s.st.Paths() {
			paths = appendPath(paths, &p)
		}
	default:
		paths = s.o.route
	}
	return copy(value[:len(value)/pathDataLen*pathDataLen], paths), nil
}
