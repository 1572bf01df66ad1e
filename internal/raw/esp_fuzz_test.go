package raw

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// espUnderTest is an action whose mode and lengths the bits of how select.
func espUnderTest(t *testing.T, how uint8) *ESP {
	e := &ESP{Mode: ESPMode(how & 7), ESN: how&8 != 0, TFCPad: int(how >> 6), Encap: ESPEncap{IP: 6}}
	if how&16 != 0 {
		e.Encap = ESPEncap{IP: 4, UDP: true}
	}
	if err := e.SetKey(e.Mode, &ESPKey{Key: make([]byte, 16), ICVLen: []int{8, 12, 16}[how>>5%3]}); err != nil {
		t.Fatal(err)
	}
	e.SetReplay(64)
	return e
}

// sealed is a frame with the headers of b up to its ESP header, and a plaintext with its trailer, as a hostile peer
// that has the key can make it; nil if b has no ESP header.
func (e *ESP) sealed(b, plain []byte) []byte {
	var h Headers
	if !Parse(b, &h) || h.Outer.IP == 0 {
		return nil
	}
	at, ok := e.espAt(b, &h.Outer)
	if !ok {
		return nil
	}
	out := append(bytes.Clone(b[:at]), 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	aad := e.prepare(out[at:], out[at+espHeader:at+espHeader+espIV], 0)
	out = e.aead.Seal(out, e.nonce[:], plain, aad)
	out = out[:len(out)-gcmTag+e.key.ICVLen]
	length, n := out[h.Outer.L3+2:], len(out)-h.Outer.L3
	if h.Outer.IP == 6 {
		length, n = out[h.Outer.L3+4:], n-40
	}
	binary.BigEndian.PutUint16(length, uint16(n))
	return out
}

// FuzzESP applies actions to any frames, and to those of a peer that has the key. What they make of them are frames.
func FuzzESP(f *testing.F) {
	ethernet := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	ip4 := append(bytes.Clone(ethernet), 8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, protoESP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	ip4 = append(ip4, make([]byte, 40)...)
	udp := bytes.Clone(ip4)
	udp[23] = protoUDP
	ip6 := append(bytes.Clone(ethernet), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, protoESP, 64)
	ip6 = append(ip6, make([]byte, 100)...)
	for how := range 64 {
		f.Add(ip4, []byte{1, 2, 2, 4}, uint8(how))
		f.Add(udp, []byte{1, 1, 41}, uint8(how))
		f.Add(ip6, []byte{0, protoNoNext}, uint8(how))
	}
	f.Fuzz(func(t *testing.T, frame, plain []byte, how uint8) {
		e := espUnderTest(t, how)
		for _, b := range [][]byte{bytes.Clone(frame), e.sealed(frame, plain)} {
			var h Headers
			if !Parse(b, &h) {
				continue
			}
			out, result := e.apply(nil, b, &h)
			if result != espDone {
				continue
			}
			if !Parse(out, &h) {
				t.Fatalf("%d bytes remain of %x", len(out), b)
			}
			VerifyChecksums(out, &h)
		}
	})
}
