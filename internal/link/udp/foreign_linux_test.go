package udp

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestSharedBatchForSeveralProcesses checks that each process gets its own packets of a batch whose packets of one
// path are for QPs of several processes: as one GSO run the kernel would deliver all of them to the process of the
// first packet.
func TestSharedBatchForSeveralProcesses(t *testing.T) {
	for _, a := range loopbacks {
		port := testPort(t)
		from, b, c := openShared(t, port, 1, a), openShared(t, port, 1, a), openShared(t, port, 1, a)
		sendTo(from, a, b.qpn(0), c.qpn(0), c.qpn(0)+1, b.qpn(0)+1, from.qpn(0), b.qpn(0)+2)
		for _, l := range []*Link{from, b, c} {
			want := map[*Link]int{from: 1, b: 3, c: 2}[l]
			for k, got := range receive(t, l.Ports()[0], want) {
				if n := wire.BTH(got.Data).DestQPN(); n != l.qpn(0)+uint32(k) {
					t.Errorf("QP 0x%x got a packet for 0x%x", l.qpn(0)+uint32(k), n)
				}
			}
			nothing(t, l.Ports()[0])
		}
	}
}

// sendTrain sends packets as one GSO run, whatever their destinations, as a network adapter that merges packets
// delivers them.
func sendTrain(t *testing.T, l *Link, tx *link.TxBatch) {
	t.Helper()
	p := l.ports[0]
	s := &p.sender
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usePath(tx.Packets[0].Path)
	for i := range tx.Packets {
		s.flow.Seal(tx.Bytes(i), uint16(i))
	}
	s.put(0, tx, run{0, len(tx.Packets)}, l)
	if _, errno := sendmmsg(s.from.fd, s.hdrs[:1]); errno != 0 {
		t.Skipf("the kernel sends no trains here: %v", errno)
	}
}

// TestSharedTrainForSeveralProcesses checks that packets that the kernel merged for the wrong process are forwarded,
// to QP 1 too, and not lost.
func TestSharedTrainForSeveralProcesses(t *testing.T) {
	for _, a := range loopbacks {
		port := testPort(t)
		leader, b, c := openShared(t, port, 1, a), openShared(t, port, 1, a), openShared(t, port, 1, a)
		if on, err := unix.GetsockoptInt(b.members[a].slots[0].FD, unix.IPPROTO_UDP, unix.UDP_GRO); err != nil || on == 0 {
			t.Skip("without UDP_GRO there are no trains")
		}
		release, err := c.ClaimService(0x77, a)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		path := &link.Path{Src: a, Dst: a}
		request := mad(0x10, 0x77, 5, 0)
		for _, first := range []*Link{leader, b, c} {
			tx := link.NewTxBatch(16, 1<<14)
			for _, to := range []*Link{first, leader, b, c} {
				fill(tx.Alloc(path, to.qpn(0), len(request)), to.qpn(0), 0)
			}
			copy(tx.Alloc(path, wire.GSIQPN, len(request)), request)
			sendTrain(t, leader, tx)
			got := map[*Link][]uint32{}
			want := 5
			var batch link.RxBatch
			for deadline := time.Now().Add(20 * time.Second); want > 0 && time.Now().Before(deadline); {
				for _, l := range []*Link{leader, b, c} {
					l.Ports()[0].Wait(time.Millisecond)
					want -= l.Ports()[0].Recv(&batch)
					for _, pkt := range batch.Packets {
						got[l] = append(got[l], wire.BTH(pkt.Data).DestQPN())
					}
				}
			}
			for _, l := range []*Link{leader, b, c} {
				expect := []uint32{l.qpn(0)}
				if l == first {
					expect = append(expect, l.qpn(0))
				}
				if l == c {
					expect = append(expect, wire.GSIQPN)
				}
				slices.Sort(got[l])
				slices.Sort(expect)
				if !slices.Equal(got[l], expect) {
					t.Errorf("packets for QPs %#x came to the process of QPs %#x", got[l], expect)
				}
				nothing(t, l.Ports()[0])
			}
		}
	}
}
