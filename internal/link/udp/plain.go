package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A plainLink is a link over package net: one system call for each packet, and a goroutine that reads each receive
// socket into the rings of the ports.
//
// It neither sends nor returns traffic class and hop limit, and has no multicast. Over IPv4 its packets verify at
// peers that, like Verbena, accept any identification, and at all peers if the system sends 0 with DF (Linux, macOS).
type plainLink struct {
	cfg   Config
	ifi   *net.Interface
	ports []*plainPort
	pool  pool
	ready sync.WaitGroup // of the reading goroutines

	mu    sync.RWMutex // Send holds it for reading, changes of the addresses for writing
	socks []plainSocket
	// +checklocks:mu
	closed bool
}

// A plainSocket is the pair of sockets of one address.
type plainSocket struct {
	addr   netip.Addr
	rx, tx *net.UDPConn
	source uint16
}

func openPlain(cfg Config) (link.Link, error) {
	cfg, ifi, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &plainLink{cfg: cfg, ifi: ifi}
	for range cfg.Ports {
		l.ports = append(l.ports, newPlainPort(l))
	}
	if err := l.SetAddrs(cfg.Addrs); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *plainLink) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// Capabilities returns the buffer size that was requested: package net does not return the one that the kernel gave.
func (l *plainLink) Capabilities() link.Capabilities {
	return link.Capabilities{RecvBuffer: l.cfg.RecvBuffer}
}

func (l *plainLink) SetAddrs(addrs []netip.Addr) error {
	addrs, err := checkAddrs(addrs)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	keep, added := []plainSocket(nil), []plainSocket(nil)
	for _, a := range addrs {
		if i := slices.IndexFunc(l.socks, func(s plainSocket) bool { return s.addr == a }); i >= 0 {
			keep = append(keep, l.socks[i])
			continue
		}
		s, err := l.openAddr(a)
		if err != nil {
			for _, s := range added {
				s.close()
			}
			return err
		}
		added = append(added, s)
	}
	for _, s := range l.socks {
		if !slices.Contains(addrs, s.addr) {
			s.close()
		}
	}
	for _, s := range added {
		l.read(s.rx, s.addr)
	}
	l.socks = append(keep, added...)
	return nil
}

func (l *plainLink) udpAddr(a netip.Addr, port uint16) netip.AddrPort {
	if zoned(a) {
		a = a.WithZone(l.ifi.Name)
	}
	return netip.AddrPortFrom(a, port)
}

func network(a netip.Addr) string {
	if a.Is4() {
		return "udp4"
	}
	return "udp6"
}

func (l *plainLink) openAddr(a netip.Addr) (s plainSocket, err error) {
	s.addr = a
	s.rx, err = known(func() (*net.UDPConn, error) {
		return net.ListenUDP(network(a), net.UDPAddrFromAddrPort(l.udpAddr(a, l.cfg.Port)))
	})
	if err != nil {
		return s, bindError(netip.AddrPortFrom(a, l.cfg.Port), false, err)
	}
	s.rx.SetReadBuffer(l.cfg.RecvBuffer)
	s.source, err = eachSourcePort(a, func(port uint16) error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { dontFragment(fd, a) })
		}}
		c, err := known(func() (*net.UDPConn, error) {
			c, err := lc.ListenPacket(context.Background(), network(a), l.udpAddr(a, port).String())
			if err != nil {
				return nil, err
			}
			return c.(*net.UDPConn), nil
		})
		s.tx = c
		return err
	})
	if err != nil {
		s.rx.Close()
		return s, err
	}
	s.tx.SetWriteBuffer(l.cfg.SendBuffer)
	return s, nil
}

// known opens a socket and adds it to those that a forked child closes.
func known(open func() (*net.UDPConn, error)) (*net.UDPConn, error) {
	fdset.Opening()
	defer fdset.Opened()
	c, err := open()
	if err == nil {
		fdset.AddConn(c)
	}
	return c, err
}

func (s *plainSocket) close() {
	s.rx.Close()
	s.tx.Close()
}

// read starts the goroutine that reads c, which is bound to dst, until it is closed.
func (l *plainLink) read(c *net.UDPConn, dst netip.Addr) {
	l.ready.Go(func() {
		for {
			pkt := l.pool.get()
			n, from, err := c.ReadFromUDPAddrPort(pkt.buf)
			switch {
			case err == nil:
			case errors.Is(err, net.ErrClosed):
				return
			case errnoOf(err) == syscall.EMSGSIZE: // Windows refuses a packet longer than the buffer, others cut it off
				l.pool.put(pkt)
				l.ports[0].counters.rxMalformed.Add(1)
				continue
			default:
				// Such as an ICMP message. The pause prevents a busy loop.
				l.pool.put(pkt)
				time.Sleep(time.Millisecond)
				continue
			}
			pkt.n, pkt.dst, pkt.source = n, dst, from.Port()
			pkt.src = from.Addr().Unmap().WithZone("")
			if p := l.portOf(pkt); !p.ring.push(pkt) {
				p.counters.rxDropped.Add(1)
				l.pool.put(pkt)
			}
		}
	})
}

// portOf returns the port of a packet, which is not checked yet.
func (l *plainLink) portOf(pkt *plainPacket) *plainPort {
	if pkt.n < wire.BTHLen {
		return l.ports[0]
	}
	return l.ports[int(wire.BTH(pkt.buf).DestQPN())%len(l.ports)]
}

// Join fails: package net can bind a multicast socket only to all addresses, which conflicts with the sockets of the
// local addresses.
func (l *plainLink) Join(group netip.Addr) error { return l.noGroups("join", group) }

// Leave fails, as Join does.
func (l *plainLink) Leave(group netip.Addr) error { return l.noGroups("leave", group) }

func (l *plainLink) noGroups(what string, group netip.Addr) error {
	return fmt.Errorf("link/udp: %s %v: multicast needs Linux: %w", what, group, syscall.EOPNOTSUPP)
}

func (l *plainLink) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errClosed
	}
	l.closed = true
	for _, s := range l.socks {
		s.close()
	}
	l.socks = nil
	l.mu.Unlock()
	for _, p := range l.ports {
		p.ring.close()
	}
	l.ready.Wait()
	return nil
}
