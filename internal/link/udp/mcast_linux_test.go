package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A packet for a group comes once to each link that has joined it, however many lanes that has. Over IPv4 that holds also when the leader
// has gone, and no other link gets it. Over IPv6 on lo the leader must have joined, as Join says, and the packet goes to the others
// too, whose engines drop it.
func TestSharedMulticast(t *testing.T) {
	for a, group := range map[netip.Addr]string{lo4: "239.255.77.7", netip.IPv6Loopback(): "ff02::77:7"} {
		t.Run(group, func(t *testing.T) {
			if !has(loopbacks, a) {
				t.Skipf("no %v here", a)
			}
			g := netip.MustParseAddr(group)
			port := testPort(t)
			leader, b, c, apart := openShared(t, port, 1, a), openShared(t, port, 2, a), openShared(t, port, 1, a), openShared(t, port, 1, a)
			members := []*Link{leader, b, c}
			for _, l := range members {
				if err := l.Join(g); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				for _, from := range []*Link{members[0], apart} {
					tx := link.NewTxBatch(1, 1<<12)
					pkt := tx.Alloc(&link.Path{Src: a, Dst: g}, wire.MulticastQPN, 32)
					wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.MulticastQPN, 1, 0)
					from.Ports()[0].Send(tx)
					for i, n := range countAll(append(members[:len(members):len(members)], apart)) {
						if want := 1; i < len(members) && n != want {
							t.Errorf("member %d of %d got %d packets, want %d", i, len(members), n, want)
						} else if i == len(members) && n != 0 && a.Is4() {
							t.Errorf("who has not joined got %d packets", n)
						}
					}
				}
				if a.Is6() {
					break
				}
				leader.Close()
				members = []*Link{b, c}
				time.Sleep(50 * time.Millisecond) // another one leads
			}
		})
	}
}

func has(all []netip.Addr, a netip.Addr) bool {
	for _, b := range all {
		if a == b {
			return true
		}
	}
	return false
}

// countAll receives at all links until nothing comes for a while, and tells how many packets for the group came to each.
func countAll(links []*Link) []int {
	n := make([]int, len(links))
	var b link.RxBatch
	for quiet := 0; quiet < 40; quiet++ {
		for i, l := range links {
			for _, p := range l.Ports() {
				p.Wait(time.Millisecond)
				p.Recv(&b)
				for _, pkt := range b.Packets {
					if pkt.Dst.IsMulticast() {
						n[i]++
						quiet = 0
					}
				}
			}
		}
	}
	return n
}
