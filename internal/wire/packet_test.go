package wire_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// full makes a packet of the opcode with every field set, so that no two bytes of a header are equal, and n bytes
// of payload.
func full(op wire.Opcode, n int) wire.Fields {
	f := wire.Fields{
		Opcode: op, Solicited: true, FECN: true, AckReq: true, PKey: 0x8102, DestQPN: 0x030405, PSN: 0x060708,
		Payload: randomBytes(rand.New(rand.NewPCG(uint64(op), uint64(n))), n),
	}
	in := op.Info()
	if in.DETH != 0 {
		f.QKey, f.SrcQPN = 0x11121314, 0x151617
	}
	if in.XRCETH != 0 {
		f.SRQN = 0x18191A
	}
	if in.FETH != 0 {
		f.Placement, f.Selectivity = wire.FlushPersistent, wire.FlushMR
	}
	if in.RETH != 0 {
		f.Addr, f.RKey, f.DMALen = 0x2021222324252627, 0x28292A2B, 0x2C2D2E2F
	}
	if in.AtomicETH != 0 {
		f.Addr, f.RKey, f.SwapAdd, f.Compare = 0x2021222324252627, 0x28292A2B, 0x3031323334353637, 0x38393A3B3C3D3E3F
	}
	if in.AETH != 0 {
		f.Syndrome, f.MSN = wire.SynRNR|5, 0x414243
	}
	if in.AtomicAck != 0 {
		f.Orig = 0x5051525354555657
	}
	if in.Imm != 0 {
		f.Imm = 0x61626364
	}
	if in.IETH != 0 {
		f.InvKey = 0x71727374
	}
	return f
}

// TestFieldsRoundTrip builds and decodes each opcode, with payloads of every pad count.
func TestFieldsRoundTrip(t *testing.T) {
	for op := range layouts {
		in := op.Info()
		for _, n := range []int{0, 1, 2, 3, 4, 8, 509, 4096} {
			f := full(op, n)
			p, err := wire.Parse(f.Build())
			if n < in.MinData || n > in.MaxData {
				if !errors.Is(err, wire.ErrPayload) {
					t.Errorf("%v with %d bytes: error %v, want %v", op, n, err, wire.ErrPayload)
				}
				continue
			}
			if err != nil {
				t.Errorf("%v with %d bytes: %v", op, n, err)
				continue
			}
			if got := p.Fields(); !reflect.DeepEqual(got, f) {
				t.Errorf("%v with %d bytes:\ngot  %+v\nwant %+v", op, n, got, f)
			}
			if len(p) != in.Len+(n+3)/4*4 || p.BTH().Pad() != -n&3 {
				t.Errorf("%v with %d bytes: packet of %d bytes, pad %d", op, n, len(p), p.BTH().Pad())
			}
		}
	}
}

// TestAbsentHeaders asks packets of every opcode for every header.
func TestAbsentHeaders(t *testing.T) {
	for op := range layouts {
		in := op.Info()
		p := full(op, in.MinData).Build()
		for name, ok := range map[string]bool{
			"DETH": (p.DETH() == nil) == (in.DETH == 0), "XRCETH": (p.XRCETH() == nil) == (in.XRCETH == 0),
			"FETH": (p.FETH() == nil) == (in.FETH == 0), "RETH": (p.RETH() == nil) == (in.RETH == 0),
			"AtomicETH": (p.AtomicETH() == nil) == (in.AtomicETH == 0), "AETH": (p.AETH() == nil) == (in.AETH == 0),
			"AtomicAck": (p.AtomicAck() == 0) == (in.AtomicAck == 0), "Imm": (p.Imm() == 0) == (in.Imm == 0),
			"IETH": (p.IETH() == 0) == (in.IETH == 0),
		} {
			if !ok {
				t.Errorf("%v: %s is there when it should not, or the other way round", op, name)
			}
		}
	}
}

// TestParseRefuses has one packet for each reason, and the most similar valid one.
func TestParseRefuses(t *testing.T) {
	send := full(wire.RC|wire.SendOnly, 8).Build()
	change := func(p wire.Packet, i int, v byte) []byte {
		b := bytes.Clone(p)
		b[i] = v
		return b
	}
	cut := func(p wire.Packet, n int) []byte { return p[:len(p)-n] }
	write, ack := full(wire.RC|wire.WriteOnly, 0).Build(), full(wire.RC|wire.Ack, 0).Build()
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, wire.ErrShort},
		{"less than a BTH", cut(send, 9), wire.ErrShort},
		{"a BTH is enough for a SEND", cut(send, 8), nil},
		{"less than a RETH", cut(write, 4), wire.ErrShort},
		{"no payload", write, nil},
		{"version", change(send, 1, 0x01), wire.ErrVersion},
		{"RD", change(send, 0, 0x44), wire.ErrOpcode},
		{"RESYNC", change(send, 0, 0x15), wire.ErrOpcode},
		{"UD with a first packet", change(send, 0, 0x60), wire.ErrOpcode},
		{"UC with invalidate", change(send, 0, 0x36), wire.ErrOpcode},
		{"pad 3 of 8", change(send, 1, 0x30), nil},
		{"pad of nothing", change(cut(send, 8), 1, 0x10), wire.ErrPad},
		{"pad of an ACK", change(ack, 1, 0x10), wire.ErrPad},
		{"not whole words", cut(send, 1), wire.ErrPad},
		{"ACK with payload", append(bytes.Clone(ack), 0, 0, 0, 0), wire.ErrPayload},
		{"4096 bytes", full(wire.RC|wire.SendOnly, 4096).Build(), nil},
		{"4097 bytes", full(wire.RC|wire.SendOnly, 4097).Build(), wire.ErrPayload},
		{"atomic write", full(wire.RC|wire.AtomicWrite, 8).Build(), nil},
		{"atomic write of nothing", full(wire.RC|wire.AtomicWrite, 0).Build(), wire.ErrPayload},
		{"atomic write of 7", full(wire.RC|wire.AtomicWrite, 7).Build(), wire.ErrPayload},
		{"atomic write of 12", full(wire.RC|wire.AtomicWrite, 12).Build(), wire.ErrPayload},
		{"short CNP", full(wire.CNP, 0).Build()[:24], wire.ErrShort},
		{"read request with payload", full(wire.RC|wire.ReadRequest, 4).Build(), wire.ErrPayload},
	} {
		p, err := wire.Parse(c.b)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
		if (p != nil) != (c.want == nil) {
			t.Errorf("%s: packet %v with error %v", c.name, p, err)
		}
	}
}

// TestStringOfInvalidPackets formats bytes that Parse refuses.
func TestStringOfInvalidPackets(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{nil, "wire: packet is shorter than its headers: 0 bytes: "},
		{append(bytes.Repeat([]byte{0xFF}, 1), make([]byte, 19)...),
			"wire: opcode is not defined by RoCEv2: 20 bytes: ff000000000000000000000000000000"},
	} {
		if got := wire.Packet(c.b).String(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestString(t *testing.T) {
	for _, c := range []struct {
		f    wire.Fields
		want string
	}{
		{full(wire.XRC|wire.Flush, 0),
			"XRC FLUSH qp=030405 psn=060708 ackreq se fecn pkey=8102 srqn=18191a placement=2 selectivity=1 " +
				"va=2021222324252627 rkey=28292a2b len=741158447"},
		{full(wire.RC|wire.FetchAdd, 0),
			"RC FETCH ADD qp=030405 psn=060708 ackreq se fecn pkey=8102 va=2021222324252627 rkey=28292a2b " +
				"swapadd=3031323334353637 compare=38393a3b3c3d3e3f"},
		{wire.Fields{Opcode: wire.CNP, BECN: true, MigReq: true, PKey: 0xFFFF, DestQPN: 0xD2},
			"CNP qp=0000d2 psn=000000 mig becn"},
	} {
		if got := c.f.Build().String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestSyndromeNames(t *testing.T) {
	for s, want := range map[wire.Syndrome]string{
		0x1F: "ack", 0x00: "ack credit=0", 0x05: "ack credit=5", 0x20: "rnr-nak timer=0", 0x3F: "rnr-nak timer=31",
		0x60: "nak psn-sequence",
		0x61: "nak invalid-request", 0x62: "nak remote-access", 0x63: "nak remote-operational", 0x64: "nak invalid-rd",
		0x65: "syndrome 0x65", 0x40: "syndrome 0x40", 0x9F: "syndrome 0x9f",
	} {
		if s.String() != want {
			t.Errorf("syndrome %#02x is %q, want %q", uint8(s), s.String(), want)
		}
	}
}
