package rs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden is the connection data of the specification's golden REQ.
var golden = ConnData{
	Flags: FlagIOMap, Credits: 384, Table: SGE{0x7f1122330000, 0x1234, 2}, Data: SGE{0x7f1144550000, 0x5678, 65536},
}

const goldenHex = "010201800000000000007f11223300000000123400000002" + "00007f1144550000" + "00005678" + "00010000"

func TestW_RS_01_ConnectionDataIsBigEndian(t *testing.T) {
	want := unhex(t, goldenHex)
	if got := golden.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	for _, tail := range []int{0, 16, 156} { // private data is padded with zeros
		if got, err := ParseConnData(append(bytes.Clone(want), make([]byte, tail)...)); err != nil || got != golden {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestConnectionDataRefused(t *testing.T) {
	good := unhex(t, goldenHex)
	for n := range good {
		if _, err := ParseConnData(good[:n]); !errors.Is(err, ErrVersion) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, v := range []byte{0, 2, 255} {
		if _, err := ParseConnData(append([]byte{v}, good[1:]...)); !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: %v", v, err)
		}
	}
	for _, n := range []byte{0, 1} {
		bad := bytes.Clone(good)
		bad[23] = n
		if _, err := ParseConnData(bad); err == nil || errors.Is(err, ErrVersion) {
			t.Errorf("a table of %d: %v", n, err)
		}
	}
}

func TestW_RS_05_W_RS_06_TableEntries(t *testing.T) {
	e := SGE{0x7f1144560000, 0x5678, 65536}
	little, big := unhex(t, "00005644117f00007856000000000100"), unhex(t, "00007f11445600000000567800010000")
	le, be := ConnData{Flags: FlagIOMap}, ConnData{Flags: FlagIOMap | FlagNet}
	if got := e.Append(nil, le.Order()); !bytes.Equal(got, little) || ParseSGE(got, binary.LittleEndian) != e {
		t.Errorf("little-endian owner: %x", got)
	}
	if got := e.Append(nil, be.Order()); !bytes.Equal(got, big) || ParseSGE(got, binary.BigEndian) != e {
		t.Errorf("big-endian owner: %x", got)
	}
	m := IOMap{0x1000, SGE{0x7f1199990000, 0x9abc, 4096}}
	want := unhex(t, "001000000000000000009999117f0000bc9a000000100000")
	if got := m.Append(nil, le.Order()); !bytes.Equal(got, want) || ParseIOMap(got, binary.LittleEndian) != m {
		t.Errorf("IO map: %x", got)
	}
}

func TestW_RS_09_MessageWords(t *testing.T) {
	const seq = 0xfff0
	for _, c := range []struct {
		op   Op
		data uint32
		want uint32
	}{
		{OpData, 4096, 0x00001000}, {OpSGL, 384, 0x80000180}, {OpSGL, seq + 384, 0x80010170}, {OpIOMap, 3, 0xc0000003},
		{OpCtrl, CtrlDisconnect, 0xe0000000}, {OpCtrl, CtrlShutdown, 0xe0000002}, {OpCtrl, CtrlKeepalive, 0xe0000001},
	} {
		got := Word(c.op, c.data)
		op, data := Split(got)
		if got != c.want || op != c.op || data != c.data {
			t.Errorf("%v %d: %#08x, want %#08x; back: %v %d", c.op, c.data, got, c.want, op, data)
		}
	}
	if op := Op(5).String(); op != "op 5" {
		t.Error(op)
	}
}

func TestW_RS_08_ScaledSizes(t *testing.T) {
	for _, c := range []struct {
		n         int
		scaled    uint8
		effective int
	}{{0, 0, 0}, {1, 1, 1}, {128, 128, 128}, {200, 128, 128}, {256, 129, 256}, {1000, 131, 768}, {4096, 144, 4096},
		{32512, 255, 32512}, {40000, 255, 32512}, {1 << 20, 255, 32512}, {-1, 0, 0}} {
		if got := Scale(c.n); got != c.scaled || Unscale(got) != c.effective {
			t.Errorf("%d: %d, which is %d; want %d, %d", c.n, got, Unscale(got), c.scaled, c.effective)
		}
	}
}

func TestW_DS_03_DatagramHeader(t *testing.T) {
	for from, want := range map[string]string{
		"192.168.1.10:9000": "04082328c0a8010a",
		"[fd77::2]:7174":    "06181c0600000000fd770000000000000000000000000002",
	} {
		a := netip.MustParseAddrPort(from)
		got := AppendHeader(nil, a)
		if !bytes.Equal(got, unhex(t, want)) {
			t.Errorf("%s: %x", from, got)
		}
		back, payload, ok := ParseHeader(append(got, "data"...))
		if !ok || back != a || string(payload) != "data" {
			t.Errorf("%s: %v %q %v", from, back, payload, ok)
		}
		for n := range got {
			if _, _, ok := ParseHeader(got[:n]); ok {
				t.Errorf("%d bytes of it are a header", n)
			}
		}
		for i := range 2 {
			bad := bytes.Clone(got)
			bad[i] ^= 0x1e
			if _, _, ok := ParseHeader(append(bad, make([]byte, 40)...)); ok {
				t.Errorf("%x is a header", bad)
			}
		}
	}
}

func TestW_DS_04_UDPHeader(t *testing.T) {
	from := netip.MustParseAddr("192.168.1.10")
	got := AppendUDPHeader(nil, OpData, 0x33, from)
	if !bytes.Equal(got, unhex(t, "555555550400100000000033c0a8010a")) {
		t.Errorf("%x", got)
	}
	op, qpn, payload, ok := ParseUDPHeader(append(got, 7), true)
	if op != OpData || qpn != 0x33 || len(payload) != 1 || !ok {
		t.Error(op, qpn, payload, ok)
	}
	if _, _, _, ok := ParseUDPHeader(append(got, make([]byte, 40)...), false); ok {
		t.Error("an IPv6 socket takes an IPv4 message")
	}
	for _, op := range []Op{OpSGL, OpIOMap, 1, 8, 0x10} {
		if _, _, _, ok := ParseUDPHeader(AppendUDPHeader(nil, op, 0x33, from), true); ok {
			t.Errorf("a message of %v is taken", op)
		}
	}
	six := AppendUDPHeader(nil, OpCtrl, 0xff000033, netip.MustParseAddr("fd77::2"))
	if op, qpn, _, ok := ParseUDPHeader(six, false); op != OpCtrl || qpn != 0x33 || !ok || len(six) != 28 {
		t.Error(op, qpn, ok, len(six)) // the upper 8 bits are ignored
	}
}

func FuzzParse(f *testing.F) {
	f.Add(golden.Append(nil))
	f.Add(AppendUDPHeader(nil, OpData, 1, netip.IPv4Unspecified()))
	f.Add(AppendHeader(nil, netip.MustParseAddrPort("[::1]:1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := ParseConnData(b); err == nil {
			if back, err := ParseConnData(d.Append(nil)); err != nil || back != d {
				t.Errorf("%+v became %+v, %v", d, back, err)
			}
		}
		if from, payload, ok := ParseHeader(b); ok && !bytes.Equal(AppendHeader(nil, from)[:4], b[:4]) {
			t.Errorf("%v %x", from, payload)
		}
		_, _, _, _ = ParseUDPHeader(b, true)
		_, _, _, _ = ParseUDPHeader(b, false)
	})
}
