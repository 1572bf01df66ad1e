package shm

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// FuzzSender is a hostile sender that follows the protocol for a while and violates it anywhere: it writes records of
// any kind where the receiver reads the next one, changes bytes and words at any time, ends epochs, and adds and
// removes shares. The receiver must return only packets that have passed the checks, from addresses that the sender
// may use, out of the ring or a share, and the head must never go back.
//
// A script is steps of 8 bytes; see attacker.step.
func FuzzSender(f *testing.F) {
	flow, packet, ref := byte(kindFlow), byte(kindPacket), byte(kindRef)
	for _, s := range [][]byte{
		{0, flow, 0, 0, 0, 0, 0, 0, 0, packet, 0, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		{0, flow, 1, 0, 0, 1, 0, 0, 0, packet, 1, 9, 5, 0, 0, 0, 0, byte(kindTrain), 1, 200, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0,
			0, 0},
		{4, 1, 0, 0, 0, 0, 0, 0, 0, flow, 0, 0, 0, 0, 0, 0, 0, ref, 0, 64, 6, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
			0, 0, 0, 0},
		{4, 1, 0, 0, 0, 0, 0, 0, 0, flow, 0, 0, 0, 0, 0, 0, 0, ref, 0, 64, 6, 1, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
			0, 0, 0, 0},
		{0, flow, 0, 0, 0, 2, 0, 0, 0, packet, 0, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		{0, flow, 0, 0, 0, 0, 0, 0, 0, byte(kindPair), 0, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		{0, flow, 0, 0, 0, 0, 0, 0, 0, byte(kindCounted), 0, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		{0, packet, 7, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, {0, 77, 0, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		{2, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0}, {0, 255, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 8*400 {
			return
		}
		a := newAttacker(t)
		for ; len(script) >= 8; script = script[8:] {
			a.step([8]byte(script))
		}
		a.receive()
	})
}

// An attacker is the sender's side of a ring set, and the port that receives.
type attacker struct {
	t      *testing.T
	rings  *rxRings
	port   *port
	ring   []byte
	at     uint64 // where the receiver reads the next record, as long as the attacker is correct
	shares [4]*memory
	batch  link.RxBatch
	head   uint64
}

var alien = netip.MustParseAddr("10.1.2.3")

func newAttacker(t *testing.T) *attacker {
	l := &rxRings{shape: shape{n: 1, m: 1, ring: minRing}}
	l.rings, l.heads = &memory{bytes: aligned(l.ringsSize())}, &memory{bytes: aligned(l.headsSize())}
	l.prepare()
	l.shares.Store(&map[uint64]*memory{})
	l.once.Do(func() {}) // there is no connection to close
	l.rings.word(activeAt(0)).Store(1)
	s := &Link{sources: sources{local: func(a netip.Addr) bool { return a == addrA || a == addrC }}}
	s.own.Store(&[]netip.Addr{addrB})
	s.in.Store(&[]*rxRings{l})
	s.status = &memory{bytes: aligned(page)}
	a := &attacker{t: t, rings: l, port: newPort(s, 0, newFakeLink(1).ports[0]), ring: l.rings.bytes[l.ringAt(0, 0):]}
	for i := range a.shares {
		a.shares[i] = &memory{bytes: aligned(16 << 10)}
	}
	return a
}

func (a *attacker) step(b [8]byte) {
	switch b[0] % 8 {
	case 0:
		a.record(b)
	case 1:
		a.receive()
	case 2: // any word at the beginning of any line
		line := int(binary.LittleEndian.Uint16(b[1:])) % (len(a.ring) / ring.Line)
		binary.LittleEndian.PutUint64(a.ring[line*ring.Line:], uint64(binary.LittleEndian.Uint32(b[4:]))|uint64(b[3])<<32)
	case 3:
		a.rings.rings.word(epochAt).Add(1)
	case 4: // a share comes or goes
		id := uint64(b[1] % 4)
		next := map[uint64]*memory{}
		for k, m := range *a.rings.shares.Load() {
			next[k] = m
		}
		if delete(next, id); b[1]&4 == 0 {
			next[id] = a.shares[id]
		}
		a.rings.shares.Store(&next)
	case 5: // any byte
		a.ring[int(binary.LittleEndian.Uint16(b[1:]))%len(a.ring)] = b[3]
	case 6:
		a.rings.rings.word(activeAt(0)).Store(uint64(b[1]) * 0x0101010101010101)
	case 7:
		a.port.waiting()
	}
}

// record writes a record where the receiver reads: of kind b[1], flow b[2], b[3] in units of payload, an opcode by
// b[4], share and offset by b[5] to b[7].
func (a *attacker) record(b [8]byte) {
	var data []byte
	switch kind := ring.Kind(b[1]); kind {
	case kindFlow:
		f := flow{src: []netip.Addr{addrA, addrC, alien}[b[5]%3], dst: addrB, hopLimit: 1}
		data = make([]byte, flowLen+int(b[7]&1))
		f.put(data)
	case kindRef:
		data = make([]byte, refLen)
		binary.LittleEndian.PutUint64(data, uint64(b[5]%5))
		binary.LittleEndian.PutUint64(data[8:], uint64(b[6])<<8-uint64(b[7]))
		binary.LittleEndian.PutUint32(data[16:], uint32(b[3])*128)
		binary.LittleEndian.PutUint32(data[20:], uint32(a.rings.rings.word(epochAt).Load()))
		data = append(data, header(b[4])...)
	default:
		data = append(header(b[4]), make([]byte, int(b[3])*32)...)
	}
	need := (uint64(len(data)) + 8 + ring.Line - 1) &^ (ring.Line - 1)
	at := a.at % uint64(len(a.ring))
	if rest := uint64(len(a.ring)) - at; need > rest {
		binary.LittleEndian.PutUint64(a.ring[at:], 255<<32)
		a.at += rest
		at = 0
	}
	copy(a.ring[at+8:], data)
	a.at += need
	if end := a.at % uint64(len(a.ring)); end+8 <= uint64(len(a.ring)) {
		clear(a.ring[end : end+8])
	}
	record(a.ring, int(at), uint32(len(data)), b[1], uint32(b[2]))
}

// header returns the headers of a packet with one of some opcodes, most of them with only a BTH.
func header(n byte) []byte {
	op := []wire.Opcode{wire.Ack, wire.SendFirst, wire.WriteFirst, wire.Opcode(n), wire.SendMiddle, wire.SendOnly,
		wire.WriteMiddle, wire.SendLast}[n%8]
	h := make([]byte, max(wire.BTHLen, op.Info().Len))
	wire.BTH(h).Put(op, 0, 0xFFFF, 7, 1, 0)
	return h
}

// receive receives a batch, checks each packet, and spoils the ring before the batch is released.
func (a *attacker) receive() {
	a.batch.Now += 1000
	a.port.Recv(&a.batch)
	for i := range a.batch.Packets {
		p := &a.batch.Packets[i]
		if p.Src != addrA && p.Src != addrC || p.Dst != addrB {
			a.t.Fatalf("a packet from %v to %v", p.Src, p.Dst)
		}
		for _, b := range p.Body {
			_ = b
		}
		if n := len(p.Body); n > 0 && within(p.Data, a.ring) || within(p.Data, a.rings.rings.bytes) {
			a.t.Fatal("headers that the sender can change")
		} else if n > link.MaxRef || n > wire.MaxPayload && !p.Train {
			a.t.Fatalf("%d bytes of payload", n)
		}
		if n := len(p.Body); n > 0 && !within(p.Body, a.ring) && !a.shared(p.Body) {
			a.t.Fatal("payload from elsewhere")
		}
		clear(a.ring[:64*(i+1)])
		if _, _, err := wire.ParseHead(p.Data, p.Len(), link.MaxRef); err != nil {
			a.t.Fatalf("%v: % x", err, p.Data)
		}
	}
	head := a.rings.heads.word(0).Load()
	if head < a.head || head%ring.Line != 0 {
		a.t.Fatalf("the head moves from %d to %d", a.head, head)
	}
	a.head = head
}

func (a *attacker) shared(b []byte) bool {
	for _, m := range a.shares {
		if within(b, m.bytes) {
			return true
		}
	}
	return false
}

// within reports whether all of b lies in mem.
func within(b, mem []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return at <= uintptr(len(mem)) && uintptr(len(b)) <= uintptr(len(mem))-at
}
