// Package wiretest helps tests of other packages to check packets and to build them:
//
//	wiretest.Expect(t, pkt, wiretest.Opcode(wire.RC|wire.Ack), wiretest.PSN(7), wiretest.Syndrome(wire.SynAck))
//
// Only tests import it. It imports internal/wire.
package wiretest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Check checks one property of a packet, which wire.Parse has accepted. It returns a description of the mismatch,
// or "".
type Check func(p wire.Packet) string

// Expect parses b, BTH to pad, and reports every failing check, with the whole packet as text. It returns the
// packet; the test ends at once if b is not a packet.
func Expect(t testing.TB, b []byte, checks ...Check) wire.Packet {
	t.Helper()
	p, err := wire.Parse(b)
	if err != nil {
		t.Fatalf("not a packet: %v: % x", err, b[:min(len(b), 64)])
	}
	for _, c := range checks {
		if wrong := c(p); wrong != "" {
			t.Errorf("%s\nin packet %v", wrong, p)
		}
	}
	return p
}

// Matches reports whether b is a packet that passes all checks, to select packets.
func Matches(b []byte, checks ...Check) bool {
	p, err := wire.Parse(b)
	if err != nil {
		return false
	}
	for _, c := range checks {
		if c(p) != "" {
			return false
		}
	}
	return true
}

// Build builds a packet; P_Key 0 means the default one. The test ends if wire.Parse refuses the result: tests make
// bad packets from good ones, by hand.
func Build(t testing.TB, f wire.Fields) wire.Packet {
	t.Helper()
	if f.PKey == 0 {
		f.PKey = wire.DefaultPKey
	}
	p := f.Build()
	if _, err := wire.Parse(p); err != nil {
		t.Fatalf("building %+v: %v", f, err)
	}
	return p
}

// differ describes a value that is not the wanted one.
func differ[T comparable](name, format string, got, want T) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s is "+format+", want "+format, name, got, want)
}

// Opcode checks the opcode.
func Opcode(want wire.Opcode) Check {
	return func(p wire.Packet) string { return differ("opcode", "%v", p.Opcode(), want) }
}

// DestQPN checks the destination QPN.
func DestQPN(want uint32) Check {
	return func(p wire.Packet) string { return differ("destination QPN", "%#06x", p.BTH().DestQPN(), want) }
}

// PSN checks the packet sequence number.
func PSN(want uint32) Check {
	return func(p wire.Packet) string { return differ("PSN", "%#06x", p.BTH().PSN(), want) }
}

// PKey checks the partition key.
func PKey(want uint16) Check {
	return func(p wire.Packet) string { return differ("P_Key", "%#04x", p.BTH().PKey(), want) }
}

// AckReq checks the acknowledge request bit.
func AckReq(want bool) Check {
	return func(p wire.Packet) string { return differ("AckReq", "%v", p.BTH().AckReq(), want) }
}

// Solicited checks the solicited event bit.
func Solicited(want bool) Check {
	return func(p wire.Packet) string { return differ("solicited event", "%v", p.BTH().Solicited(), want) }
}

// Payload checks the data, without pad.
func Payload(want []byte) Check {
	return func(p wire.Packet) string {
		got := p.Payload()
		if bytes.Equal(got, want) {
			return ""
		}
		if len(got) != len(want) {
			return fmt.Sprintf("payload has %d bytes, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				return fmt.Sprintf("payload byte %d of %d is %#02x, want %#02x", i, len(got), got[i], want[i])
			}
		}
		return ""
	}
}

// PayloadLen checks the number of data bytes, without pad.
func PayloadLen(want int) Check {
	return func(p wire.Packet) string { return differ("payload length", "%d", len(p.Payload()), want) }
}

// DETH checks the datagram extended header.
func DETH(qkey, srcQPN uint32) Check {
	return func(p wire.Packet) string {
		h := p.DETH()
		if h == nil {
			return "packet has no DETH"
		}
		return lines(differ("Q_Key", "%#08x", h.QKey(), qkey), differ("source QPN", "%#06x", h.SrcQPN(), srcQPN))
	}
}

// RETH checks the RDMA extended header.
func RETH(addr uint64, rkey, length uint32) Check {
	return func(p wire.Packet) string {
		h := p.RETH()
		if h == nil {
			return "packet has no RETH"
		}
		return lines(differ("RETH address", "%#x", h.Addr(), addr), differ("RETH R_Key", "%#x", h.RKey(), rkey),
			differ("RETH length", "%d", h.DMALen(), length))
	}
}

// AtomicETH checks the atomic extended header.
func AtomicETH(addr uint64, rkey uint32, swapAdd, compare uint64) Check {
	return func(p wire.Packet) string {
		h := p.AtomicETH()
		if h == nil {
			return "packet has no AtomicETH"
		}
		return lines(differ("AtomicETH address", "%#x", h.Addr(), addr), differ("AtomicETH R_Key", "%#x", h.RKey(), rkey),
			differ("swap or add", "%#x", h.SwapAdd(), swapAdd), differ("compare", "%#x", h.Compare(), compare))
	}
}

// Syndrome checks the syndrome of the AETH.
func Syndrome(want uint8) Check {
	return func(p wire.Packet) string {
		h := p.AETH()
		if h == nil {
			return "packet has no AETH"
		}
		return differ("syndrome", "%v", wire.Syndrome(h.Syndrome()), wire.Syndrome(want))
	}
}

// MSN checks the message sequence number of the AETH.
func MSN(want uint32) Check {
	return func(p wire.Packet) string {
		h := p.AETH()
		if h == nil {
			return "packet has no AETH"
		}
		return differ("MSN", "%d", h.MSN(), want)
	}
}

// AtomicAck checks the original value in an atomic acknowledge.
func AtomicAck(want uint64) Check {
	return func(p wire.Packet) string {
		if p.Info().AtomicAck == 0 {
			return "packet has no AtomicAckETH"
		}
		return differ("original value", "%#x", p.AtomicAck(), want)
	}
}

// Imm checks the immediate data.
func Imm(want uint32) Check {
	return func(p wire.Packet) string {
		if !p.Opcode().Is(wire.HasImm) {
			return "packet has no immediate data"
		}
		return differ("immediate data", "%#08x", p.Imm(), want)
	}
}

// InvKey checks the R_Key to invalidate.
func InvKey(want uint32) Check {
	return func(p wire.Packet) string {
		if !p.Opcode().Is(wire.HasInv) {
			return "packet has no key to invalidate"
		}
		return differ("key to invalidate", "%#x", p.IETH(), want)
	}
}

// lines joins the descriptions that are not empty.
func lines(all ...string) string {
	var b []byte
	for _, s := range all {
		if s != "" && len(b) > 0 {
			b = append(b, '\n')
		}
		b = append(b, s...)
	}
	return string(b)
}
