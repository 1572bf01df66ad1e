package transport

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// train delivers a packet that covers as many PSNs as its data needs.
func (s *stage) train(op wire.Opcode, psn uint32, data []byte, e link.Epoch, head func(wire.Packet)) {
	s.t.Helper()
	s.trainOf(op, psn, link.RxPacket{Body: data, Epoch: e}, head)
}

// trainOf delivers a train with the payload of p.
func (s *stage) trainOf(op wire.Opcode, psn uint32, p link.RxPacket, head func(wire.Packet)) {
	s.t.Helper()
	pkt := make([]byte, op.Info().Len)
	wire.BTH(pkt).Put(op, 0, 0xFFFF, stageQPN, psn, wire.BTHAckReq)
	if head != nil {
		head(pkt)
	}
	s.log = nil
	p.Data, p.Src, p.Dst, p.HopLimit, p.Train = pkt, peerAddr, stageAddr, 64, true
	s.qp.OnPacket(s.now, &p)
	for s.qp.Pending() {
		s.qp.Transmit(s.now, s.tx, 64)
		for i := range s.tx.Packets {
			b := s.tx.Bytes(i)
			s.log = append(s.log, s.show(b[:len(b)-wire.ICRCLen]))
		}
		s.tx.Reset()
	}
}

// elsewhere is the memory of another process, from address 1000 on. It can be read good times.
type elsewhere struct {
	mem  []byte
	good int
}

func (m *elsewhere) Read(dst []byte, addr uint64) bool {
	if m.good == 0 {
		clear(dst)
		return false
	}
	m.good--
	copy(dst, m.mem[addr-1000:])
	return true
}

func (m *elsewhere) ReadRun(first *link.Away) (whole int) {
	for p := first; p != nil && p.Memory.Read(p.To, p.Addr); p = p.Next {
		whole++
	}
	return whole
}

// away is train for data in the memory of the peer's process, which can be read good times.
func (s *stage) away(op wire.Opcode, psn uint32, data []byte, good int, head func(wire.Packet)) {
	s.t.Helper()
	s.trainOf(op, psn, link.RxPacket{Away: &link.Away{Memory: &elsewhere{data, good}, Addr: 1000, N: len(data)}}, head)
}

// What cannot be read in the memory of the peer's process is lost; the peer sends it again.
func TestPayloadInThePeersMemory(t *testing.T) {
	s := play(t, "qp rc", "region A len=65536", "recv 1 A+0/5000 A+10000/20000")
	a := s.named["A"]
	mtu := s.qp.attr.MTU
	data := patterned(24*mtu, 1)
	first := s.qp.resp.epsn
	for good := range 2 { // of two copies
		s.away(wire.SendOnly, first, data, good, nil)
		if s.has("cqe") || s.has("> ACK") || s.qp.resp.epsn != first {
			t.Fatalf("%d copies: %v", good, s.log)
		}
	}
	s.away(wire.SendOnly, first, data, 2, nil)
	if !s.has("cqe recv id=1 SUCCESS") || !bytes.Equal(a.Buf[:5000], data[:5000]) ||
		!bytes.Equal(a.Buf[10000:][:len(data)-5000], data[5000:]) {
		t.Fatalf("%v", s.log)
	}
	reth := func(p wire.Packet) { p.RETH().Put(a.Base, a.RKey, uint32(len(data))) }
	next := s.qp.resp.epsn
	data = patterned(8*mtu, 3)
	s.away(wire.WriteOnly, next, data, 0, reth)
	if s.qp.resp.epsn != next {
		t.Fatalf("%v", s.log)
	}
	s.away(wire.WriteOnly, next, data, 1, reth)
	if s.qp.resp.epsn == next || !bytes.Equal(a.Buf[:len(data)], data) {
		t.Fatalf("%v", s.log)
	}
	// Beyond the region of the key nothing is read or written.
	s.away(wire.WriteOnly, s.qp.resp.epsn, data, 1, func(p wire.Packet) {
		p.RETH().Put(a.Base+uint64(len(a.Buf)-mtu), a.RKey, uint32(len(data)))
	})
	if s.qp.State() != Err {
		t.Errorf("%v", s.log)
	}
}

// A run is WRITEs that arrive in one batch, each of whose payloads is in the peer's memory.
type run struct {
	s       *stage
	mem     *elsewhere
	packets []link.RxPacket
	psn     uint32
}

// add appends a WRITE of n bytes to addr, that come from the same offset of the peer's memory.
func (u *run) add(op wire.Opcode, addr uint64, rkey uint32, at, n int) *link.RxPacket {
	pkt := make([]byte, op.Info().Len)
	wire.BTH(pkt).Put(op, 0, 0xFFFF, stageQPN, u.psn, wire.BTHAckReq)
	wire.Packet(pkt).RETH().Put(addr, rkey, uint32(n))
	u.psn += uint32(u.s.qp.resp.packets(uint32(n)))
	u.packets = append(u.packets, link.RxPacket{Data: pkt, Src: peerAddr, Dst: stageAddr, HopLimit: 64, Train: true,
		Away: &link.Away{Memory: u.mem, Addr: 1000 + uint64(at), N: n}})
	return &u.packets[len(u.packets)-1]
}

// deliver delivers all, and then lets the QP answer.
func (u *run) deliver() {
	for i := range u.packets {
		if a := u.packets[i].Away; a != nil {
			a.Batch = u.packets[i:]
		}
		u.s.qp.OnPacket(u.s.now, &u.packets[i])
	}
	u.s.log = nil
	for u.s.qp.Pending() {
		u.s.qp.Transmit(u.s.now, u.s.tx, 64)
		for i := range u.s.tx.Packets {
			b := u.s.tx.Bytes(i)
			u.s.log = append(u.s.log, u.s.show(b[:len(b)-wire.ICRCLen]))
		}
		u.s.tx.Reset()
	}
}

// WRITEs of a batch are read at once, as far as each of them may be executed after the one before.
func TestWritesReadAhead(t *testing.T) {
	const n = link.MinRef
	for name, c := range map[string]struct {
		change func(u *run, third *link.RxPacket, key uint32)
		read   int // at once
		done   int // WRITEs executed
		void   int // WRITEs after them whose destination has undefined content
	}{
		"all":            {func(*run, *link.RxPacket, uint32) {}, 5, 5, 0},
		"a later PSN":    {func(_ *run, p *link.RxPacket, _ uint32) { wire.BTH(p.Data).SetPSN(99) }, 2, 2, 0},
		"another P_Key":  {func(_ *run, p *link.RxPacket, _ uint32) { wire.BTH(p.Data).SetPKey(0x7FFE) }, 2, 2, 0},
		"another source": {func(_ *run, p *link.RxPacket, _ uint32) { p.Src = stageAddr }, 2, 2, 0},
		"taken back":     {func(_ *run, p *link.RxPacket, _ uint32) { p.Epoch = over() }, 2, 2, 1},
		"payload in the packet": {func(u *run, p *link.RxPacket, _ uint32) {
			p.Body, p.Away = u.mem.mem[2*n:3*n], nil
		}, 2, 5, 0},
		"another key":      {func(_ *run, p *link.RxPacket, k uint32) { wire.Packet(p.Data).RETH().Put(0, k^1, n) }, 2, 2, 0},
		"longer than said": {func(_ *run, p *link.RxPacket, _ uint32) { p.Away.N = n + 4096 }, 2, 2, 0},
		"unreadable":       {func(u *run, _ *link.RxPacket, _ uint32) { u.mem.good = 2 }, 2, 2, 1},
		"immediate data": {func(_ *run, p *link.RxPacket, _ uint32) {
			p.Data = append(p.Data, 1, 2, 3, 4)
			p.Data[0] = byte(wire.WriteOnlyImm)
		}, 2, 2, 0}, // there is no receive
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, "qp rc", "region A len=65536")
			a := s.named["A"]
			u := &run{s: s, mem: &elsewhere{mem: patterned(8*n, 1), good: 100}, psn: s.qp.resp.epsn}
			first := u.psn
			for i := range 5 {
				u.add(wire.WriteOnly, a.Base+uint64(i*n), a.RKey, i*n, n)
			}
			third := &u.packets[2]
			c.change(u, third, a.RKey)
			before := bytes.Clone(a.Buf)
			u.deliver()
			got := 0
			for p := u.packets[0].Away; p != nil; p = p.Next {
				got++
			}
			if name == "unreadable" {
				got -= 3
			}
			done := int(s.qp.resp.epsn-first) / s.qp.resp.packets(n)
			if got != c.read || done != c.done || !bytes.Equal(a.Buf[:done*n], u.mem.mem[:done*n]) {
				t.Errorf("%d read at once, want %d; %d executed, want %d: %v", got, c.read, done, c.done, s.log)
			}
			if from := (done + c.void) * n; !bytes.Equal(a.Buf[from:], before[from:]) {
				t.Error("a WRITE that was not executed has written")
			}
		})
	}
}

// over returns the epoch of a payload that its sender has taken back.
func over() link.Epoch {
	word := new(atomic.Uint64)
	word.Store(1)
	return link.NewEpoch(word, 0)
}

// The WRITEs of a run write in their order, to the same bytes too, and one that cannot be read again is not.
func TestReadAheadInOrder(t *testing.T) {
	const n = link.MinRef
	s := play(t, "qp rc", "region A len=65536")
	a := s.named["A"]
	u := &run{s: s, mem: &elsewhere{mem: patterned(8*n, 1), good: 3}, psn: s.qp.resp.epsn}
	for i := range 3 {
		u.add(wire.WriteOnly, a.Base, a.RKey, i*n, n)
	}
	u.deliver()
	if s.qp.resp.epsn != u.psn || !bytes.Equal(a.Buf[:n], u.mem.mem[2*n:3*n]) {
		t.Errorf("PSN %d, want %d: %v", s.qp.resp.epsn, u.psn, s.log)
	}
	if u.mem.good != 0 {
		t.Errorf("%d reads, want 3", 3-u.mem.good)
	}
}

// A message by tag whose header is in the memory of the peer's process.
func TestTaggedPayloadInThePeersMemory(t *testing.T) {
	h := taggedStage(t)
	first := h.qp.resp.epsn
	h.away(wire.SendOnly, first, eager(512, 5), 0, nil)
	if h.qp.resp.held || h.tags.used.Load() != 1 {
		t.Fatalf("the buffer was taken: %+v", h.qp.resp.recv)
	}
	h.away(wire.SendOnly, first, eager(512, 5), 1, nil)
	if h.has("cqe") {
		t.Fatalf("%v", h.log)
	}
	h.away(wire.SendOnly, first, eager(512, 5), 2, nil)
	if !h.has("cqe", "id=1 SUCCESS") {
		t.Errorf("%v", h.log)
	}
}

func (s *stage) show(b []byte) string {
	h := wire.BTH(b)
	return strings.TrimSpace(h.Opcode().Info().Name + " " + syndromeText(wire.Packet(b).AETH()) + " " + psnText(h.PSN()))
}

func patterned(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// has reports whether a line of the log contains the words.
func (s *stage) has(words ...string) bool {
	return slices.ContainsFunc(s.log, func(l string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l, w) })
	})
}

func TestTrainOfASend(t *testing.T) {
	s := play(t, "qp rc", "region A len=65536", "recv 1 A+0/20000")
	mtu, none := s.qp.attr.MTU, link.Epoch{}
	data := patterned(3*mtu+5, 1)
	first := s.qp.resp.epsn
	s.train(wire.SendFirst, first, data[:2*mtu], none, nil) // a duplicate as a whole
	if !s.has("ACK", psnText(first+1)) || s.qp.resp.epsn != first+2 || s.qp.resp.msn != 0 {
		t.Fatalf("%v, expecting %d", s.log, s.qp.resp.epsn)
	}
	s.train(wire.SendLast, first+2, data[2*mtu:], none, nil)
	if !s.has("cqe recv id=1 SUCCESS") || !s.has("ACK", psnText(first+3)) || s.qp.resp.msn != 1 {
		t.Fatalf("%v", s.log)
	}
	if !bytes.Equal(s.named["A"].Buf[:len(data)], data) {
		t.Error("wrong bytes in memory")
	}
}

// The first packets of a train may be duplicates: the sender has retransmitted from an earlier PSN and split the
// message differently.
func TestTrainThatOverlaps(t *testing.T) {
	s := play(t, "qp rc", "region A len=65536", "recv 1 A+0/20000")
	mtu, none := s.qp.attr.MTU, link.Epoch{}
	data := patterned(4*mtu, 1)
	first := s.qp.resp.epsn
	s.train(wire.SendFirst, first, data[:2*mtu], none, nil)
	s.train(wire.SendOnly, first, data, none, nil)
	if !s.has("NAK", psnText(first+2)) || s.has("cqe") || s.qp.resp.epsn != first+2 {
		t.Fatalf("%v", s.log)
	}
	s.train(wire.SendFirst, first, data[:2*mtu], none, nil) // wholly a duplicate
	if s.has("cqe") || s.qp.resp.epsn != first+2 {
		t.Fatalf("%v", s.log)
	}
	s.train(wire.SendLast, first+2, data[2*mtu:], none, nil)
	if !s.has("cqe recv id=1 SUCCESS") || !bytes.Equal(s.named["A"].Buf[:len(data)], data) {
		t.Fatalf("%v", s.log)
	}
}

// Trains in the middle of a message consist of whole packets; a UD QP accepts no train.
func TestBadTrains(t *testing.T) {
	s := play(t, "qp rc", "region A len=65536", "recv 1 A+0/20000")
	mtu := s.qp.attr.MTU
	s.train(wire.SendFirst, s.qp.resp.epsn, patterned(2*mtu+4, 1), link.Epoch{}, nil)
	if !s.has("NAK invalid") && s.qp.State() != Err {
		t.Errorf("a train in the middle with a packet that is not full: %v", s.log)
	}
	s = play(t, "qp ud", "region A len=65536", "recv 1 A+0/20000")
	s.train(wire.UD|wire.SendOnly, 5, patterned(8000, 1), link.Epoch{}, nil)
	if s.qp.Counters.BadOpcode != 1 {
		t.Error("a UD QP accepts a train")
	}
}

// A SEND by reference that is revoked while it is copied: no completion; the receive is kept for the retransmission.
func TestRevokedSend(t *testing.T) {
	for _, queue := range []string{"", " srq=yes"} {
		s := play(t, "qp rc"+queue, "region A len=65536", "recv 1 A+0/20000", "recv 2 A+20000/20000")
		mtu := s.qp.attr.MTU
		var word atomic.Uint64
		word.Store(5)
		good, over := link.NewEpoch(&word, 5), link.NewEpoch(&word, 4)
		data := patterned(3*mtu, 1)
		first := s.qp.resp.epsn
		for range 2 {
			s.train(wire.SendOnly, first, patterned(3*mtu, 9), over, nil)
			if s.has("cqe") || s.has("> ACK") || s.qp.resp.epsn != first {
				t.Fatalf("%v", s.log)
			}
		}
		s.train(wire.SendFirst, first, data[:mtu], good, nil)
		s.train(wire.SendMiddle, first+1, patterned(mtu, 9), over, nil)
		if s.has("cqe") || s.qp.resp.epsn != first+1 {
			t.Fatalf("%v", s.log)
		}
		s.train(wire.SendLast, first+1, data[mtu:], good, nil)
		if !s.has("cqe recv id=1 SUCCESS") || !bytes.Equal(s.named["A"].Buf[:len(data)], data) {
			t.Fatalf("%v", s.log)
		}
		s.train(wire.SendOnly, first+3, data, good, nil)
		if !s.has("cqe recv id=2 SUCCESS") {
			t.Fatalf("%v", s.log)
		}
	}
}

// A receive kept for a message that does not arrive again is flushed like any other.
func TestRevokedSendThenError(t *testing.T) {
	s := play(t, "qp rc", "region A len=65536", "recv 1 A+0/20000")
	var word atomic.Uint64
	s.train(wire.SendOnly, s.qp.resp.epsn, patterned(9000, 9), link.NewEpoch(&word, 4), nil)
	s.log = nil
	if err := s.qp.Modify(s.now, &Attr{State: Err}, MaskState); err != nil {
		t.Fatal(err)
	}
	if !s.has("cqe recv id=1 WR_FLUSH") {
		t.Errorf("%v", s.log)
	}
}

func TestRevokedWrite(t *testing.T) {
	s := play(t, "qp rc", "region A len=65536")
	a := s.named["A"]
	mtu := s.qp.attr.MTU
	var word atomic.Uint64
	data := patterned(2*mtu, 1)
	reth := func(p wire.Packet) { p.RETH().Put(a.Base, a.RKey, uint32(len(data))) }
	first := s.qp.resp.epsn
	s.train(wire.WriteOnly, first, patterned(2*mtu, 9), link.NewEpoch(&word, 4), reth)
	if s.qp.resp.epsn != first || s.qp.resp.msn != 0 {
		t.Fatalf("%v", s.log)
	}
	s.train(wire.WriteOnly, first, data, link.NewEpoch(&word, 0), reth)
	if s.qp.resp.epsn != first+2 || !bytes.Equal(a.Buf[:len(data)], data) {
		t.Fatalf("%v", s.log)
	}
}
