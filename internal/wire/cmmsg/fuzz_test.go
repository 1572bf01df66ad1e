package cmmsg_test

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// FuzzMsg decodes and rebuilds each input that Parse accepts, and formats every input. Only reserved bits may be
// lost.
func FuzzMsg(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex))
	}
	seen := map[cmmsg.Kind]bool{}
	eachMessage(f, func(_ string, _ int, m cmmsg.Msg) {
		if !seen[m.Kind()] {
			seen[m.Kind()] = true
			f.Add([]byte(m))
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		text := cmmsg.Msg(b).String()
		m, err := cmmsg.Parse(b)
		if (m == nil) == (err == nil) || text == "" {
			t.Fatalf("Parse gives %d bytes and %v, String %q", len(m), err, text)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(b, before) {
			t.Fatal("reading changes the message")
		}
		again := rebuild(m)
		if want := withoutReserved(m); !bytes.Equal(again, want) {
			t.Fatalf("built again:\ngot  %x\nwant %x", []byte(again), want)
		}
		if again.String() != text {
			t.Fatalf("built again it reads\n%s, not\n%s", again, text)
		}
		if again.LocalID() != m.LocalID() || again.RemoteID() != m.RemoteID() || again.TID() != m.TID() ||
			again.ECE() != m.ECE() {
			t.Fatal("IDs or ECE differ")
		}
	})
}

// withoutReserved returns the message with all bits outside of fields set to zero.
func withoutReserved(m cmmsg.Msg) []byte {
	b := cmmsg.Msg(bytes.Clone(m))
	clear(b[4:8])   // status, class specific
	clear(b[18:20]) // reserved
	d := b.Data()
	clearInfo := func(at, n int) { clear(d[at+min(n, cmmsg.ARILen) : at+cmmsg.ARILen]) }
	switch b.Kind() {
	case cmmsg.KindREQ:
		d[4] = 0
		clear(d[24:28])
		if d[43]>>1&3 != 3 {
			d[51] &^= 7
		}
		for _, p := range [][]byte{d[52:96], d[96:140]} {
			p[38] &= 0xF0
			p[39] &= 0x3F
			p[42] &= 0xF8
			p[43] &= 0xF8
		}
		return b
	case cmmsg.KindREP:
		d[27] &= 0xF0
		return b
	case cmmsg.KindSIDRREP:
		d[5] = min(d[5], cmmsg.ARILen)
		clearInfo(24, int(d[5]))
		return b
	case cmmsg.KindMRA:
		d[8] &= 0xC0
		d[9] &= 0xF8
	case cmmsg.KindREJ:
		d[8] &= 0xC0
		d[9] = min(d[9]>>1, cmmsg.ARILen) << 1
		clearInfo(12, int(d[9]>>1))
	case cmmsg.KindDREQ:
		d[11] = 0
	case cmmsg.KindSIDRREQ:
		clear(d[6:8])
	case cmmsg.KindLAP:
		clear(d[8:12])
		d[15] &= 0xF8
		clear(d[16:20])
		d[58] &= 0xF0
		d[61] &= 0x3F
		d[62] &= 0xF8
		d[63] &= 0xF8
	case cmmsg.KindAPR:
		d[8] = min(d[8], cmmsg.ARILen)
		clear(d[10:12])
		clearInfo(12, int(d[8]))
	}
	clear(b[20:24]) // the attribute modifier, which only three messages use
	return b
}

// FuzzIPHeader decodes any private data; addresses that it finds can be encoded again.
func FuzzIPHeader(f *testing.F) {
	f.Add(unhex(f, vectors[0].hex)[wire.MADHeaderLen+140:][:cmmsg.IPHeaderLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < cmmsg.IPHeaderLen {
			return
		}
		h := cmmsg.IPHeader(b)
		src, dst := h.Src(), h.Dst()
		if src.IsValid() != (h.IPVersion() == 4 || h.IPVersion() == 6) || src.IsValid() != dst.IsValid() {
			t.Fatalf("IP version %d, addresses %v and %v", h.IPVersion(), src, dst)
		}
	})
}
