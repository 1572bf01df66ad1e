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
