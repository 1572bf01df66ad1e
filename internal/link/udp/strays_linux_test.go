package udp

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestStrayLimit checks that, in any second, at most a burst, the packets of a second and a last batch are read.
func TestStrayLimit(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var l strayLimit
		now, read := time.Duration(0), 0
		for now < 10*time.Second {
			n := 1 + rng.IntN(64)
			read += n
			if wait := l.spend(n, now); wait > 0 {
				now += wait
			} else {
				now += time.Duration(rng.Int64N(int64(2 * time.Millisecond)))
			}
			if most := strayBurst + 64 + int(now*strayRate/time.Second); read > most {
				t.Fatalf("seed %d: %d packets read after %v, want at most %d", seed, read, now, most)
			}
		}
		if least := int(9 * strayRate); read < least {
			t.Errorf("seed %d: %d packets read in 10 s, want at least %d", seed, read, least)
		}
	}
}

// TestStraysAreLimited checks that a link receives requests for service IDs that nobody has claimed at a limited rate,
// and requests for its own without a limit.
func TestStraysAreLimited(t *testing.T) {
	for _, a := range loopbacks {
		l := openShared(t, testPort(t), 1, a)
		const own = 0x1061d2f
		release, err := l.ClaimService(own, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		const each = 2000
		for range each {
			sendMAD(l, a, mad(host.AttrREQ, 0x1060001, 1, 0))
		}
		sendMAD(l, a, mad(host.AttrREQ, own, 2, 0))
		mine, strays := 0, 0
		var b link.RxBatch
		p := l.Ports()[0]
		for limit := time.Now().Add(10 * time.Second); mine == 0 || strays == 0; p.Wait(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%v: %d own requests and %d others arrived", a, mine, strays)
			}
			for range gsiTurns {
				for i := range p.Recv(&b) {
					if m := wire.Packet(b.Packets[i].Data).Payload(); m[27] == 2 {
						mine++
					} else {
						strays++
					}
				}
			}
		}
		most := strayBurst + trainSlots + int(time.Since(begin)*strayRate/time.Second)
		if mine != 1 || strays > most {
			t.Errorf("%v: %d own requests and %d others, want 1 and at most %d", a, mine, strays, most)
		}
		release()
	}
}

// testScreen is a screen without boards.
type testScreen func(mad []byte) bool

func (s testScreen) Drop(mad []byte) bool { return s(mad) }
func (s testScreen) Show([]*board.Board)  {}

// TestScreen checks that the link drops and counts the management packets that the screen refuses, and no others.
func TestScreen(t *testing.T) {
	l := openShared(t, testPort(t), 1, lo4)
	prefix, _ := l.CommIDs()
	l.SetScreen(testScreen(func(mad []byte) bool {
		if len(mad) != wire.MADLen {
			t.Errorf("a datagram of %d bytes", len(mad))
		}
		return mad[host.MADPeerID+3] == 9
	}))
	for _, last := range []uint32{9, 5, 9} {
		sendMAD(l, lo4, mad(0x15, 0, 1, prefix|last))
	}
	sendTo(l, lo4, l.qpn(0))
	for _, got := range receive(t, l.Ports()[0], 2) {
		if wire.BTH(got.Data).DestQPN() == wire.GSIQPN && wire.Packet(got.Data).Payload()[host.MADPeerID+3] != 5 {
			t.Error("a datagram that the screen refuses was received")
		}
	}
	nothing(t, l.Ports()[0])
	sendMAD(l, lo4, mad(0x15, 0, 1, prefix|9))
	var b link.RxBatch
	for end := time.Now().Add(20 * time.Second); !b.Screened && time.Now().Before(end); {
		if l.Ports()[0].Wait(time.Second); l.Ports()[0].Recv(&b) > 0 {
			t.Error("a datagram that the screen refuses was received")
		}
	}
	if !b.Screened || l.Ports()[0].Recv(&b) > 0 || b.Screened {
		t.Error("a batch does not say, or an empty one does, that the screen has dropped packets")
	}
	if n := l.Ports()[0].Counters().RxScreened; n != 3 {
		t.Errorf("%d datagrams counted, want 3", n)
	}
	l.SetScreen(nil)
	sendMAD(l, lo4, mad(0x15, 0, 1, prefix|9))
	receive(t, l.Ports()[0], 1)
}

// shownScreen has the boards that a link shows.
type shownScreen struct{ boards []*board.Board }

func (s *shownScreen) Drop([]byte) bool           { return false }
func (s *shownScreen) Show(boards []*board.Board) { s.boards = boards }

// floodedScreen drops requests for a process that has noted a flood on its board.
type floodedScreen struct{ board *board.Board }

func (s floodedScreen) Drop([]byte) bool { return s.board.Floods(board.Connect) > 0 }

// TestForeignScreen checks that the process that reads QP 1 drops requests for another process by the board of that,
// before it passes them on, and no others.
func TestForeignScreen(t *testing.T) {
	cfg := Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), Ports: 1, Shared: true,
		Screen: func(b *board.Board) board.Screen { return floodedScreen{b} }}
	reader, member := batchedLink(t, cfg), batchedLink(t, cfg)
	const own, foreign = 0x1061d2f, 0x1061d30
	for l, id := range map[*Link]uint64{reader: own, member: foreign} {
		if _, err := l.ClaimService(id, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
	}
	var shown shownScreen
	member.SetScreen(&shown)
	if len(shown.boards) != 1 {
		t.Fatalf("%d boards are shown, want that of one address", len(shown.boards))
	}
	arrives := func(at *Link) { // the reader passes on what is not for itself
		var read, got link.RxBatch
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			n := reader.Ports()[0].Recv(&read)
			if at != reader {
				n = at.Ports()[0].Recv(&got)
			}
			if n > 0 {
				return
			}
		}
		t.Fatal("no request has come")
	}
	sendMAD(reader, lo4, mad(host.AttrREQ, foreign, 1, 0))
	arrives(member)
	if n := reader.Ports()[0].Counters().RxScreened; n != 0 {
		t.Errorf("%d requests for another process are dropped", n)
	}
	shown.boards[0].Flood(board.Connect)
	sendMAD(reader, lo4, mad(host.AttrREQ, foreign, 2, 0))
	sendMAD(reader, lo4, mad(host.AttrREQ, own, 3, 0))
	arrives(reader)
	if n := reader.Ports()[0].Counters().RxScreened; n != 1 {
		t.Errorf("%d requests are dropped, want that for the flooded process", n)
	}
	nothing(t, member.Ports()[0])
}

// TestUnreadableDatagramsCount checks that datagrams that are empty, or too long for the buffer, count for the limit of
// strays.
func TestUnreadableDatagramsCount(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), NoGRO: true})
	p := l.ports[0]
	s := newRawSender(t, lo4, l.cfg.Port)
	s.send(t, nil)
	s.send(t, make([]byte, packetSlotSize+1))
	s.send(t, s.sealed(100, 1, 0))
	p.mu.Lock()
	defer p.mu.Unlock()
	var b link.RxBatch
	m := p.buffersOf(&b)
	p.recvFrom(&p.rx[0], &b, m, 0, len(m.hdrs))
	if v := &p.verify; v.seen != 3 || v.malformed != 2 || len(b.Packets) != 1 {
		t.Errorf("%d datagrams seen, %d malformed, %d packets; want 3, 2 and 1", v.seen, v.malformed, len(b.Packets))
	}
}

// TestBadStraysAreCounted checks that requests for services that nobody has claimed are counted when they are damaged.
func TestBadStraysAreCounted(t *testing.T) {
	l := openShared(t, testPort(t), 1, lo4)
	s := newRawSender(t, lo4, l.cfg.Port)
	pkt := append(mad(host.AttrREQ, 0x1060001, 1, 0), make([]byte, wire.ICRCLen)...)
	s.flow.Seal(pkt, 0)
	pkt[len(pkt)-1] ^= 1
	s.send(t, pkt)
	if c := awaitCount(t, l.Ports()[0], 1); c.RxICRCErrors != 1 || c.RxPackets != 0 {
		t.Errorf("counters %+v, want an ICRC error", c)
	}
}

// TestMessagesForAnExitedProcess checks that a message for a connection of a process that has exited arrives at the
// process that leads, which answers it: the peer would otherwise repeat its DREQ for more than a minute.
func TestMessagesForAnExitedProcess(t *testing.T) {
	const attrDREQ = 0x15
	for _, a := range loopbacks {
		port := testPort(t)
		leads := openShared(t, port, 1, a)
		exits := openShared(t, port, 1, a)
		id := exits.qpn(0) << 8 // the upper bits of both have the slot
		sendMAD(leads, a, mad(attrDREQ, 0, 1, id))
		receive(t, exits.Ports()[0], 1)
		nothing(t, leads.Ports()[0])
		if err := exits.Close(); err != nil {
			t.Fatal(err)
		}
		var b link.RxBatch
		p := leads.Ports()[0]
		for limit := time.Now().Add(10 * time.Second); p.Recv(&b) == 0; p.Wait(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%v: nothing arrived", a)
			}
			sendMAD(leads, a, mad(attrDREQ, 0, 2, id))
		}
		if m := wire.Packet(b.Packets[0].Data).Payload(); m[17] != attrDREQ || m[27] != 2 {
			t.Errorf("%v: % x arrived", a, m[:32])
		}
	}
}
