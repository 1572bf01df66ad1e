package rstools

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rsocket"
)

// Messages of udpong: operation, the client's number, a sequence number, a reserved byte, a number in
// network byte order, and data.
const (
	pongLogin = iota
	pongStart
	pongData
	pongEcho
	pongEnd
)

const (
	pongControl = 16
	pongMax     = 8 + 2048
)

// packets is a datagram socket with or without a destination.
type packets interface {
	Read(b []byte) (int, error)
	ReadFrom(b []byte) (int, net.Addr, error)
	Write(b []byte) (int, error)
	WriteTo(b []byte, to net.Addr) (int, error)
	SetReadDeadline(time.Time) error
	Close() error
}

type udpong struct {
	env                 *tool.Env
	server, bind, port  string
	buffer, count, size int
	custom, echo, udp   bool

	name string
	c    packets
	msg  [pongMax]byte
	seq  uint8
}

func runUDPong(env *tool.Env, args []string) int {
	u := &udpong{env: env}
	f := tool.NewFlags(env, "[-s server_address] [-b bind_address] [options]")
	f.StringVarP(&u.server, "server", "s", "", "server_address; without it this is the server")
	f.StringVarP(&u.bind, "bind", "b", "", "bind_address")
	f.IntVarP(&u.buffer, "buffer", "B", 1<<19, "buffer_size")
	f.IntVarP(&u.count, "count", "C", 1000, "transfer_count")
	f.IntVarP(&u.size, "size", "S", 1000, "transfer_size")
	f.StringVarP(&u.port, "port", "p", "7174", "port_number")
	tests := f.StringSliceP("test", "T", nil,
		"test_option: sockets (UDP), async, blocking, nonblocking, echo, or their first letter")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	for _, t := range *tests {
		t = strings.ToLower(t)
		is := func(word string) bool { return t == word[:1] || len(t) > 1 && strings.HasPrefix(t, word) }
		switch {
		case is("socket"):
			u.udp = true
		case is("echo"):
			u.echo = true
		case is("async"), is("block"), is("nonblock"): // all of them wait in the same way here
		default:
			return f.Misused(fmt.Sprintf("unknown test option %q", t))
		}
	}
	u.custom = f.Changed("count") || f.Changed("size")
	switch {
	case f.NArg() > 0:
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args()))
	case u.size < pongControl:
		return f.Misused(fmt.Sprintf("size must be at least %d bytes", pongControl))
	case u.size > rsocket.MaxDatagram4 || u.count < 1:
		return f.Misused(fmt.Sprintf("size must be at most %d bytes, and count positive", rsocket.MaxDatagram4))
	}
	run := u.serve
	if u.server != "" {
		run = u.client
	}
	if err := run(); err != nil {
		return env.Failf("udpong: %v", err)
	}
	return 0
}

// serve serves clients for ever.
func (u *udpong) serve() error {
	at, err := addresses(u.bind, u.port, false)
	if err != nil {
		return err
	}
	l := rsocket.ListenConfig{Options: rsocket.Options{SendBuf: 2 * u.buffer, RecvBuf: 2 * u.buffer}}
	var c net.PacketConn
	if u.udp {
		c, err = net.ListenPacket("udp", at.String())
	} else {
		c, err = l.ListenPacket(background, "udp", at.String())
	}
	if err != nil {
		return err
	}
	defer c.Close()
	var received [256]uint32
	var id uint8
	for {
		n, from, err := c.ReadFrom(u.msg[:])
		if err != nil {
			return err
		}
		if n < 8 {
			continue
		}
		m := u.msg[:n]
		switch m[0] {
		case pongLogin:
			fmt.Fprintf(u.env.Stdout, "client login from %s\n", from.(*net.UDPAddr).IP)
			m[1] = id
			id++
			received[m[1]] = 0
		case pongStart:
			received[m[1]] = 0
		case pongEcho:
			received[m[1]]++
		case pongEnd:
			binary.BigEndian.PutUint32(m[4:], received[m[1]])
		default:
			received[m[1]]++
			continue
		}
		if _, err := c.WriteTo(m, from); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			fmt.Fprintf(u.env.Stderr, "rsend: %v\n", err)
		}
	}
}

func (u *udpong) client() error {
	head(u.env.Stdout, false)
	if err := u.connect(); err != nil {
		return err
	}
	defer u.c.Close()
	if u.custom {
		u.name = "custom"
		return u.test()
	}
	for _, latency := range []bool{true, false} {
		for _, t := range series(1<<6, 1<<10) {
			u.size, u.echo = t.n, latency
			if latency {
				u.name, u.count = sizeText(int64(t.n))+"_lat", countFor(t.n)/10
			} else {
				u.name, u.count = sizeText(int64(t.n))+"_bw", countFor(t.n)
			}
			if err := u.test(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *udpong) connect() error {
	to, err := addresses(u.server, u.port, false)
	if err != nil {
		return err
	}
	var c net.Conn
	if u.udp {
		c, err = net.Dial("udp", to.String())
	} else {
		d := rsocket.Dialer{Options: rsocket.Options{SendBuf: 2 * u.buffer, RecvBuf: 2 * u.buffer}}
		if u.bind != "" {
			var from netip.AddrPort
			if from, err = addresses(u.bind, "0", false); err != nil {
				return err
			}
			d.LocalAddr = net.UDPAddrFromAddrPort(from)
		}
		c, err = d.Dial("udp", to.String())
	}
	if err != nil {
		return err
	}
	u.c = c.(packets)
	return u.login(to)
}

// errSilent is the error of ask if no answer came.
var errSilent = errors.New("no answer")

const (
	// loginLimit and unreachableLimit bound the time until a user learns that there is no server.
	loginLimit       = 3 * time.Second
	unreachableLimit = 4 * time.Second // Linux gives up an address that answers no ARP after 3 s
	// answerLimit bounds the silence of a server that has answered before.
	answerLimit = 10 * time.Second
)

// login announces the client to the server. If the server does not answer, the error says what is known about it.
func (u *udpong) login(server netip.AddrPort) error {
	err := u.ask(pongLogin, pongControl, time.Second, loginLimit)
	if !errors.Is(err, errSilent) {
		return err
	}
	ctx, cancel := context.WithTimeout(background, unreachableLimit)
	defer cancel()
	empty := func(_, _ netip.AddrPort) []byte { return nil }
	switch why := lookup.Unreachable(ctx, netip.Addr{}, server, empty); {
	case errors.Is(why, syscall.ECONNREFUSED):
		err = fmt.Errorf("UDP port %d of %v is closed: %w", server.Port(), server.Addr(), syscall.ECONNREFUSED)
	case why != nil:
		err = why
	}
	return fmt.Errorf("login at %v: %w; start udpong there first, and compare address and port (-s, -p)", server, err)
}

// ask sends a message of n bytes each interval until it is answered, or limit has passed.
func (u *udpong) ask(op uint8, n int, interval, limit time.Duration) error {
	seq := u.seq
	u.seq++
	id := u.msg[1]
	for range int(limit / interval) {
		u.msg[0], u.msg[1], u.msg[2] = op, id, seq
		if _, err := u.c.Write(u.msg[:n]); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		if err := u.c.SetReadDeadline(time.Now().Add(interval)); err != nil {
			return err
		}
		for {
			got, err := u.c.Read(u.msg[:])
			if err == nil && (got < 8 || u.msg[2] != seq) {
				continue
			}
			switch {
			case err == nil:
				return nil
			case !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, syscall.ECONNREFUSED):
				return err
			}
			break
		}
	}
	return fmt.Errorf("%w from %s, port %s, within %v", errSilent, u.server, u.port, limit)
}

// test makes the transfers of one size.
func (u *udpong) test() error {
	if err := u.ask(pongStart, pongControl, time.Second, answerLimit); err != nil {
		return err
	}
	start := time.Now()
	for range u.count {
		var err error
		if u.echo {
			err = u.ask(pongEcho, u.size, time.Millisecond, answerLimit)
		} else {
			u.msg[0] = pongData
			_, err = u.c.Write(u.msg[:u.size])
		}
		if err != nil {
			return err
		}
	}
	if err := u.ask(pongEnd, pongControl, time.Millisecond, answerLimit); err != nil {
		return err
	}
	took := time.Since(start)
	n := 2 * u.count
	if !u.echo {
		n = int(binary.BigEndian.Uint32(u.msg[4:]))
	}
	r := result{
		name: u.name, size: u.size, transfers: n, total: int64(n) * int64(u.size), took: took,
		perTransfer: float64(took) / 1e3 / float64(max(n, 1)),
	}
	r.print(u.env.Stdout)
	return nil
}
