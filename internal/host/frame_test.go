package host

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

var peerAddr = netip.MustParseAddr("198.18.0.9")

// FuzzFrames checks that a frame is read as it was written, and that invalid frames are refused.
func FuzzFrames(f *testing.F) {
	f.Add((&frame{kind: kindClaim, slot: -1, seq: 7}).bytes())
	f.Add((&frame{kind: kindEnter, slot: -1, addr: netip.MustParseAddr("ff02::1")}).bytes())
	pkt := make([]byte, 32)
	wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
	f.Add((&Mail{Packet: pkt, Src: peerAddr, Dst: peerAddr}).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if fr, ok := parseFrame(b); ok {
			if fr.slot < -1 || fr.slot >= Slots {
				t.Fatalf("slot %d", fr.slot)
			}
			if again, ok := parseFrame(fr.bytes()); !ok || again != fr {
				t.Fatalf("%+v was %+v", again, fr)
			}
		}
		if m, ok := parseMail(b); ok {
			if got := m.bytes(); !bytes.Equal(got[mailHeader:], b[mailHeader:]) {
				t.Fatalf("%x was %x", got, b)
			}
			_, _ = addressOf(m.Packet)
		}
	})
}

func TestLongMailIsNoFrame(t *testing.T) {
	m := Mail{Packet: make([]byte, maxFrame), Src: peerAddr, Dst: peerAddr}
	if m.bytes() != nil {
		t.Error("a frame longer than maxFrame")
	}
}

// TestFramesKeepTheirFields checks each field of a frame and of mail behind the way through a socket.
func TestFramesKeepTheirFields(t *testing.T) {
	want := frame{kind: kindReply, resume: true, slot: Slots - 1, errno: 0x01020304, seq: 0x05060708,
		id: 0x1112131415161718, addr: netip.MustParseAddr("2001:db8::102:304")}
	if got, ok := parseFrame(want.bytes()); !ok || got != want {
		t.Errorf("%+v was %+v", got, want)
	}
	pkt := make([]byte, 32)
	wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
	for _, m := range []Mail{
		{Packet: pkt, Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("fe80::1:2"), TClass: 3,
			HopLimit: 64},
		{Packet: pkt, Src: peerAddr, Dst: netip.MustParseAddr("192.0.2.7"), TClass: 64, HopLimit: 3},
	} {
		got, ok := parseMail(m.bytes())
		if !ok || got.Src != m.Src || got.Dst != m.Dst || got.TClass != m.TClass || got.HopLimit != m.HopLimit ||
			!bytes.Equal(got.Packet, pkt) {
			t.Errorf("%+v was %+v", got, m)
		}
	}
}

// TestLayoutOfFrames checks the bytes of a frame: processes of different builds talk to each other as long as version
// is the same.
func TestLayoutOfFrames(t *testing.T) {
	f := frame{kind: kindClaim, resume: true, slot: 0x12, errno: 0x0102, seq: 0x05060708, id: 0x1112131415161718,
		addr: netip.MustParseAddr("ff02::304")}
	const want = "4301120002010000181716151413121108070605" + "ff020000" + "00000000" + "00000000" + "00000304"
	if got := fmt.Sprintf("%x", f.bytes()); got != want || version != 5 {
		t.Errorf("version %d has %s, want %s", version, got, want)
	}
	m := Mail{Packet: []byte{0xAA, 0xBB}, TClass: 3, HopLimit: 64, Src: netip.MustParseAddr("192.0.2.1"),
		Dst: netip.MustParseAddr("ff02::77")}
	const mail = "4d0340" + "00000000000000000000ffffc0000201" + "ff020000000000000000000000000077" + "aabb"
	if got := fmt.Sprintf("%x", m.bytes()); got != mail {
		t.Errorf("mail %s, want %s", got, mail)
	}
}

// TestMailOfAnyLength checks the longest and the shortest packet of mail.
func TestMailOfAnyLength(t *testing.T) {
	pkt := make([]byte, maxFrame-mailHeader+1)
	wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
	m := Mail{Packet: pkt[:len(pkt)-1], Src: peerAddr, Dst: peerAddr}
	longest := m.bytes()
	if len(longest) != maxFrame {
		t.Errorf("the longest frame has %d bytes", len(longest))
	}
	if got, ok := parseMail(longest[:mailHeader+1024]); !ok || len(got.Packet) != 1024 {
		t.Errorf("%d bytes of mail, %v", len(got.Packet), ok)
	}
	if _, ok := parseMail(append(longest, 0)); ok {
		t.Error("a longer frame is valid")
	}
	if m.Packet = pkt; m.bytes() != nil {
		t.Error("a packet that is too long is mail")
	}
	for n := range mailHeader + 1 { // the last one has no packet
		if _, ok := parseMail(longest[:n]); ok {
			t.Errorf("%d bytes are mail", n)
		}
	}
}

// TestAddressOfAPacket checks the address of packets that may be for another process.
func TestAddressOfAPacket(t *testing.T) {
	mad := func(class byte, attr uint16) []byte {
		b := make([]byte, MADOffset+madMinimum)
		wire.BTH(b).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
		b[MADOffset+MADClass], b[MADOffset+MADAttr], b[MADOffset+MADAttr+1] = class, byte(attr>>8), byte(attr)
		b[MADOffset+MADLocalID], b[MADOffset+MADPeerID], b[MADOffset+madReqSID] = 5, 6, 7
		return b
	}
	request, none := Address{Service: 7 << 56, Slot: -1}, Address{}
	for _, c := range []struct {
		pkt  []byte
		want Address
		ok   bool
	}{
		{mad(ClassCM, AttrREQ), request, true},
		{mad(ClassCM, AttrSIDRReq), request, true},
		{mad(ClassCM, AttrSIDRRep), Address{Slot: 5}, true},
		{mad(ClassCM, attrDREQ), Address{Slot: 6}, true},
		{mad(ClassCM+1, AttrREQ), none, false},
		{mad(ClassCM, AttrREQ)[:MADOffset+madMinimum-1], none, false},
	} {
		if got, ok := addressOf(c.pkt); got != c.want || ok != c.ok {
			t.Errorf("% x: %+v, %v, want %+v, %v", c.pkt[MADOffset:], got, ok, c.want, c.ok)
		}
	}
	b := make([]byte, wire.BTHLen)
	wire.BTH(b).Put(wire.UC|wire.SendOnly, 0, 0xFFFF, 0x091234, 1, 0)
	if got, ok := addressOf(b); got != (Address{Slot: 9}) || !ok {
		t.Errorf("a QP of slot 9: %+v, %v", got, ok)
	}
}

// TestInvalidFrames checks that only frames whose kind, slot and address fit are valid.
func TestInvalidFrames(t *testing.T) {
	group, host := netip.MustParseAddr("239.0.0.1"), netip.MustParseAddr("192.0.2.1")
	for _, tt := range []struct {
		f    frame
		want bool
	}{
		{frame{kind: kindClaim, slot: -1}, true},
		{frame{kind: kindClaim, slot: Slots - 1}, true},
		{frame{kind: kindClaim, slot: Slots}, false},
		{frame{kind: kindRelease, slot: 0}, true},
		{frame{kind: kindRelease, slot: -1}, false},
		{frame{kind: kindEnter, slot: -1, addr: group}, true},
		{frame{kind: kindEnter, slot: -1, addr: host}, false},
		{frame{kind: kindLeave, slot: -1, addr: host}, false},
		{frame{kind: kindMail, slot: -1}, false},
		{frame{kind: 'Z', slot: -1}, false},
	} {
		if _, ok := parseFrame(tt.f.bytes()); ok != tt.want {
			t.Errorf("%+v is valid: %v", tt.f, ok)
		}
	}
	whole := (&frame{kind: kindClaim, slot: -1}).bytes()
	for _, b := range [][]byte{nil, whole[:frameLen-1], append(whole, 0)} {
		if _, ok := parseFrame(b); ok {
			t.Errorf("%d bytes are a frame", len(b))
		}
	}
}
