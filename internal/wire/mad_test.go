package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

func TestMADBytes(t *testing.T) {
	want := append(
		unhex(t, "01 07 02 83 1234 5678 0102030405060708 0010 0000 a1a2a3a4"),
		bytes.Repeat([]byte{0xEE}, 232)...)
	m := wire.MAD(bytes.Repeat([]byte{0xEE}, wire.MADLen))
	h := wire.MADHeader{
		Class: wire.ClassCM, ClassVersion: 2, Method: wire.MethodSend | wire.MethodResponse, Status: 0x1234,
		ClassSpecific: 0x5678, TID: 0x0102030405060708, AttrID: 0x10, AttrMod: 0xA1A2A3A4,
	}
	m.Put(h)
	if !bytes.Equal(m, want) {
		t.Errorf("got  %x\nwant %x", []byte(m[:32]), want[:32])
	}
	got, err := wire.ParseMAD(want)
	if err != nil {
		t.Fatal(err)
	}
	if got.Header() != h || got.BaseVersion() != 1 || !got.IsResponse() || !bytes.Equal(got.Data(), want[24:]) {
		t.Errorf("read as %+v, version %d, response %v", got.Header(), got.BaseVersion(), got.IsResponse())
	}
}

func TestParseMADRefuses(t *testing.T) {
	for _, c := range []struct {
		n       int
		version byte
		want    error
	}{
		{256, 1, nil}, {255, 1, wire.ErrMADLen}, {257, 1, wire.ErrMADLen}, {1, 1, wire.ErrMADLen}, {0, 0, wire.ErrMADLen},
		{256, 0, wire.ErrMADVersion}, {256, 0x80, wire.ErrMADVersion},
	} {
		b := make([]byte, c.n)
		if c.n > 0 {
			b[0] = c.version
		}
		if _, err := wire.ParseMAD(b); !errors.Is(err, c.want) {
			t.Errorf("%d bytes, version %d: error %v, want %v", c.n, c.version, err, c.want)
		}
	}
}
