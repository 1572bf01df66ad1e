package host

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// execute runs a program of the kernel's classic BPF on a packet, and returns its result. A load beyond the end ends
// the program with 0.
func execute(t *testing.T, prog []unix.SockFilter, pkt []byte) uint32 {
	t.Helper()
	a := uint32(0)
	for i := 0; i < len(prog); i++ {
		in := prog[i]
		holds := false
		switch in.Code {
		case bpfLoadWord, bpfLoadHalf, bpfLoadByte:
			size := map[uint16]int{bpfLoadWord: 4, bpfLoadHalf: 2, bpfLoadByte: 1}[in.Code]
			if int(in.K)+size > len(pkt) {
				return 0
			}
			a = 0
			for _, b := range pkt[in.K:][:size] {
				a = a<<8 | uint32(b)
			}
			continue
		case bpfAdd:
			a += in.K
			continue
		case bpfAnd:
			a &= in.K
			continue
		case bpfShiftRight:
			a >>= in.K
			continue
		case bpfJump:
			i += int(in.K)
			continue
		case bpfRetA:
			return a
		case bpfRetK:
			return in.K
		case bpfJumpEq:
			holds = a == in.K
		case bpfJumpGe:
			holds = a >= in.K
		case bpfJumpGt:
			holds = a > in.K
		default:
			t.Fatalf("instruction %d has code %#x", i, in.Code)
		}
		if holds {
			i += int(in.Jt)
		} else {
			i += int(in.Jf)
		}
	}
	t.Fatal("the program has no end")
	return 0
}

// forQPN returns a packet for a QP number. Its P_Key and PSN have bits that no program may look at.
func forQPN(qpn uint32) []byte {
	b := make([]byte, 64)
	wire.BTH(b).Put(wire.UC|wire.SendOnly, 0, 0xFFFF, qpn, 0xABCDEF, 0)
	b[4] = 0x5A // reserved
	return b
}

// forID returns a datagram for QP 1: of a class and with an attribute, from a process whose communication ID is in slot
// local to one whose ID is in slot peer, with service ID 0.
func forID(class byte, attr uint16, local, peer int) []byte {
	b := forQPN(wire.GSIQPN)
	b = append(b[:MADOffset], make([]byte, wire.MADLen)...)
	m := b[MADOffset:]
	m[MADClass], m[MADLocalID], m[MADPeerID] = class, byte(local), byte(peer)
	binary.BigEndian.PutUint16(m[MADAttr:], attr)
	copy(m[MADLocalID+1:], "\xA1\xA2\xA3")
	copy(m[MADPeerID+1:], "\xB1\xB2\xB3")
	return b
}

// Attributes of connection management that carry communication IDs.
var established = []uint16{0x11, attrREJ, 0x13, 0x14, attrDREQ, attrDREP, 0x19, 0x1A}

// TestSocketOfAPacket checks which socket of the group each kind of packet arrives at.
func TestSocketOfAPacket(t *testing.T) {
	const slots = 13 // those that have sockets
	of := func(slot int) uint32 {
		if slot < slots {
			return FirstSlot + uint32(slot)
		}
		return Sink
	}
	owned := []idRange{{0, 2}, {5, 5}, {11, 12}}
	ofOwner := func(slot int) uint32 {
		if slices.ContainsFunc(owned, func(r idRange) bool { return r.first <= uint32(slot) && uint32(slot) <= r.last }) {
			return FirstSlot + uint32(slot)
		}
		return Strays
	}
	for _, loopback6 := range []bool{false, true} {
		prog := steering(slots, owned, loopback6, newRequestFilter([]uint64{0}))
		is := func(what string, pkt []byte, want uint32) {
			t.Helper()
			if got := execute(t, prog, pkt); got != want {
				t.Errorf("%s: socket %d, want %d", what, got, want)
			}
		}
		for slot := range Slots {
			first, last := QPNs(slot)
			for _, qpn := range []uint32{max(first, 2), first + 0x1234, last} {
				if qpn != wire.MulticastQPN {
					is(fmt.Sprintf("QP %#x", qpn), forQPN(qpn), of(slot))
				}
			}
			other := (slot + 1) % Slots
			is("a SIDR_REP", forID(ClassCM, AttrSIDRRep, slot, other), ofOwner(slot))
			for _, attr := range established {
				is(fmt.Sprintf("attribute %#x", attr), forID(ClassCM, attr, other, slot), ofOwner(slot))
			}
		}
		want := uint32(Sink)
		if loopback6 {
			want = GSI
		}
		is("multicast", forQPN(wire.MulticastQPN), want)
		for _, attr := range []uint16{AttrREQ, AttrSIDRReq} {
			pkt := forID(ClassCM, attr, 1, 2)
			is("a request for a claimed ID", pkt, GSI)
			pkt[MADOffset+madReqSID+7] = 1
			is("a request for another ID", pkt, Strays)
		}
		for _, attr := range append(established, AttrREQ, AttrSIDRRep) {
			is("another class", forID(ClassCM+1, attr, 1, 2), Strays)
			is("another class", forID(ClassCM-1, attr, 1, 2), Strays)
		}
		whole := forID(ClassCM, attrDREQ, 1, 2)
		for _, n := range []int{0, destQPN + 3, MADOffset + MADClass, MADOffset + MADAttr + 1, MADOffset + MADPeerID} {
			is("a short packet", whole[:n], Sink)
		}
	}
}

// TestPacketsOfAConfinedSocket checks that the socket of a slot, which a process of another user may own, receives the
// packets of its slot only, and no request.
func TestPacketsOfAConfinedSocket(t *testing.T) {
	const mine = 7
	prog := confinement(mine)
	for slot := range Slots {
		first, last := QPNs(slot)
		other := (slot + 1) % Slots
		packets := map[string][]byte{
			"first QP": forQPN(max(first, 2)), "SIDR_REP": forID(ClassCM, AttrSIDRRep, slot, other),
			"last but one QP": forQPN(last - 1),
		}
		for _, attr := range established {
			packets[fmt.Sprintf("attribute %#x", attr)] = forID(ClassCM, attr, other, slot)
		}
		for name, pkt := range packets {
			want := uint32(0)
			if slot == mine {
				want = whole
			}
			if got := execute(t, prog, append(make([]byte, 8), pkt...)); got != want {
				t.Errorf("slot %d, %s: %#x bytes, want %#x", slot, name, got, want)
			}
		}
	}
	last := confinement(Slots - 1)
	for name, pkt := range map[string][]byte{
		"multicast": forQPN(wire.MulticastQPN), "REQ": forID(ClassCM, AttrREQ, Slots-1, Slots-1),
		"SIDR_REQ": forID(ClassCM, AttrSIDRReq, Slots-1, Slots-1), "short": forQPN(0xFF0000)[:destQPN+3],
	} {
		if got := execute(t, last, append(make([]byte, 8), pkt...)); got != 0 {
			t.Errorf("%s passes to a slot", name)
		}
	}
}

// TestConfinementIsLocked checks that a filter of confine cannot be removed by the owner of the descriptor.
func TestConfinementIsLocked(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := confine(fd, 7); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != unix.EPERM {
		t.Errorf("removing the filter: %v, want EPERM", err)
	}
	if err := confine(fd, 8); err == nil {
		t.Error("the filter is replaced")
	}
}

// TestSteeringNeedsAGroup checks that a refused program is an error.
func TestSteeringNeedsAGroup(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if steer(fd, confinement(7)) == nil {
		t.Error("a program is attached to a socket that is in no group")
	}
}
