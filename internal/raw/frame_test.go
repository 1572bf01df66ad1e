package raw

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// ipv4Frame makes a frame with an IPv4 packet.
func ipv4Frame(proto byte, payload []byte) []byte {
	b := make([]byte, ethLen+20, ethLen+20+len(payload))
	binary.BigEndian.PutUint16(b[12:], typeIPv4)
	b[ethLen], b[ethLen+9] = 0x45, proto
	binary.BigEndian.PutUint16(b[ethLen+2:], uint16(20+len(payload)))
	return append(b, payload...)
}

// innerIPv4 is the smallest IPv4 packet.
var innerIPv4 = ipv4Frame(protoNoNext, nil)[ethLen:]

// The optional fields of a GRE header shift what follows. A header that is not complete is none: its missing key is no
// key of 0.
func TestV_FL_14_GREHeaders(t *testing.T) {
	for _, c := range []struct {
		flags  uint16
		length int // of the header
		key    int // its place, 0 for none
	}{
		{0, 4, 0},
		{greChecksum, 8, 0},
		{greKey, 8, 4},
		{greSequence, 8, 0},
		{greChecksum | greKey, 12, 8},
		{greKey | greSequence, 12, 4},
		{greChecksum | greKey | greSequence, 16, 8},
	} {
		header := make([]byte, c.length)
		binary.BigEndian.PutUint16(header, c.flags)
		binary.BigEndian.PutUint16(header[2:], typeIPv4)
		key := uint32(0)
		if c.key > 0 {
			key = 0x01020304
			binary.BigEndian.PutUint32(header[c.key:], key)
		}
		var h Headers
		Parse(ipv4Frame(protoGRE, append(bytes.Clone(header), innerIPv4...)), &h)
		if h.Tunnel != GRE || h.GREFlags != c.flags || h.GREProto != typeIPv4 || h.GREKey != key ||
			h.Inner.L3 != ethLen+20+c.length || h.Inner.IP != 4 {
			t.Errorf("flags %#x: %+v", c.flags, h)
		}
		for n := range c.length {
			if Parse(ipv4Frame(protoGRE, header[:n]), &h); h.Tunnel != NoTunnel || h.Inner.L3 != -1 {
				t.Errorf("flags %#x, %d bytes: %+v", c.flags, n, h)
			}
		}
		header[1] |= 1 // another version
		Parse(ipv4Frame(protoGRE, append(header, innerIPv4...)), &h)
		if h.Tunnel != NoTunnel || h.Inner.L3 != -1 {
			t.Errorf("flags %#x of version 1: %+v", c.flags, h)
		}
	}
}

// The first label counts, and the layer below the last one, of 1 to 16, is found. A stack that does not end has none.
func TestV_FL_14_MPLSLabels(t *testing.T) {
	for n := 1; n <= maxLabels+1; n++ {
		frame := make([]byte, ethLen)
		binary.BigEndian.PutUint16(frame[12:], typeMPLS)
		for i := range n {
			label := uint32(i+7) << 12
			if i == n-1 {
				label |= 0x100
			}
			frame = binary.BigEndian.AppendUint32(frame, label)
		}
		below := len(frame)
		if n > maxLabels {
			below = -1
		}
		var h Headers
		Parse(append(bytes.Clone(frame), innerIPv4...), &h)
		if h.Tunnel != MPLS || !h.hasLabel[mplsOuter] || h.labels[mplsOuter]>>12 != 7 || h.Inner.L3 != below {
			t.Errorf("%d labels: %+v", n, h)
		}
		for k := ethLen; k < len(frame); k++ {
			Parse(frame[:k], &h)
			if h.Inner.L3 != -1 || h.hasLabel[mplsOuter] != (k >= ethLen+4) {
				t.Errorf("%d bytes of %d labels: %+v", k-ethLen, n, h)
			}
		}
	}
}

// The length of an extension header is in units of 8 bytes, of AH in units of 4. One that exceeds the packet, and the
// second and later fragments, hide what follows.
func TestIPv6ExtensionHeaders(t *testing.T) {
	udp := []byte{0, 1, 0, 2, 0, 8, 0, 0}
	for name, c := range map[string]struct {
		proto byte
		ext   []byte
		l4    int // in the packet; -1 for none
		frag  bool
	}{
		"no extension":   {protoUDP, nil, 40, false},
		"hop by hop":     {protoHopByHop, append([]byte{protoUDP, 1}, make([]byte, 14)...), 56, false},
		"destination":    {protoDestOpts, []byte{protoUDP, 0, 0, 0, 0, 0, 0, 0}, 48, false},
		"AH":             {protoAH, append([]byte{protoUDP, 1}, make([]byte, 10)...), 52, false},
		"too long":       {protoRouting, []byte{protoUDP, 2, 0, 0, 0, 0, 0, 0}, -1, false},
		"whole fragment": {protoFragment, []byte{protoUDP, 0, 0, 0, 0, 0, 0, 0}, 48, false},
		"first fragment": {protoFragment, []byte{protoUDP, 0, 0, 1, 0, 0, 0, 0}, -1, true},
		"later fragment": {protoFragment, []byte{protoUDP, 0, 0, 8, 0, 0, 0, 0}, -1, true},
	} {
		b := make([]byte, ethLen+40)
		binary.BigEndian.PutUint16(b[12:], typeIPv6)
		b[ethLen], b[ethLen+5], b[ethLen+6] = 0x60, byte(len(c.ext)+len(udp)), c.proto
		b = append(append(b, c.ext...), udp...)
		var h Headers
		want := c.l4
		if want >= 0 {
			want += ethLen
		}
		if Parse(b, &h); h.Outer.L4 != want || h.Outer.Frag != c.frag || h.Outer.IP != 6 || h.Outer.End != len(b) {
			t.Errorf("%s: %+v, want the datagram at %d", name, h.Outer, want)
		}
		for n := range b { // no part of it reads beyond its end
			Parse(b[:n], &h)
		}
	}
}

// A packet that the frame does not contain completely gets no checksum and has no correct one.
func TestChecksumsOfIncompletePackets(t *testing.T) {
	for _, ip := range []byte{4, 6} {
		b := make([]byte, ethLen+40+9)
		if ip == 6 {
			binary.BigEndian.PutUint16(b[12:], typeIPv6)
			b[ethLen], b[ethLen+5], b[ethLen+6] = 0x60, 9, protoUDP
			b[ethLen+40+5] = 9
		} else {
			b = ipv4Frame(protoUDP, []byte{0, 1, 0, 2, 0, 9, 0, 0, 5})
		}
		l4 := len(b) - 9
		for _, cut := range []int{0, 1} {
			frame := bytes.Clone(b[:len(b)-cut])
			var h Headers
			Parse(frame, &h)
			FillChecksums(frame, &h)
			filled := binary.BigEndian.Uint16(frame[l4+6:]) != 0
			if filled != (cut == 0) || VerifyChecksums(frame, &h) != (cut == 0 && ip == 4) {
				t.Errorf("IPv%d without %d bytes: checksum filled in %v", ip, cut, filled)
			}
		}
	}
}
