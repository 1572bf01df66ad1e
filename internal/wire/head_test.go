package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// The flags in the second byte of the BTH do not mix with its pad count or version.
func TestFlagByte(t *testing.T) {
	for v := range 256 {
		h := wire.BTH([]byte{0, byte(v), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		if h.Solicited() != (v>>7&1 == 1) || h.MigReq() != (v>>6&1 == 1) || h.Pad() != v>>4&3 || int(h.Version()) != v&15 {
			t.Errorf("%#x: solicited %v, M %v, pad %d, version %d", v, h.Solicited(), h.MigReq(), h.Pad(), h.Version())
		}
	}
}

// ParseHead accepts what Parse accepts, with the same error otherwise, for each opcode around each limit.
func TestParseHeadIsParse(t *testing.T) {
	whole := make([]byte, wire.MaxPayload+2*wire.MaxHeaderLen)
	for op := range 256 {
		first := wire.Opcode(op).Info().Len
		var sizes []int
		for n := range 2 * wire.MaxHeaderLen {
			sizes = append(sizes, n, n+wire.MaxPayload)
		}
		for _, n := range sizes {
			for _, flags := range []byte{0x00, 0x10, 0x20, 0x30, 0x01, 0xF0, 0x0F} {
				b := whole[:n]
				clear(b[:min(n, wire.MaxHeaderLen)])
				if n > 1 {
					b[0], b[1] = byte(op), flags
				}
				_, want := wire.Parse(b)
				headers, pad, err := wire.ParseHead(b[:min(n, wire.MaxHeaderLen)], n, wire.MaxPayload)
				if !errors.Is(err, want) {
					t.Fatalf("opcode %#x, %d bytes, flags %#x: %v, Parse %v", op, n, flags, err, want)
				}
				if err != nil {
					if headers != 0 || pad != 0 || n > 1 && b[1] != flags {
						t.Fatalf("opcode %#x, %d bytes: %d %d, flags %#x", op, n, headers, pad, b[1])
					}
				} else if headers != first || pad != int(flags>>4&3) || b[1] != flags&^0x30 {
					t.Fatalf("opcode %#x, %d bytes, flags %#x: %d %d, flags %#x", op, n, flags, headers, pad, b[1])
				}
			}
		}
	}
}

// The largest payload that ParseHead's caller names holds for opcodes with payload of any length, and only for them.
func TestParseHeadMost(t *testing.T) {
	const most = 60000
	for op, any := range map[wire.Opcode]bool{
		wire.RC | wire.WriteMiddle: true, wire.RC | wire.SendOnly: true, wire.UD | wire.SendOnly: true,
		wire.RC | wire.ReadRequest: false, wire.RC | wire.Ack: false, wire.RC | wire.AtomicWrite: false,
	} {
		in := op.Info()
		limit := in.MaxData
		if any {
			limit = most
		}
		for _, n := range []int{limit - 4, limit, limit + 4} {
			head := make([]byte, wire.MaxHeaderLen)
			head[0] = byte(op)
			_, _, err := wire.ParseHead(head, in.Len+n, most)
			if n < 0 || n < in.MinData {
				if err == nil {
					t.Errorf("%v: %d bytes accepted", op, n)
				}
			} else if (err == nil) != (n <= limit) {
				t.Errorf("%v, %d bytes of payload: %v", op, n, err)
			}
		}
	}
}

// SetPKey and SetPSN change their field, whatever was there, and no reserved bit or flag beside it.
func TestSetters(t *testing.T) {
	for _, fill := range []byte{0x00, 0xFF, 0x5A} {
		for _, v := range []uint32{0, 1, 0x8000, 0x123456, 0x800001, 0xFFFFFF, 0xAB123456} {
			b := bytes.Repeat([]byte{fill}, wire.BTHLen)
			wire.BTH(b).SetPKey(uint16(v))
			wire.BTH(b).SetPSN(v)
			want := bytes.Repeat([]byte{fill}, wire.BTHLen)
			want[2], want[3] = byte(v>>8), byte(v)
			want[9], want[10], want[11] = byte(v>>16), byte(v>>8), byte(v)
			if !bytes.Equal(b, want) {
				t.Errorf("%#x over %#x: % x, want % x", v, fill, b, want)
			}
		}
	}
}
