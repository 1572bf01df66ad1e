package wire_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// unhex decodes hexadecimal bytes with blanks.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHeaderBytes compares every header with bytes written by hand from the specification's figures. Put has to
// overwrite the previous content.
func TestHeaderBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
		put  func(b []byte)
		get  func(b []byte) bool
	}{
		{"BTH", "0a f0 8001 00abcdef 80123456",
			func(b []byte) {
				wire.BTH(b).Put(wire.RC|wire.WriteOnly, 3, 0x8001, 0xABCDEF, 0x123456,
					wire.BTHSolicited|wire.BTHMigReq|wire.BTHAckReq)
			},
			func(b []byte) bool {
				h := wire.BTH(b)
				return h.Opcode() == 0x0A && h.Solicited() && h.MigReq() && h.Pad() == 3 && h.Version() == 0 &&
					h.PKey() == 0x8001 &&
					!h.FECN() && !h.BECN() && h.DestQPN() == 0xABCDEF && h.AckReq() && h.PSN() == 0x123456
			}},
		{"BTH without flags, numbers too large", "64 00 ffff 00ffffff 00ffffff",
			func(b []byte) { wire.BTH(b).Put(wire.UD|wire.SendOnly, 4, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0) },
			func(b []byte) bool {
				h := wire.BTH(b)
				return !h.Solicited() && !h.MigReq() && h.Pad() == 0 && h.DestQPN() == 0xFFFFFF && !h.AckReq() &&
					h.PSN() == 0xFFFFFF
			}},
		{"DETH", "80010000 00012345",
			func(b []byte) { wire.DETH(b).Put(0x80010000, 0xFF012345) },
			func(b []byte) bool { return wire.DETH(b).QKey() == 0x80010000 && wire.DETH(b).SrcQPN() == 0x12345 }},
		{"RETH", "0123456789abcdef 11223344 80000000",
			func(b []byte) { wire.RETH(b).Put(0x0123456789ABCDEF, 0x11223344, 1<<31) },
			func(b []byte) bool {
				h := wire.RETH(b)
				return h.Addr() == 0x0123456789ABCDEF && h.RKey() == 0x11223344 && h.DMALen() == 1<<31
			}},
		{"AtomicETH", "0123456789abcde8 11223344 8877665544332211 ffeeddccbbaa9988",
			func(b []byte) {
				wire.AtomicETH(b).Put(0x0123456789ABCDE8, 0x11223344, 0x8877665544332211, 0xFFEEDDCCBBAA9988)
			},
			func(b []byte) bool {
				h := wire.AtomicETH(b)
				return h.Addr() == 0x0123456789ABCDE8 && h.RKey() == 0x11223344 && h.SwapAdd() == 0x8877665544332211 &&
					h.Compare() == 0xFFEEDDCCBBAA9988
			}},
		{"AETH", "1f abcdef",
			func(b []byte) { wire.AETH(b).Put(wire.SynAck, 0xFFABCDEF) },
			func(b []byte) bool {
				h := wire.AETH(b)
				return h.Syndrome() == 0x1F && h.IsAck() && !h.IsRNR() && h.MSN() == 0xABCDEF
			}},
		{"AETH, RNR NAK", "2c 000001",
			func(b []byte) { wire.AETH(b).Put(wire.SynRNR|12, 1) },
			func(b []byte) bool {
				h := wire.AETH(b)
				return !h.IsAck() && h.IsRNR() && h.Timer() == 12 && h.MSN() == 1
			}},
		{"AETH, NAK", "62 000002",
			func(b []byte) { wire.AETH(b).Put(wire.SynAccess, 2) },
			func(b []byte) bool {
				h := wire.AETH(b)
				return !h.IsAck() && !h.IsRNR() && h.Syndrome() == wire.SynAccess
			}},
		{"XRCETH", "00 fedcba",
			func(b []byte) { wire.XRCETH(b).Put(0x99FEDCBA) },
			func(b []byte) bool { return wire.XRCETH(b).SRQN() == 0xFEDCBA }},
		{"FETH", "000000 13",
			func(b []byte) { wire.FETH(b).Put(wire.FlushGlobal|wire.FlushPersistent, wire.FlushMR) },
			func(b []byte) bool {
				return wire.FETH(b).Placement() == wire.FlushGlobal|wire.FlushPersistent &&
					wire.FETH(b).Selectivity() == wire.FlushMR
			}},
	} {
		want := unhex(t, c.want)
		got := bytes.Repeat([]byte{0xFF}, len(want)+1)
		c.put(got)
		if !bytes.Equal(got[:len(want)], want) || got[len(want)] != 0xFF {
			t.Errorf("%s is written as % x, want % x", c.name, got[:len(want)], want)
		}
		if !c.get(want) {
			t.Errorf("%s is read wrongly from % x", c.name, want)
		}
	}
}

// TestReservedBits proves that reserved bits are not part of any field.
func TestReservedBits(t *testing.T) {
	b := unhex(t, "00 00 0000 3f000000 7f000000")
	if h := wire.BTH(b); h.FECN() || h.BECN() || h.DestQPN() != 0 || h.AckReq() || h.PSN() != 0 {
		t.Error("reserved bits of the BTH are read as a field")
	}
	if wire.DETH(unhex(t, "00000000 ff000000")).SrcQPN() != 0 || wire.XRCETH(unhex(t, "ff000000")).SRQN() != 0 {
		t.Error("reserved bits of DETH or XRCETH are read as a field")
	}
	if h := wire.FETH(unhex(t, "ffffffc0")); h.Placement() != 0 || h.Selectivity() != 0 {
		t.Error("reserved bits of the FETH are read as a field")
	}
	if h := wire.BTH(unhex(t, "00 00 0000 c0000000 00000000")); !h.FECN() || !h.BECN() {
		t.Error("FECN or BECN is not read")
	}
}

// TestCNP decodes a congestion notification from NVIDIA's documentation.
func TestCNP(t *testing.T) {
	b := unhex(t, "81 00 ffff 400000d2 00000000 00000000000000000000000000000000")
	p, err := wire.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	f := p.Fields()
	if p.Opcode() != wire.CNP || !f.BECN || f.FECN || f.DestQPN != 0xD2 || len(p.Payload()) != 0 {
		t.Errorf("read as %v", p)
	}
	if got := (wire.Fields{Opcode: wire.CNP, BECN: true, PKey: 0xFFFF, DestQPN: 0xD2}).Build(); !bytes.Equal(got, b) {
		t.Errorf("built as % x, want % x", []byte(got), b)
	}
}
