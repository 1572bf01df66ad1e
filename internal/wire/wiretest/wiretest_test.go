package wiretest_test

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/wiretest"
)

// TestChecks gives every check a packet that passes and one that does not.
func TestChecks(t *testing.T) {
	build := func(op wire.Opcode, f wire.Fields) wire.Packet {
		f.Opcode = op
		return wiretest.Build(t, f)
	}
	send := build(
		wire.RC|wire.SendOnly,
		wire.Fields{DestQPN: 17, PSN: 5, AckReq: true, Solicited: true, Payload: []byte("abc")},
	)
	bare := build(wire.UC|wire.SendMiddle, wire.Fields{PKey: 0x8001})
	for _, c := range []struct {
		name  string
		check wiretest.Check
		good  wire.Packet
		bad   wire.Packet
		wrong string // part of the description
	}{
		{"Opcode", wiretest.Opcode(wire.RC | wire.SendOnly), send, bare, "opcode is UC SEND MIDDLE, want RC SEND ONLY"},
		{"DestQPN", wiretest.DestQPN(17), send, bare, "destination QPN"},
		{"PSN", wiretest.PSN(5), send, bare, "PSN is 0x000000, want 0x000005"},
		{"PKey", wiretest.PKey(0xFFFF), send, bare, "P_Key is 0x8001, want 0xffff"},
		{"AckReq", wiretest.AckReq(true), send, bare, "AckReq is false"},
		{"Solicited", wiretest.Solicited(true), send, bare, "solicited"},
		{"Payload", wiretest.Payload([]byte("abc")), send, bare, "payload has 0 bytes, want 3"},
		{"Payload content", wiretest.Payload([]byte("abc")), send, build(wire.UC|wire.SendOnly,
			wire.Fields{Payload: []byte("axc")}), "byte 1 of 3"},
		{"PayloadLen", wiretest.PayloadLen(3), send, bare, "payload length is 0, want 3"},
		{"DETH", wiretest.DETH(7, 8), build(wire.UD|wire.SendOnly, wire.Fields{QKey: 7, SrcQPN: 8}),
			build(wire.UD|wire.SendOnly, wire.Fields{QKey: 7}), "source QPN"},
		{"no DETH", wiretest.DETH(7, 8), build(wire.UD|wire.SendOnly, wire.Fields{QKey: 7, SrcQPN: 8}), send, "no DETH"},
		{"RETH", wiretest.RETH(1, 2, 3), build(wire.RC|wire.ReadRequest, wire.Fields{Addr: 1, RKey: 2, DMALen: 3}),
			build(wire.RC|wire.ReadRequest, wire.Fields{Addr: 1}), "R_Key"},
		{"no RETH", wiretest.RETH(1, 2, 3), build(wire.RC|wire.ReadRequest, wire.Fields{Addr: 1, RKey: 2, DMALen: 3}),
			send, "no RETH"},
		{"AtomicETH", wiretest.AtomicETH(8, 2, 3, 4), build(wire.RC|wire.CompareSwap, wire.Fields{Addr: 8, RKey: 2,
			SwapAdd: 3, Compare: 4}),
			build(wire.RC|wire.CompareSwap, wire.Fields{Addr: 8, RKey: 2, SwapAdd: 3}), "compare is 0x0, want 0x4"},
		{"no AtomicETH", wiretest.AtomicETH(8, 2, 3, 4), build(wire.RC|wire.CompareSwap, wire.Fields{Addr: 8, RKey: 2,
			SwapAdd: 3, Compare: 4}), send, "no AtomicETH"},
		{"Syndrome", wiretest.Syndrome(wire.SynAck), build(wire.RC|wire.Ack, wire.Fields{Syndrome: wire.SynAck}),
			build(wire.RC|wire.Ack, wire.Fields{Syndrome: wire.SynAccess}), "syndrome is nak remote-access, want ack"},
		{"no Syndrome", wiretest.Syndrome(wire.SynAck), build(wire.RC|wire.Ack, wire.Fields{Syndrome: wire.SynAck}), send,
			"no AETH"},
		{"MSN", wiretest.MSN(4), build(wire.RC|wire.Ack, wire.Fields{MSN: 4}), build(wire.RC|wire.Ack, wire.Fields{}),
			"MSN is 0, want 4"},
		{"no MSN", wiretest.MSN(4), build(wire.RC|wire.Ack, wire.Fields{MSN: 4}), send, "no AETH"},
		{"AtomicAck", wiretest.AtomicAck(4), build(wire.RC|wire.AtomicAck, wire.Fields{Orig: 4}),
			build(wire.RC|wire.AtomicAck, wire.Fields{}), "original value"},
		{"no AtomicAck", wiretest.AtomicAck(0), build(wire.RC|wire.AtomicAck, wire.Fields{}), send, "no AtomicAckETH"},
		{"Imm", wiretest.Imm(4), build(wire.RC|wire.SendOnlyImm, wire.Fields{Imm: 4}), build(wire.RC|wire.SendOnlyImm,
			wire.Fields{}), "immediate data is"},
		{"no Imm", wiretest.Imm(0), build(wire.RC|wire.SendOnlyImm, wire.Fields{}), send, "no immediate data"},
		{"InvKey", wiretest.InvKey(4), build(wire.RC|wire.SendOnlyInv, wire.Fields{InvKey: 4}),
			build(wire.RC|wire.SendOnlyInv, wire.Fields{}), "key to invalidate is"},
		{"no InvKey", wiretest.InvKey(0), build(wire.RC|wire.SendOnlyInv, wire.Fields{}), send, "no key to invalidate"},
	} {
		if got := c.check(c.good); got != "" {
			t.Errorf("%s complains of %v: %s", c.name, c.good, got)
		}
		if got := c.check(c.bad); !strings.Contains(got, c.wrong) {
			t.Errorf("%s says %q of %v, want %q in it", c.name, got, c.bad, c.wrong)
		}
		if !wiretest.Matches(c.good, c.check) || wiretest.Matches(c.bad, c.check) {
			t.Errorf("%s: Matches disagrees with the check", c.name)
		}
	}
	if wiretest.Matches([]byte{1, 2, 3}) {
		t.Error("Matches takes three bytes for a packet")
	}
}

// TestExpectReportsDifferences expects one line for each difference.
func TestExpectReportsDifferences(t *testing.T) {
	p := wiretest.Build(t, wire.Fields{Opcode: wire.RC | wire.ReadRequest, Addr: 1, RKey: 2, DMALen: 3})
	if got, want := wiretest.RETH(9, 2, 7)(p), "RETH address is 0x1, want 0x9\nRETH length is 3, want 7"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := wiretest.Expect(t, p, wiretest.RETH(1, 2, 3)); &got[0] != &p[0] {
		t.Error("Expect returns another packet")
	}
}
