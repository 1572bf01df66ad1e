// Package secret generates unpredictable numbers: memory keys, QPNs, starting PSNs and transaction IDs. A receiver
// accepts a packet because of such numbers alone, since RoCEv2 has neither encryption nor signatures.
//
// The package imports the standard library only.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"io"
)

// Uint32 returns 32 random bits of the system.
func Uint32() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return binary.NativeEndian.Uint32(b[:])
}

// Uint64 returns 64 random bits of the system.
func Uint64() uint64 { return uint64(Uint32())<<32 | uint64(Uint32()) }

// PSN returns the first PSN of a queue pair, 24 bits.
func PSN() uint32 { return Uint32() & 0xffffff }

// A Sequence returns the numbers from 0 to a limit in a secret order. It returns each number once before it repeats
// any, so a released number is reused as late as possible, and past numbers do not reveal the next one.
//
// It encrypts a counter by a Feistel network, whose rounds are AES with a key of the sequence, until the result is
// within the limit. It is not safe for concurrent use.
type Sequence struct {
	n      uint32
	half   uint // bits of each half
	at     uint32
	rounds cipher.Block
	block  [aes.BlockSize]byte // the input of a round
}

// feistelRounds is the number of rounds of the standardized format-preserving ciphers.
const feistelRounds = 10

// NewSequence returns a sequence of the numbers from 0 to n-1; n is at least 1. Its key is 20 bytes of source; nil
// means crypto/rand.
func NewSequence(n uint32, source io.Reader) *Sequence {
	if source == nil {
		source = rand.Reader
	}
	var seed [20]byte
	if _, err := io.ReadFull(source, seed[:]); err != nil {
		panic(err) // a shorter source is an error of the program
	}
	s := &Sequence{n: n, half: 1}
	for uint64(1)<<(2*s.half) < uint64(n) {
		s.half++
	}
	s.at = binary.NativeEndian.Uint32(seed[16:])
	s.rounds, _ = aes.NewCipher(seed[:16]) // 16 bytes are a key
	return s
}

// Next returns the next number.
func (s *Sequence) Next() uint32 {
	for {
		s.at++
		if v := s.encrypt(s.at); v < s.n {
			return v
		}
	}
}

// encrypt is a permutation of the numbers of twice half bits.
func (s *Sequence) encrypt(v uint32) uint32 {
	mask := uint32(1)<<s.half - 1
	l, r := v>>s.half&mask, v&mask
	b := s.block[:]
	for round := range feistelRounds {
		clear(b)
		b[0] = byte(round)
		binary.LittleEndian.PutUint32(b[4:], r)
		s.rounds.Encrypt(b, b)
		l, r = r, l^binary.LittleEndian.Uint32(b)&mask
	}
	return l<<s.half | r
}
