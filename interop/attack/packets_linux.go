package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A stranger is a host that sends packets from its own address. On the loopback interface it can have any of
// 127.0.0.0/8, so many strangers replace forged addresses.
type stranger struct {
	from netip.AddrPort
	to   netip.Addr
	c    *net.UDPConn
}

func newStranger(from, to netip.Addr) (*stranger, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		cerr := raw.Control(func(fd uintptr) { // makes the IPv4 identification 0, which the ICRC covers
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		})
		if err == nil {
			err = cerr
		}
		return err
	}}
	c, err := lc.ListenPacket(ctx, "udp4", netip.AddrPortFrom(from, 0).String())
	if err != nil {
		return nil, err
	}
	u := c.(*net.UDPConn)
	return &stranger{u.LocalAddr().(*net.UDPAddr).AddrPort(), to, u}, nil
}

// A packet is ready to be sent, any number of times.
type packet struct {
	s  *stranger
	to netip.Addr
	b  []byte
}

func (p packet) send() { _, _ = p.s.c.WriteToUDPAddrPort(p.b, netip.AddrPortFrom(p.to, wire.Port)) }

// packet returns a packet with a correct ICRC.
func (s *stranger) packet(f *wire.Fields) packet {
	b := append(f.Append(nil), 0, 0, 0, 0)
	wire.NewFlow(s.from.Addr(), s.to, s.from.Port(), wire.Port).Seal(b, 0)
	return packet{s, s.to, b}
}

// management returns a packet with a management datagram.
func (s *stranger) management(m cmmsg.Msg) packet {
	return s.packet(&wire.Fields{
		Opcode: wire.UD | wire.SendOnly, PKey: 0xffff, DestQPN: wire.GSIQPN, QKey: wire.GSIQKey, SrcQPN: 1, Payload: m,
	})
}

// disconnect returns a DREQ for a connection of a slot that does not exist.
func (s *stranger) disconnect(slot int) packet {
	m := cmmsg.Make(make([]byte, 256), cmmsg.KindDREQ, 1)
	cmmsg.DREQ(m.Data()).Put(1, uint32(slot)<<24|0x123456, 5)
	return s.management(m)
}

// request returns a REQ for a TCP port of rdma_cm, the n-th of the host's connections.
func (s *stranger) request(port uint16, n uint32) packet {
	return s.requestOf(uint64(binary.BigEndian.Uint32(s.from.Addr().AsSlice())), port, n)
}

// requestOf is request with the GUID of a node.
func (s *stranger) requestOf(guid uint64, port uint16, n uint32) packet {
	m := cmmsg.Make(make([]byte, 256), cmmsg.KindREQ, uint64(n))
	cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
		LocalID: n, ServiceID: cmmsg.PSTCP.Service(port),
		LocalGUID: guid,
		LocalQPN:  n&0x7fffff<<1 | 1, RemoteTimeout: 20, LocalTimeout: 20, MaxRetries: 15, PKey: 0xffff, MTU: 3,
		Primary: cmmsg.PathFields{
			LocalGID: cmmsg.GID(s.from.Addr()), RemoteGID: cmmsg.GID(s.to), HopLimit: 64, AckTimeout: 17,
		},
	})
	m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(s.from.Addr(), uint16(n)), s.to))
	return s.management(m)
}

// lookup returns a SIDR_REQ for a UDP port of rdma_cm, the n-th of the host.
func (s *stranger) lookup(port uint16, n uint32) packet {
	m := cmmsg.Make(make([]byte, 256), cmmsg.KindSIDRREQ, uint64(n))
	cmmsg.SIDRREQ(m.Data()).Put(n, 0xffff, cmmsg.PSUDP.Service(port))
	m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(s.from.Addr(), uint16(n)), s.to))
	return s.management(m)
}

// paced calls f rate times a second for d, and returns the number of calls.
func paced(rate int, d time.Duration, f func(i int)) (n int) {
	for start := time.Now(); time.Since(start) < d; n++ {
		f(n)
		if ahead := time.Duration(n)*time.Second/time.Duration(rate) - time.Since(start); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
	}
	return n
}
