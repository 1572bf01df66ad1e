package cm

import "math/rand/v2"

// names draws communication IDs: a permutation of all 32-bit numbers from a random start, by a random key. So none comes
// twice within 2^32 draws (a peer may still remember the first), nor after a restart but by chance, and nobody who
// has seen some can easily guess others.
type names struct {
	at  uint32
	key [4]uint32
}

func newNames(rng *rand.Rand) *names {
	n := &names{at: rng.Uint32()}
	for i := range n.key {
		n.key[i] = rng.Uint32()
	}
	return n
}

// next encrypts a counter with a Feistel network over its halves.
func (n *names) next() uint32 {
	n.at++
	l, r := uint16(n.at>>16), uint16(n.at)
	for _, k := range n.key {
		x := (uint32(r) ^ k) * 0x9E3779B1
		x = (x ^ x>>15 ^ k>>7) * 0x85EBCA6B
		l, r = r, l^uint16(x>>16)
	}
	return uint32(l)<<16 | uint32(r)
}
