package iwarp_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// TestControlBytes compares the first two bytes of each operation with the RFCs.
func TestControlBytes(t *testing.T) {
	for op, want := range map[iwarp.Opcode][2]byte{
		iwarp.Write: {0xC1, 0x40}, iwarp.ReadRequest: {0x41, 0x41}, iwarp.ReadResponse: {0xC1, 0x42},
		iwarp.Send: {0x41, 0x43}, iwarp.SendInv: {0x41, 0x44}, iwarp.SendSE: {0x41, 0x45},
		iwarp.SendSEInv: {0x41, 0x46}, iwarp.TerminateOp: {0x41, 0x47}, iwarp.Immediate: {0x41, 0x48},
		iwarp.ImmediateSE: {0x41, 0x49}, iwarp.AtomicRequest: {0x41, 0x4A}, iwarp.AtomicResponse: {0x41, 0x4B},
	} {
		b := make([]byte, iwarp.UntaggedLen)
		if op.Info().Tagged {
			iwarp.PutTagged(b, op, true, 1, 2)
		} else {
			iwarp.PutUntagged(b, op, true, 0, 1, 0)
		}
		if [2]byte(b) != want {
			t.Errorf("%v begins with %x, want %x", op, b[:2], want)
		}
		if code, ok := iwarp.Check(b, len(b)); !ok {
			t.Errorf("%v is refused: %v", op, code)
		}
		b[0] &^= 0x40
		if iwarp.Segment(b).Last() || b[0]&0x7F != 1 {
			t.Errorf("%v without L begins with %x", op, b[:2])
		}
	}
}

// TestCheckRefuses gives Check each kind of malformed header.
func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		hex  string
		want iwarp.Code
	}{
		{"DDP version 0, tagged", "c0 40 00000001 0000000000000002", iwarp.TaggedVersion},
		{"DDP version 2, tagged", "c2 40 00000001 0000000000000002", iwarp.TaggedVersion},
		{"DDP version 3, untagged", "43 43 00000000 00000000 00000001 00000000", iwarp.UntaggedVersion},
		{"RDMAP version 0", "41 03 00000000 00000000 00000001 00000000", iwarp.RDMAPVersion},
		{"RDMAP version 3", "c1 c0 00000001 0000000000000002", iwarp.RDMAPVersion},
		{"opcode 12", "41 4c 00000000 00000000 00000001 00000000", iwarp.UnexpectedOpcode},
		{"opcode 15", "c1 4f 00000001 0000000000000002", iwarp.UnexpectedOpcode},
		{"tagged Send", "c1 43 00000001 0000000000000002", iwarp.UnexpectedOpcode},
		{"untagged Write", "41 40 00000000 00000000 00000001 00000000", iwarp.UnexpectedOpcode},
		{"queue 4", "41 43 00000000 00000004 00000001 00000000", iwarp.InvalidQN},
		{"queue 2^32-1", "41 43 00000000 ffffffff 00000001 00000000", iwarp.InvalidQN},
		{"Send to queue 1", "41 43 00000000 00000001 00000001 00000000", iwarp.InvalidQN},
		{"Read Request to queue 0", "41 41 00000000 00000000 00000001 00000000", iwarp.InvalidQN},
		{"Terminate to queue 0", "41 47 00000000 00000000 00000001 00000000", iwarp.InvalidQN},
	} {
		b := unhex(t, c.hex)
		if code, ok := iwarp.Check(b, len(b)); ok || code != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, code, ok, c.want)
		}
	}
	b := unhex(t, "41 43 00000000 00000000 00000001 00000000")
	if code, ok := iwarp.Check(b, 17); ok || code != iwarp.MPALength {
		t.Errorf("an untagged segment of 17 bytes: %v, %v", code, ok)
	}
}

// TestMessages encodes and decodes the messages that have a header of their own.
func TestMessages(t *testing.T) {
	b := make([]byte, 64)
	r := iwarp.Read{SinkSTag: 0x638f6400, SinkTO: 0x5559bd43e4e0, Size: 100, SrcSTag: 0x8c09d500, SrcTO: 0x55d5464b9b80}
	r.Put(b)
	if want := unhex(t, "638f6400 00005559bd43e4e0 00000064 8c09d500 000055d5464b9b80"); !bytes.Equal(b[:28], want) ||
		iwarp.ParseRead(b) != r {
		t.Errorf("Read Request %x, want %x", b[:28], want)
	}
	a := iwarp.Atomic{Op: iwarp.CmpSwap, ID: 1, STag: 2, TO: 3, Data: 4, Mask: 5, Compare: 6, CompareMask: 7}
	a.Put(b)
	if want := unhex(t, `00000002 00000001 00000002 0000000000000003 0000000000000004 0000000000000005
		0000000000000006 0000000000000007`); !bytes.Equal(b[:52], want) || iwarp.ParseAtomic(b) != a {
		t.Errorf("Atomic Request %x, want %x", b[:52], want)
	}
	iwarp.PutAtomicResponse(b, 9, 10)
	if id, was := iwarp.ParseAtomicResponse(b); id != 9 || was != 10 || b[11] != 10 {
		t.Errorf("Atomic Response %x", b[:12])
	}
	iwarp.PutImmediate(b, 11, 12)
	if imm, n := iwarp.ParseImmediate(b); imm != 11 || n != 12 || b[3] != 11 || b[7] != 12 {
		t.Errorf("Immediate Data %x", b[:8])
	}
}

// TestI_TERM_01_Layout encodes and decodes Terminates of each form, and refuses each that is cut short.
func TestI_TERM_01_Layout(t *testing.T) {
	tagged := unhex(t, "c1 40 00000001 0000000000000002")
	untagged := unhex(t, "41 41 00000000 00000001 00000001 00000000")
	read := bytes.Repeat([]byte{7}, iwarp.ReadRequestLen)
	for _, c := range []struct {
		t    iwarp.Terminate
		want []byte
	}{
		{iwarp.Terminate{Code: iwarp.MPACRC}, unhex(t, "20020000")},
		{iwarp.Terminate{Code: iwarp.TaggedBounds, SegLen: 0x1234, DDP: tagged},
			append(unhex(t, "1101c0001234"), tagged...)},
		{iwarp.Terminate{Code: iwarp.ReadAccess, SegLen: 46, DDP: untagged, RDMAP: read},
			append(append(unhex(t, "0102e000002e"), untagged...), read...)},
	} {
		b := c.t.Append(nil)
		if !bytes.Equal(b, c.want) || len(b) > iwarp.MaxTerminate {
			t.Errorf("%v: %x, want %x", c.t.Code, b, c.want)
		}
		if got, err := iwarp.ParseTerminate(b); err != nil || !reflect.DeepEqual(got, c.t) {
			t.Errorf("%v: decoded as %+v, %v", c.t.Code, got, err)
		}
		for n := range b {
			if _, err := iwarp.ParseTerminate(b[:n]); err == nil {
				t.Errorf("%v: %d of %d bytes are accepted", c.t.Code, n, len(b))
			}
		}
	}
}

// TestI_TERM_02_I_TERM_03_Codes checks that each code has its layer and type, and a text of its own.
func TestI_TERM_02_I_TERM_03_Codes(t *testing.T) {
	texts := map[string]iwarp.Code{}
	for c := range 1 << 16 {
		code := iwarp.Code(c)
		if !code.Known() {
			continue
		}
		if other, ok := texts[code.String()]; ok {
			t.Errorf("%04x and %04x are both %q", c, other, code)
		}
		texts[code.String()] = code
	}
	if len(texts) != 33 {
		t.Errorf("%d codes, want 33", len(texts))
	}
	if c := iwarp.InvalidMO; c.Layer() != 1 || c.Type() != 2 || c.Number() != 4 {
		t.Errorf("invalid MO is %d, %d, %d", c.Layer(), c.Type(), c.Number())
	}
	if s := iwarp.Code(0x3456).String(); s != "layer 3, type 4, code 86" {
		t.Errorf("an unknown code reads %q", s)
	}
}

// TestI_TERM_04_OrderOfSIW reads Terminates with the halves of the first byte exchanged and the flags from the lowest
// bit upwards.
func TestI_TERM_04_OrderOfSIW(t *testing.T) {
	tagged := unhex(t, "c1 40 00000001 0000000000000002")
	for _, c := range []struct {
		b    []byte
		want iwarp.Terminate
	}{
		{append(unhex(t, "1101 0300 0064"), tagged...), iwarp.Terminate{
			Code: iwarp.TaggedBounds, SegLen: 100, DDP: tagged}},
		{append(unhex(t, "2104 0300 0064"), tagged...), iwarp.Terminate{Code: 0x1204, SegLen: 100, DDP: tagged}},
		{unhex(t, "0202 0000"), iwarp.Terminate{Code: iwarp.MPACRC}},
		{unhex(t, "2002 0000"), iwarp.Terminate{Code: iwarp.MPACRC}},
		{unhex(t, "0206 0000"), iwarp.Terminate{Code: iwarp.UnexpectedOpcode}}, // known in RFC's order
	} {
		if got, err := iwarp.ParseTerminate(c.b); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%x is %+v, %v, want %+v", c.b, got, err, c.want)
		}
	}
}

// TestText compares segments as text.
func TestText(t *testing.T) {
	for hex, want := range map[string]string{
		"c1 40 00000001 0000000000000002 aabb": "Write stag=00000001 to=2 data=2",
		"01 44 00000007 00000000 00000003 00000004 aa": "Send with Invalidate msn=3 mo=4 " +
			"inv=00000007 more data=1",
		"41 47 00000000 00000002 00000001 00000000 20020000": "Terminate msn=1 mo=0 code=2002 (MPA: CRC)",
		"41 41 00000000 00000001 00000001 00000000 aa":       "Read Request msn=1 mo=0 data=1 instead of 28",
		"41 4a": "short segment: 2 bytes: 414a",
		"c0 40 00000001 0000000000000002": "bad segment (DDP: version of a tagged segment): 14 bytes: " +
			"c040000000010000000000000002",
	} {
		if got := iwarp.Segment(unhex(t, hex)).String(); got != want {
			t.Errorf("%s reads\n%s, want\n%s", hex, got, want)
		}
	}
}
