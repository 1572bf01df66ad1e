package transport

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// reader is a link whose other end can map one share and accepts trains of half the maximum reference.
type reader struct {
	share *link.Share
	sent  []sentPacket
	refs  int
}

// sentPacket is a packet. If it is by reference, n bytes of its payload are in the share from off on.
type sentPacket struct {
	b      []byte
	ref    bool
	off, n int
}

func (l *reader) Publish()                                          {}
func (l *reader) Train(*link.Path, uint32) int                      { return link.MaxRef / 2 }
func (l *reader) Reads(_ *link.Path, _ uint32, sh *link.Share) bool { return sh == l.share }
func (l *reader) Revoke(*link.Path)                                 {}

func (l *reader) PlaceCounted(path *link.Path, qpn uint32, n int, _ link.Ack) ([]byte, bool) {
	return l.Place(path, qpn, n, false)
}

func (l *reader) Place(_ *link.Path, _ uint32, n int, _ bool) ([]byte, bool) {
	l.sent = append(l.sent, sentPacket{b: make([]byte, n)})
	return l.sent[len(l.sent)-1].b, true
}

func (l *reader) PlaceRef(_ *link.Path, _ uint32, head int, _ *link.Share, off int64, n int) []byte {
	l.sent = append(l.sent, sentPacket{make([]byte, head), true, int(off), n})
	l.refs++
	return l.sent[len(l.sent)-1].b
}

// Memory in no file is referenced by its address, once: a retransmission has the bytes. So a reference that the peer
// could not read costs one retransmission, and memory that the program has unmapped is found out.
func TestPlainMemoryIsReferencedOnce(t *testing.T) {
	s := newSender(t, RC, nil)
	l := &reader{share: link.NewPlainShare()}
	s.mem.Share = l.share
	s.tx.Direct, s.tx.ByReference = l, l
	s.post(OpSend, s.sges(100, 4*link.MinRef), nil)
	send := func() (refs int) {
		l.sent = nil
		for s.qp.Pending() {
			s.qp.Transmit(s.now, s.tx, 64)
			s.tx.Reset()
		}
		for _, p := range l.sent {
			if p.ref {
				refs++
				if want := int(uintptr(unsafe.Pointer(&s.mem.Buf[100]))); p.off != want || p.n != 4*link.MinRef {
					t.Errorf("%d bytes at %#x, want all at %#x", p.n, p.off, want)
				}
			}
		}
		return refs
	}
	if n := send(); n != 1 {
		t.Errorf("%d references, want 1", n)
	}
	s.nak(firstPSN, wire.SynSeqErr)
	if n := send(); n != 0 || len(l.sent) == 0 {
		t.Errorf("%d references in the retransmission of %d packets", n, len(l.sent))
	}
}

// The receiver reads memory in no file by a system call, which costs more than a copy of a few pages.
func TestShortPlainMemoryIsCopied(t *testing.T) {
	for n, want := range map[int]int{link.MinPlainRef - 4: 0, link.MinPlainRef: 1} {
		s := newSender(t, RC, nil)
		l := &reader{share: link.NewPlainShare()}
		s.mem.Share = l.share
		s.tx.Direct, s.tx.ByReference = l, l
		s.post(OpSend, s.sges(0, n), nil)
		for s.qp.Pending() {
			s.qp.Transmit(s.now, s.tx, 64)
			s.tx.Reset()
		}
		if l.refs != want {
			t.Errorf("%d bytes: %d references, want %d", n, l.refs, want)
		}
	}
}

// If the window admits fewer bytes than are worth a reference, they are copied.
func TestFewAdmittedBytesAreCopied(t *testing.T) {
	s := newSender(t, RC, nil)
	l := &reader{share: link.NewShare(nil, memSize, 0)}
	s.mem.Share = l.share
	s.tx.Direct, s.tx.ByReference = l, l
	s.qp.SetWindow(4*(1024+packetCost), nil)
	s.post(OpSend, s.sges(0, 2*link.MinRef), nil)
	s.qp.Transmit(s.now, s.tx, 64)
	if l.refs != 0 || len(l.sent) != 1 || !bytes.Equal(l.sent[0].b[wire.BTHLen:], s.mem.Buf[:4*1024]) {
		t.Errorf("%d references, %d packets", l.refs, len(l.sent))
	}
}

// Each packet, also a retransmission, contains or references the bytes of its PSN.
func TestReferencesLocateTheirBytes(t *testing.T) {
	const shareOff = 4096
	s := newSender(t, RC, nil)
	l := &reader{share: link.NewShare(nil, memSize+shareOff, shareOff)}
	s.mem.Share = l.share
	s.tx.Direct, s.tx.ByReference = l, l
	mtu := s.qp.attr.MTU
	first := uint32(firstPSN)
	// round sends a message, loses the packets from lost on, and retransmits them.
	round := func(lost int, list []SGE) {
		t.Helper()
		var message []byte
		for _, g := range list {
			message = append(message, s.mem.Buf[g.Addr-memBase:][:g.Length]...)
		}
		count := uint32((len(message) + mtu - 1) / mtu)
		end := 0 // end of the sent bytes
		check := func() {
			t.Helper()
			for s.qp.Pending() {
				s.qp.Transmit(s.now, s.tx, 64)
				s.tx.Reset()
			}
			for _, p := range l.sent {
				h, in := wire.BTH(p.b), wire.Packet(p.b).Info()
				pos := int(h.PSN()-first) * mtu
				var data []byte
				switch {
				case !p.ref:
					data = p.b[in.Len : len(p.b)-h.Pad()]
				case p.off < shareOff || p.off+p.n > shareOff+memSize:
					t.Fatalf("%d bytes from %d on of the share", p.n, p.off)
				default:
					data = s.mem.Buf[p.off-shareOff:][:p.n]
				}
				end = max(end, pos+len(data))
				if pos+len(data) > len(message) || !bytes.Equal(data, message[pos:pos+len(data)]) {
					t.Fatalf(
						"message of %d bytes in %d pieces: %d bytes from %d on are others (by reference: %v)",
						len(message),
						len(list),
						len(data),
						pos,
						p.ref,
					)
				}
			}
			l.sent = nil
		}
		s.post(OpSend, list, nil)
		check()
		if lost > 0 && uint32(lost) < count {
			s.nak(first+uint32(lost), wire.SynSeqErr)
			check()
		}
		for len(s.cqes) == 0 { // the window may be smaller than the message
			s.ack(first + uint32((end+mtu-1)/mtu) - 1)
			check()
		}
		first += count
		if end != len(message) || s.cqes[0].Status != Success {
			t.Fatalf("%d of %d bytes were sent: %+v", end, len(message), s.cqes)
		}
		s.cqes = nil
	}
	for _, lost := range []int{0, 1, 7, 30} {
		for _, list := range [][]SGE{
			s.sges(0, 64<<10), s.sges(5, 50_001), s.sges(100, 20_000, 100), s.sges(100, 60_000, 9000, 100, 30_000),
			slices.Concat(s.sges(300_000, 10_000), s.sges(7, 30_000)), s.sges(1, 9000), s.sges(1, 100),
		} {
			before := l.refs
			round(lost, list)
			if list[0].Length > 9000 && l.refs == before {
				t.Errorf("nothing of %+v went by reference", list)
			}
		}
	}
	if s.qp.State() != RTS || s.qp.Pending() {
		t.Error("the QP is not idle")
	}
}

// Nothing goes by reference that the peer cannot read, from an unreliable QP, or that is inline.
func TestWhatIsNotSentByReference(t *testing.T) {
	const n = 4 * link.MinRef
	for _, c := range []struct {
		name   string
		typ    Type
		reads  bool
		inline bool
		want   int
	}{
		{"readable", RC, true, false, 1},
		{"not readable", RC, false, false, 0},
		{"unreliable", UC, true, false, 0},
		{"inline", RC, true, true, 0},
	} {
		s := newSender(t, c.typ, func(c *Config, _ *Attr) { c.SQ = NewSendQueue(4, 4, n) })
		l := &reader{share: link.NewPlainShare()}
		s.mem.Share = l.share
		if !c.reads {
			l.share = link.NewPlainShare()
		}
		s.tx.Direct, s.tx.ByReference = l, l
		s.post(OpSend, s.sges(0, n), func(w *SendWQE) {
			if c.inline {
				w.Flags, w.SGEs, w.Inline = Inline, w.SGEs[:0], append(w.Inline, s.mem.Buf[:n]...)
			}
		})
		var got []byte
		for s.qp.Pending() {
			s.qp.Transmit(s.now, s.tx, 64)
			s.tx.Reset()
		}
		for _, p := range l.sent {
			if !p.ref {
				got = append(got, p.b[wire.BTHLen:]...)
			}
		}
		if l.refs != c.want || c.want == 0 && !bytes.Equal(got, s.mem.Buf[:n]) {
			t.Errorf("%s: %d references and %d bytes", c.name, l.refs, len(got))
		}
	}
}

// A reference is to bytes of the region: memory in no file has no place outside of it.
func TestReferTo(t *testing.T) {
	region := &mr.Region{Base: 0x1000, Buf: make([]byte, 100)}
	plain, file := link.NewPlainShare(), link.NewShare(nil, 1<<20, 50)
	at := func(i int) int64 { return int64(uintptr(unsafe.Pointer(&region.Buf[i]))) }
	for _, c := range []struct {
		share *link.Share
		addr  uint64
		n     uint32
		want  reference
		most  int
	}{
		{plain, 0x1000, 100, reference{plain, at(0)}, 100},
		{plain, 0x1063, 1, reference{plain, at(99)}, 1},
		{plain, 0x1064, 1, reference{}, 0},
		{plain, 0xFFF, 1, reference{}, 0},
		{file, 0x1007, 9, reference{file, 57}, 9},
		{file, 0x1007, link.MaxRef + 1, reference{file, 57}, link.MaxRef},
	} {
		if ref, most := refer(region, c.share, c.addr, c.n); ref != c.want || most != c.most {
			t.Errorf("%d bytes at %#x: %+v and %d, want %+v and %d", c.n, c.addr, ref, most, c.want, c.most)
		}
	}
}

// The window bounds the train of a reliable QP. An unreliable QP has none.
func TestWindowBoundsTrains(t *testing.T) {
	for typ, want := range map[Type]int{RC: 4 * 1024, UC: 32 * 1024} {
		s := newSender(t, typ, nil)
		s.qp.SetWindow(4*(1024+packetCost), nil)
		l := &reader{}
		s.tx.Direct = l
		s.post(OpSend, s.sges(0, 32*1024), nil)
		s.qp.Transmit(s.now, s.tx, 64)
		if n := len(l.sent[0].b) - wire.BTHLen; n != want {
			t.Errorf("type %d: a train of %d bytes, want %d", typ, n, want)
		}
	}
}

// pathRevoker records the destinations of the paths along which references are revoked.
type pathRevoker struct {
	*sender
	paths []string
}

func (r *pathRevoker) Revoke(qp *QP) { r.paths = append(r.paths, qp.Path().Dst.String()) }

// References are revoked along the path of the QP. Those sent along another path are revoked before the QP leaves it:
// the QP can be reset later, and the memory change, while the peer can still read it.
func TestChangeOfThePathRevokesReferences(t *testing.T) {
	other := link.Path{Src: netip.MustParseAddr("198.51.100.1"), Dst: netip.MustParseAddr("198.51.100.2")}
	migrate := func(s *lender) {
		s.modify(RTS, Attr{Alt: other, AltPKey: 0xFFFF, AltTimeout: 10, Mig: Rearm}, MaskAltPath|MaskMigState)
		f := wire.Fields{Opcode: wire.RC | wire.Ack, PKey: 0xFFFF, DestQPN: s.qp.Num} // of nothing; M 0 arms the QP
		s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: dstAddr, Dst: srcAddr})
		s.modify(RTS, Attr{Mig: Migrated}, MaskMigState)
	}
	move := func(s *lender) {
		s.modify(SQD, Attr{}, 0)
		s.modify(SQD, Attr{Path: other}, MaskAV)
	}
	send := func(s *lender) {
		s.post(OpSend, s.sges(0, 64<<10), nil)
		s.qp.Transmit(s.now, s.tx, 64)
	}
	read := func(s *lender) { s.readFrom(s.next, s.mem.RKey, memBase, 64<<10) }
	for name, c := range map[string]struct{ refer, change func(s *lender) }{
		"migration after a SEND": {send, migrate}, "migration after a READ": {read, migrate}, "new path in SQD": {read, move},
	} {
		s := newLender(t, link.NewPlainShare())
		h := &pathRevoker{sender: s.sender}
		s.qp.Host = h
		c.refer(s)
		if s.l.refs == 0 {
			t.Fatal("nothing was sent by reference")
		}
		c.change(s)
		if s.qp.Path().Dst != other.Dst || len(h.paths) != 1 || h.paths[0] != dstAddr.String() {
			t.Errorf("%s: path to %v, revoked along the paths to %v", name, s.qp.Path().Dst, h.paths)
		}
	}
}
