package pcap

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestValid checks which packet blocks of another process are accepted.
func TestValid(t *testing.T) {
	make32 := func(kept uint32, tail ...byte) []byte {
		b := make([]byte, blockHead, 64)
		putHead((*[blockHead]byte)(b), 0, 1, int(kept), int(kept))
		b = append(b, tail...)
		b = append(b, 0, 0, 0, 0)
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		binary.LittleEndian.PutUint32(b[len(b)-4:], uint32(len(b)))
		return b
	}
	flags := []byte{optFlags, 0, 4, 0, 1, 0, 0, 0}
	last := []byte{optEnd, 0, 0, 0}
	for name, c := range map[string]struct {
		block []byte
		want  bool
	}{
		"empty":                 {make32(0), true},
		"padded packet":         {make32(5, 1, 2, 3, 4, 5, 0, 0, 0), true},
		"packet and options":    {make32(4, slices.Concat([]byte{1, 2, 3, 4}, flags, last)...), true},
		"without the last":      {make32(0, flags...), true},
		"packet too long":       {make32(9, 1, 2, 3, 4, 5, 0, 0, 0), false},
		"packet of 4 GiB":       {make32(1<<32-1, 1, 2, 3, 4), false},
		"option too long":       {make32(0, optComment, 0, 9, 0, 1, 0, 0, 0), false},
		"option of 64 KiB":      {make32(0, optComment, 0, 255, 255, 1, 0, 0, 0), false},
		"short flags":           {make32(0, optFlags, 0, 1, 0, 1, 0, 0, 0), false},
		"short drop count":      {make32(0, optDropCount, 0, 4, 0, 1, 0, 0, 0), false},
		"more than the last":    {make32(0, slices.Concat(last, flags)...), false},
		"different last length": {append(make32(0)[:28], 36, 0, 0, 0), false},
	} {
		if got := Valid(c.block); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for n := range 600 { // what this package writes
		b := make([]byte, blockHead)
		putHead((*[blockHead]byte)(b), 0, 1, n, n)
		b = append(b, make([]byte, n)...)
		if b = appendTail(b, 0, outbound, uint64(n%2), b[:n%7]); !Valid(b) {
			t.Fatalf("a packet of %d bytes", n)
		}
	}
}
