package udp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestIdentificationOfTheICRC checks that the ICRC covers the identification that the kernel sends: 0 in a packet of
// its own, also after a refused run, and the position in a run. Verbena's receivers accept others, adapters do not.
func TestIdentificationOfTheICRC(t *testing.T) {
	for _, c := range []struct {
		name           string
		plain, refuses bool
		packets        int
		position       bool
	}{
		{name: "one packet", packets: 1},
		{name: "a run", packets: 3, position: true},
		{name: "a refused run", packets: 3, refuses: true},
		{name: "plain sockets", packets: 3, plain: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.plain {
				t.Setenv("VERBENA_UDP", "plain")
			} else {
				needBatched(t)
			}
			port := testPort(t)
			to, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lo4b, port)))
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: port, NoLend: true})
			if c.refuses {
				fd := l.(*Link).ports[0].tx[0].fd
				if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
					t.Fatal(err)
				}
			}
			tx := link.NewTxBatch(8, 1<<12)
			for i := range c.packets {
				fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4b}, 5, 40), 5, uint32(i))
			}
			l.Ports()[0].Send(tx)
			for i := range c.packets {
				id := uint16(0)
				if c.position {
					id = uint16(i)
				}
				if err := checkSeal(to, port, id); err != nil {
					t.Errorf("packet %d: %v", i, err)
				}
			}
		})
	}
}

// checkSeal receives a packet from lo4 and checks that its ICRC is that with an identification.
func checkSeal(c *net.UDPConn, port, id uint16) error {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, 1<<12)
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return err
	}
	want := bytes.Clone(b[:n])
	wire.NewFlow(lo4, lo4b, from.Port(), port).Seal(want, id)
	if !bytes.Equal(b[:n], want) {
		return fmt.Errorf("the ICRC is % x, with the identification %d it is % x", b[n-wire.ICRCLen:n], id,
			want[n-wire.ICRCLen:])
	}
	return nil
}

// TestFlowsOfSeveralSenders checks that packets verify whichever of their source address, source port and destination
// a sender shares with the one before.
func TestFlowsOfSeveralSenders(t *testing.T) {
	var v verifier
	const port = 4791
	type sender struct {
		src, dst netip.Addr
		port     uint16
	}
	senders := []sender{
		{lo4, lo4b, 50000}, {lo4, lo4b, 50000 + rxFlows}, {lo4c, lo4b, 50000 + rxFlows}, {lo4c, lo4, 50000 + rxFlows},
		{lo4c, lo4, 50000}, {lo4, lo4b, 50000}, {lo4, lo4b, 50001},
	}
	for i, s := range senders {
		for id := range uint16(3) {
			pkt := make([]byte, 44)
			fill(pkt[:40], 1, uint32(i))
			wire.NewFlow(s.src, s.dst, s.port, port).Seal(pkt, 100+id)
			f := v.flowOf(s.src, s.port, s.dst, port)
			if _, ok := v.check(f, pkt, f.guess(0, false)); !ok {
				t.Errorf("a packet of sender %d is dropped after those of sender %d", i, i-1)
			}
			if got := v.flowOf(s.src, s.port, s.dst, port).guess(0, false); got != 101+id {
				t.Errorf("after the identification %d the next one is taken for %d", 100+id, got)
			}
		}
	}
}
