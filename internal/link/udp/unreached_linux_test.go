package udp

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// openReporting opens a link at a loopback address whose transmit socket reports ICMP messages, as that of another
// interface does.
func openReporting(t *testing.T, a netip.Addr) *Link {
	t.Helper()
	l := batchedLink(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t)})
	l.loopback = false
	tx, err := l.openSend(a, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := l.ports[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	closeAll(nil, p.tx)
	p.tx = []*txSocket{tx}
	p.sender.forget()
	return l
}

// sendAlong sends one packet of 32 bytes along each path.
func sendAlong(l *Link, paths ...*link.Path) {
	tx := link.NewTxBatch(len(paths), 1<<12)
	for i, path := range paths {
		fill(tx.Alloc(path, 1, 32), 0, uint32(i))
	}
	l.ports[0].Send(tx)
}

// TestUnreachableAddresses checks that packets to an address that an ICMP message is about are sent, and count as
// refused, and that a message changes nothing for packets to other addresses.
func TestUnreachableAddresses(t *testing.T) {
	for _, a := range []netip.Addr{lo4, lo6} {
		if !has(loopbacks, a) {
			continue
		}
		l := openReporting(t, a)
		p := l.ports[0]
		dst := map[netip.Addr]netip.Addr{lo4: lo4b, lo6: lo6}[a]
		port := l.cfg.Port
		if a.Is6() {
			l.cfg.Port++ // ::1 is the only address: packets go to a port that nobody has
		}
		nobody := &link.Path{Src: a, Dst: dst, Private: true}
		sendAlong(l, nobody)
		if nobody.Refused != (link.Refusal{}) {
			t.Fatalf("%v: %+v before any message", a, nobody.Refused)
		}
		sent := uint64(1)
		for end := time.Now().Add(20 * time.Second); nobody.Refused == (link.Refusal{}) && time.Now().Before(end); {
			sendAlong(l, nobody, nobody)
			sent += 2
		}
		want := link.RefusalOf(unix.ECONNREFUSED, link.HeadersLen(dst)+32+wire.ICRCLen)
		if nobody.Refused != want {
			t.Errorf("%v: %+v, want %+v", a, nobody.Refused, want)
		}
		l.cfg.Port = port
		p.sender.forget()
		self := &link.Path{Src: a, Dst: a, Private: true}
		sendAlong(l, self)
		receive(t, p, 1)
		if a.Is4() && self.Refused != (link.Refusal{}) {
			t.Errorf("%v: a packet to another address: %+v", a, self.Refused)
		}
		if c := p.Counters(); c.TxPackets != sent+1 || c.TxDropped != 0 {
			t.Errorf("%v: %d packets sent, %d dropped, want %d and 0", a, c.TxPackets, c.TxDropped, sent+1)
		}
	}
}

// TestOldNoticesDoNotCount checks that an ICMP message counts for a limited time, and that the table of messages is
// bounded.
func TestOldNoticesDoNotCount(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.ports[0]
	p.note(lo4, unix.EHOSTUNREACH)
	p.note(lo4b, unix.EHOSTUNREACH)
	refused := func(dst netip.Addr) bool {
		path := &link.Path{Src: lo4, Dst: dst, Private: true}
		sendAlong(l, path)
		return path.Refused.Errno() == unix.EHOSTUNREACH
	}
	for range 2 {
		if !refused(lo4) {
			t.Error("a packet to an unreachable address does not count as refused")
		}
	}
	for i, a := range []netip.Addr{lo4, lo4b} {
		p.unreached[a] = notice{unix.EHOSTUNREACH, time.Now().Add(-time.Nanosecond)}
		if refused(a) {
			t.Error("a packet counts as refused after the time of the message")
		}
		if n := len(p.unreached); n != 1-i || n == 0 && p.unreached != nil {
			t.Errorf("%d addresses are left, want %d", n, 1-i)
		}
	}
	for i := range 3 * maxNotices {
		p.note(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), unix.EHOSTUNREACH)
		if n := len(p.unreached); n == 0 || n > maxNotices {
			t.Fatalf("%d addresses after %d messages, want 1 to %d", n, i+1, maxNotices)
		}
	}
}

// TestEveryMessageIsNoFailure checks that an ICMP message, whatever its errno, does not drop the next packet of the
// socket, which may be for another address.
func TestEveryMessageIsNoFailure(t *testing.T) {
	l := openReporting(t, lo4)
	p := l.ports[0]
	icmp, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(icmp)
	const unreachable, badParameter = 3, 12 // code 4 of the first would change the host's path MTU
	for _, m := range []struct{ kind, code byte }{
		{unreachable, 0}, {unreachable, 1}, {unreachable, 2}, {unreachable, 3}, {unreachable, 5}, {unreachable, 6},
		{unreachable, 7}, {unreachable, 8}, {unreachable, 9}, {unreachable, 13}, {badParameter, 0},
	} {
		about := icmpAbout(m.kind, m.code, lo4, p.tx[0].port, lo4b, l.cfg.Port)
		if err := unix.Sendto(icmp, about, 0, &unix.SockaddrInet4{Addr: lo4.As4()}); err != nil {
			t.Fatal(err)
		}
		self := &link.Path{Src: lo4, Dst: lo4, Private: true}
		sendAlong(l, self)
		if self.Refused != (link.Refusal{}) {
			t.Errorf("ICMP type %d, code %d: a packet to another address: %+v", m.kind, m.code, self.Refused)
		}
	}
	if n := p.Counters().TxDropped; n != 0 {
		t.Errorf("%d packets dropped", n)
	}
}

// icmpAbout returns an ICMP message about a datagram.
func icmpAbout(kind, code byte, src netip.Addr, srcPort uint16, dst netip.Addr, dstPort uint16) []byte {
	m := make([]byte, 8+20+8)
	m[0], m[1] = kind, code
	ip := m[8:]
	ip[0], ip[3], ip[8], ip[9] = 0x45, 20+8, 64, unix.IPPROTO_UDP
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(ip[20:], srcPort)
	binary.BigEndian.PutUint16(ip[22:], dstPort)
	binary.BigEndian.PutUint16(ip[24:], 8)
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum))
	return m
}
