package transport

import (
	"bytes"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A lender is a QP whose peer on the same host READs its memory.
type lender struct {
	*sender
	l    *reader
	next uint32 // PSN of the next request
}

func newLender(t *testing.T, share *link.Share) *lender {
	s := &lender{sender: newSender(t, RC, func(_ *Config, a *Attr) { a.Access = uint32(mr.RemoteRead) }),
		l: &reader{share: share}}
	s.mem.Share = share
	s.tx.Direct, s.tx.ByReference = s.l, s.l
	s.qp.Host = &revoker{sender: s.sender}
	s.next = s.qp.resp.epsn
	return s
}

// revoker counts revocations.
type revoker struct {
	*sender
	revoked int
}

func (r *revoker) Revoke(*QP) { r.revoked++ }

// readFrom delivers a READ request and returns the response packets.
func (s *lender) readFrom(psn uint32, key uint32, addr uint64, n int) []sentPacket {
	s.t.Helper()
	b := make([]byte, wire.ReadRequest.Info().Len)
	wire.BTH(b).Put(wire.ReadRequest, 0, 0xFFFF, s.qp.Num, psn, wire.BTHAckReq)
	wire.Packet(b).RETH().Put(addr, key, uint32(n))
	s.qp.OnPacket(s.now, &link.RxPacket{Data: b, Src: dstAddr, Dst: srcAddr})
	s.l.sent = nil
	for s.qp.Pending() {
		s.qp.Transmit(s.now, s.tx, 64)
		s.tx.Reset()
	}
	if len(s.l.sent) == 0 || wire.BTH(s.l.sent[0].b).Opcode() == wire.Ack {
		s.t.Fatalf("the READ was refused: %d packets", len(s.l.sent))
	}
	return s.l.sent
}

// refs returns the number of bytes that packets refer to.
func refs(packets []sentPacket) (n int) {
	for _, p := range packets {
		if p.ref {
			n += p.n
		}
	}
	return n
}

// Memory in no file is referenced by its address. A READ that is asked for again, because the peer could not read the
// memory, is answered with copies, which find out whether the program has unmapped it.
func TestReadOfPlainMemoryIsReferencedOnce(t *testing.T) {
	s := newLender(t, link.NewPlainShare())
	const n = link.MaxRef + 50_001
	got := s.readFrom(s.next, s.mem.RKey, memBase+100, n)
	mtu := s.qp.attr.MTU
	if r := refs(got); r != n/mtu*mtu {
		t.Errorf("%d of %d bytes by reference", r, n)
	}
	pos := 0
	for _, p := range got {
		h, in := wire.BTH(p.b), wire.Packet(p.b).Info()
		if want := s.next + uint32(pos/mtu); h.PSN() != want {
			t.Fatalf("PSN %d, want %d", h.PSN(), want)
		}
		if !p.ref {
			data := p.b[in.Len : len(p.b)-h.Pad()]
			if !bytes.Equal(data, s.mem.Buf[100+pos:][:len(data)]) {
				t.Fatalf("the %d bytes from %d on are others", len(data), pos)
			}
			pos += len(data)
			continue
		}
		if want := int(uintptr(unsafe.Pointer(&s.mem.Buf[100+pos]))); p.off != want {
			t.Fatalf("a reference to %#x, want %#x", p.off, want)
		}
		pos += p.n
	}
	if pos != n {
		t.Errorf("%d bytes, want %d", pos, n)
	}
	again := s.readFrom(s.next, s.mem.RKey, memBase+100, n)
	if refs(again) != 0 {
		t.Errorf("asked again: %d bytes by reference", refs(again))
	}
}

// Memory in a file is shared as a whole, so a peer gets it only with a key for the whole. The end of a window's key
// does not revoke references, so none is given for it.
func TestReadByReferenceNeedsAKeyForAll(t *testing.T) {
	const n = 64 << 10
	for name, c := range map[string]struct {
		share *link.Share
		want  int
	}{
		"all of the file":       {link.NewShare(nil, memSize, 0), n},
		"all but a page's rest": {link.NewShare(nil, memSize+100, 0), n},
		"its begin":             {link.NewShare(nil, memSize+1<<20, 0), 0},
		"its end":               {link.NewShare(nil, memSize+4096, 4096), 0},
	} {
		s := newLender(t, c.share)
		if got := refs(s.readFrom(s.next, s.mem.RKey, memBase+4096, n)); got != c.want {
			t.Errorf("%s: %d bytes by reference, want %d", name, got, c.want)
		}
	}
	s := newLender(t, link.NewPlainShare())
	s.unregister()
	s.mem.Access |= mr.MWBind
	if err := s.qp.Regions.Add(s.mem); err != nil {
		t.Fatal(err)
	}
	key := s.bind(s.window(mr.Type2), memBase, memSize)
	s.qp.Transmit(s.now, s.tx, 64)
	if got := refs(s.readFrom(s.next, key, memBase, n)); got != 0 {
		t.Errorf("through a window: %d bytes by reference", got)
	}
}

// A QP that fails or is reset takes the references of its READ responses back, once.
func TestReadReferencesAreRevoked(t *testing.T) {
	for _, next := range []State{Err, Reset} {
		s := newLender(t, link.NewPlainShare())
		h := s.qp.Host.(*revoker)
		s.readFrom(s.next, s.mem.RKey, memBase, 64<<10)
		if h.revoked != 0 {
			t.Fatal("revoked at once")
		}
		s.modify(next, Attr{}, 0)
		if h.revoked != 1 {
			t.Errorf("state %d: %d revocations, want 1", next, h.revoked)
		}
	}
}

// respond delivers a READ response with all bytes of a READ.
func (s *sender) respond(p link.RxPacket) {
	b := make([]byte, wire.ReadRespOnly.Info().Len)
	wire.BTH(b).Put(wire.ReadRespOnly, 0, 0xFFFF, s.qp.Num, firstPSN, 0)
	wire.Packet(b).AETH().Put(wire.SynAck, 0)
	p.Data, p.Src, p.Dst, p.Train = b, dstAddr, srcAddr, true
	s.qp.OnPacket(s.now, &p)
}

// A READ whose bytes could not be read in the peer's memory, or were taken back meanwhile, is asked for again at once.
// It completes with the bytes of the second answer, in all its SGEs.
func TestVoidReadResponsesAreAskedForAgain(t *testing.T) {
	const n = 24 * 1024
	data := patterned(n, 5)
	for name, void := range map[string]link.RxPacket{
		"unreadable":  {Away: &link.Away{Memory: &elsewhere{data, 0}, Addr: 1000, N: n}},
		"half of it":  {Away: &link.Away{Memory: &elsewhere{data, 1}, Addr: 1000, N: n}},
		"taken back":  {Body: patterned(n, 9), Epoch: voided()},
		"both, twice": {Away: &link.Away{Memory: &elsewhere{data, 2}, Addr: 1000, N: n}, Epoch: voided()},
	} {
		s := newSender(t, RC, nil)
		s.post(OpRead, s.sges(100, n, 7000), nil)
		s.sends("RC RDMA READ REQUEST 1000 A reth a000 b0b 24576")
		s.respond(void)
		if len(s.cqes) != 0 {
			t.Fatalf("%s: %+v", name, s.cqes)
		}
		s.sends("RC RDMA READ REQUEST 1000 A reth a000 b0b 24576")
		s.respond(link.RxPacket{Away: &link.Away{Memory: &elsewhere{data, 2}, Addr: 1000, N: n}})
		if len(s.cqes) != 1 || s.cqes[0].Status != Success || !bytes.Equal(s.mem.Buf[100:][:n], data) {
			t.Errorf("%s: %+v", name, s.cqes)
		}
		s.is(RTS)
	}
}

// READ responses by reference widen the window as data by reference does; others do not.
func TestWindowOfReadsByReference(t *testing.T) {
	const n = 24 * 1024
	for limit, e := range map[int]link.Epoch{wideWindow: link.NewEpoch(new(atomic.Uint64), 0), DefaultWindow: {}} {
		s := newSender(t, RC, nil)
		s.post(OpRead, s.sges(0, n), nil)
		s.sends("RC RDMA READ REQUEST 1000 A reth a000 b0b 24576")
		s.respond(link.RxPacket{Body: patterned(n, 3), Epoch: e})
		if len(s.cqes) != 1 || s.cqes[0].Status != Success || s.qp.req.win.most() != limit {
			t.Errorf("%+v, limit %d, want %d", s.cqes, s.qp.req.win.most(), limit)
		}
	}
}

// A READ response that is not sent by reference is one train.
func TestReadResponseIsATrain(t *testing.T) {
	s := newLender(t, link.NewPlainShare())
	s.mem.Share = nil
	const n = 64 << 10
	got := s.readFrom(s.next, s.mem.RKey, memBase, n)
	if len(got) != 1 || refs(got) != 0 || !bytes.Equal(got[0].b[wire.BTHLen+wire.AETHLen:], s.mem.Buf[:n]) {
		t.Errorf("%d packets, %d bytes by reference", len(got), refs(got))
	}
}
