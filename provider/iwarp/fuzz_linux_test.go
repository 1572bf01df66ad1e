package iwarp_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// FuzzEstablished sends bytes over an established connection: segments in good FPDUs, then the same bytes without
// framing. Four bytes of a segment may be a key of the server. The memory that the peer may not use must stay as it is,
// each receive completes once, the connection ends with the stream, and the connection beside it works.
func FuzzEstablished(f *testing.F) {
	for i, b := range badStreams() {
		var seed []byte
		for _, seg := range b.segs(keys{base: 0x4242424242, good: 0xAAAAAA01, quiet: 0xAAAAAA02, foreign: 0xAAAAAA03}) {
			n := min(len(seg), 255)
			seed = append(append(seed, byte(n)), seg[:n]...)
		}
		f.Add(seed, uint8(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, mode uint8) {
		if len(b) > 4096 {
			return
		}
		v := newVictim(t)
		a := v.attack(mode&1 != 0)
		k := a.keys()
		b = slices.Clone(b)
		for i := 0; i+4 <= len(b); i++ {
			if word := binary.BigEndian.Uint32(b[i:]); word>>8 == 0xAAAAAA {
				binary.BigEndian.PutUint32(b[i:], []uint32{k.good, k.quiet, k.foreign}[word%3])
			}
			if i+8 <= len(b) && binary.BigEndian.Uint64(b[i:])>>8 == 0x42424242 {
				binary.BigEndian.PutUint64(b[i:], k.base+uint64(b[i+7])*8)
			}
		}
		for rest := b; len(rest) > 0; {
			n := min(int(rest[0]), len(rest)-1)
			seg := rest[1 : 1+n]
			rest = rest[1+n:]
			if mode&2 != 0 && n >= 14 { // long enough to be placed without a copy
				seg = append(slices.Clone(seg), make([]byte, 5000)...)
			}
			a.push(a.frame(seg), mode&4 != 0)
		}
		a.push(b, mode&4 != 0)
		_ = a.TCPConn.CloseWrite()
		a.rest()
		_ = a.TCPConn.Close()
		must(t, event(t, a.ch, rdmacm.EventDisconnected).Ack())
		if a.QP().State() != verbs.QPSErr {
			t.Errorf("the QP is in %v", a.QP().State())
		}
		if !bytes.Equal(a.mem[attackedLen:], make([]byte, 200)) {
			t.Error("memory that the peer may not use was changed")
		}
		if x, y := a.wait(a.RecvCQ()).WRID, a.wait(a.RecvCQ()).WRID; x != 1 || y != 2 {
			t.Errorf("receives %d and %d complete", x, y)
		}
		var wc [1]verbs.WC
		if n, _ := a.RecvCQ().Poll(wc[:]); n != 0 {
			t.Errorf("a third completion: %+v", wc[0])
		}
		v.healthy()
	})
}
