package wire_test

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// layouts is IBTA volume 1, tables 38 and 39 (for XRC: annex A14, for FLUSH and ATOMIC WRITE: annex A19): the
// headers after the BTH of each opcode. "data" is payload of any length; "8 bytes" payload of that length.
var layouts = map[wire.Opcode]string{
	0x00: "data", 0x01: "data", 0x02: "data", 0x03: "Imm data", 0x04: "data", 0x05: "Imm data",
	0x06: "RETH data", 0x07: "data", 0x08: "data", 0x09: "Imm data", 0x0A: "RETH data", 0x0B: "RETH Imm data",
	0x0C: "RETH", 0x0D: "AETH data", 0x0E: "data", 0x0F: "AETH data", 0x10: "AETH data",
	0x11: "AETH", 0x12: "AETH AtomicAck", 0x13: "AtomicETH", 0x14: "AtomicETH",
	0x16: "IETH data", 0x17: "IETH data", 0x1C: "FETH RETH", 0x1D: "RETH 8 bytes",

	0x20: "data", 0x21: "data", 0x22: "data", 0x23: "Imm data", 0x24: "data", 0x25: "Imm data",
	0x26: "RETH data", 0x27: "data", 0x28: "data", 0x29: "Imm data", 0x2A: "RETH data", 0x2B: "RETH Imm data",

	0x64: "DETH data", 0x65: "DETH Imm data",

	0x81: "16 reserved",

	0xA0: "XRCETH data", 0xA1: "XRCETH data", 0xA2: "XRCETH data", 0xA3: "XRCETH Imm data", 0xA4: "XRCETH data",
	0xA5: "XRCETH Imm data",
	0xA6: "XRCETH RETH data", 0xA7: "XRCETH data", 0xA8: "XRCETH data", 0xA9: "XRCETH Imm data",
	0xAA: "XRCETH RETH data", 0xAB: "XRCETH RETH Imm data",
	0xAC: "XRCETH RETH", 0xAD: "AETH data", 0xAE: "data", 0xAF: "AETH data", 0xB0: "AETH data",
	0xB1: "AETH", 0xB2: "AETH AtomicAck", 0xB3: "XRCETH AtomicETH", 0xB4: "XRCETH AtomicETH",
	0xB6: "XRCETH IETH data", 0xB7: "XRCETH IETH data", 0xBC: "XRCETH FETH RETH", 0xBD: "XRCETH RETH 8 bytes",
}

// TestLayouts compares the table of opcodes with the specification's.
func TestLayouts(t *testing.T) {
	size := map[string]int{
		"DETH":      8,
		"XRCETH":    4,
		"FETH":      4,
		"RETH":      16,
		"AtomicETH": 28,
		"AETH":      4,
		"AtomicAck": 8,
		"Imm":       4,
		"IETH":      4,
	}
	for op := range 256 {
		op := wire.Opcode(op)
		in := op.Info()
		layout, exists := layouts[op]
		if exists != (in.Len != 0) || exists != (in.Name != "") {
			t.Errorf("opcode %#02x: Len %d, name %q, but in the standard: %v", uint8(op), in.Len, in.Name, exists)
		}
		if !exists {
			continue
		}
		want := wire.Info{Name: in.Name, Flags: in.Flags, Len: 12}
		offset := map[string]*int{
			"DETH": &want.DETH, "XRCETH": &want.XRCETH, "FETH": &want.FETH, "RETH": &want.RETH, "AtomicETH": &want.AtomicETH,
			"AETH": &want.AETH, "AtomicAck": &want.AtomicAck, "Imm": &want.Imm, "IETH": &want.IETH,
		}
		layout, want.MaxData = cut(layout, "data", 4096)
		if l, n := cut(layout, "8 bytes", 8); n != 0 {
			layout, want.MinData, want.MaxData = l, n, n
		}
		layout, reserved := cut(layout, "16 reserved", 16)
		want.Len += reserved
		for _, h := range strings.Fields(layout) {
			*offset[h] = want.Len
			want.Len += size[h]
		}
		if *in != want {
			t.Errorf("%v:\ngot  %+v\nwant %+v", op, *in, want)
		}
	}
}

// cut removes a word from the end of s and returns n if it was there, else 0.
func cut(s, word string, n int) (string, int) {
	if rest, ok := strings.CutSuffix(s, word); ok {
		return rest, n
	}
	return s, 0
}

// TestFlags checks the flags of each opcode against its name.
func TestFlags(t *testing.T) {
	for op := range layouts {
		name := op.Info().Name
		has := func(words ...string) bool {
			for _, w := range words {
				if strings.Contains(name, w) {
					return true
				}
			}
			return false
		}
		ordinary := !has("FIRST", "MIDDLE", "LAST", "ONLY") // a message of one packet, without ONLY in its name
		for flag, want := range map[wire.Flags]bool{
			wire.Start:         has("FIRST", "ONLY") || ordinary,
			wire.End:           has("LAST", "ONLY") || ordinary,
			wire.IsSend:        has(" SEND "),
			wire.IsWrite:       has("RDMA WRITE"),
			wire.IsRead:        has("READ REQUEST"),
			wire.IsAtomic:      has("COMPARE SWAP", "FETCH ADD"),
			wire.IsFlush:       has(" FLUSH"),
			wire.IsAtomicWrite: has("ATOMIC WRITE"),
			wire.Response:      has("RESPONSE", "ACKNOWLEDGE"),
			wire.HasImm:        has("IMMEDIATE"),
			wire.HasInv:        has("INVALIDATE"),
			wire.HasData:       has("SEND", "RDMA WRITE", "READ RESPONSE", "ATOMIC WRITE"),
		} {
			if op.Is(flag) != want {
				t.Errorf("%v: flag %#x is %v, want %v", op, flag, op.Is(flag), want)
			}
		}
	}
}

func TestOpcodeNames(t *testing.T) {
	for op, want := range map[wire.Opcode]string{
		wire.RC | wire.SendOnly: "RC SEND ONLY", wire.UC | wire.WriteOnlyImm: "UC RDMA WRITE ONLY WITH IMMEDIATE",
		wire.UD | wire.SendOnlyImm: "UD SEND ONLY WITH IMMEDIATE", wire.XRC | wire.FetchAdd: "XRC FETCH ADD",
		wire.RC | wire.Flush: "RC FLUSH", wire.CNP: "CNP", wire.RD | wire.SendOnly: "opcode 0x44", 0xFF: "opcode 0xff",
	} {
		if op.String() != want {
			t.Errorf("opcode %#02x is %q, want %q", uint8(op), op.String(), want)
		}
	}
	if op := wire.XRC | wire.FetchAdd; op.Transport() != wire.XRC || op.Operation() != wire.FetchAdd {
		t.Errorf("%v splits into %#02x and %#02x", op, uint8(op.Transport()), uint8(op.Operation()))
	}
}

// TestMaxPacketLen compares the constant with the table.
func TestMaxPacketLen(t *testing.T) {
	longest := 0
	for op := range layouts {
		longest = max(longest, op.Info().Len+op.Info().MaxData)
	}
	if longest != wire.MaxPacketLen {
		t.Errorf("the longest packet has %d bytes, MaxPacketLen is %d", longest, wire.MaxPacketLen)
	}
}
