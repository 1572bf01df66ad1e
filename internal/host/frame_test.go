package host

import (
	"bytes"
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
