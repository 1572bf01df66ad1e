package raw

import "encoding/binary"

// KeyLen is the length of a Toeplitz key: enough for two IPv6 addresses and two ports.
const KeyLen = 40

// HashFields is the set of hashed packet fields; its bits are those of enum ibv_rx_hash_fields.
type HashFields uint64

// The fields, in the order of the hash's input.
const (
	HashSrcIPv4 HashFields = 1 << 0
	HashDstIPv4 HashFields = 1 << 1
	HashSrcIPv6 HashFields = 1 << 2
	HashDstIPv6 HashFields = 1 << 3
	HashSrcTCP  HashFields = 1 << 4
	HashDstTCP  HashFields = 1 << 5
	HashSrcUDP  HashFields = 1 << 6
	HashDstUDP  HashFields = 1 << 7
	HashSPI     HashFields = 1 << 8
	HashInner   HashFields = 1 << 31
)

// Toeplitz returns the hash of data, at most KeyLen-4 bytes, as receive side scaling defines it.
func Toeplitz(key *[KeyLen]byte, data []byte) (hash uint32) {
	window := binary.BigEndian.Uint32(key[:])
	for i, c := range data {
		next := uint32(0)
		if i+4 < KeyLen {
			next = uint32(key[i+4])
		}
		for bit := 7; bit >= 0; bit-- {
			if c>>bit&1 != 0 {
				hash ^= window
			}
			window = window<<1 | next>>bit&1
		}
	}
	return hash
}

// Hash returns the hash of those fields that a frame has; 0 if it has none.
func Hash(key *[KeyLen]byte, fields HashFields, b []byte, h *Headers) uint32 {
	s := &h.Outer
	if fields&HashInner != 0 {
		s = &h.Inner
	}
	var input [KeyLen]byte
	in := input[:0]
	switch s.IP {
	case 4:
		in = pick(in, fields&HashSrcIPv4, b[s.L3+12:], 4)
		in = pick(in, fields&HashDstIPv4, b[s.L3+16:], 4)
	case 6:
		in = pick(in, fields&HashSrcIPv6, b[s.L3+8:], 16)
		in = pick(in, fields&HashDstIPv6, b[s.L3+24:], 16)
	}
	if s.L4 >= 0 {
		switch s.Proto {
		case protoTCP:
			in = pick(in, fields&HashSrcTCP, b[s.L4:], 2)
			in = pick(in, fields&HashDstTCP, b[s.L4+2:], 2)
		case protoUDP:
			in = pick(in, fields&HashSrcUDP, b[s.L4:], 2)
			in = pick(in, fields&HashDstUDP, b[s.L4+2:], 2)
		case protoESP:
			in = pick(in, fields&HashSPI, b[s.L4:], 4)
		}
	}
	return Toeplitz(key, in)
}

func pick(in []byte, wanted HashFields, b []byte, n int) []byte {
	if wanted == 0 {
		return in
	}
	return append(in, b[:n]...)
}
