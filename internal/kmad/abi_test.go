package kmad

import (
	"syscall"
	"testing"
)

// TestHeaders writes a header and reads it again, each field with a value of its own.
func TestHeaders(t *testing.T) {
	want := Header{
		Agent: 1, TimeoutMS: 3, Retries: 4, QPN: 0x123456, QKey: 0x80010000, GRH: true, GIDIndex: 7, HopLimit: 8, TClass: 9,
		GID: [16]byte{10, 15: 11}, FlowLabel: 0xFEDCB, PKeyIndex: 13,
	}
	b := make([]byte, headerLen)
	want.put(b)
	if got := headerOf(b); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if b[20] != 0 || b[21] != 0x12 || b[53] != 0x0F {
		t.Errorf("addresses are not in the order of packets: %x", b)
	}
	ne.PutUint32(b[4:], uint32(syscall.ETIMEDOUT))
	if got := headerOf(b).Status; got != syscall.ETIMEDOUT {
		t.Errorf("status %v", got)
	}
}

// TestRequests writes registrations.
func TestRequests(t *testing.T) {
	b := make([]byte, requestLen)
	(&Request{Class: 4, Version: 1, Methods: []uint8{1, 2, 63, 64, 127}, OUI: 0x1405}).put(b)
	low, high := ne.Uint64(b[16:]), ne.Uint64(b[24:])
	if ne.Uint32(b[4:]) != 1 || b[8] != 4 || b[9] != 1 || low != 1<<1|1<<2|1<<63 || high != 1<<0|1<<63 ||
		ne.Uint32(b[32:]) != 0x1405 {
		t.Errorf("%x", b)
	}
	clear(b)
	(&Request{Class: 4, Version: 1}).put(b)
	if b[8] != 0 || ne.Uint64(b[16:]) != 0 {
		t.Errorf("for answers only: %x", b)
	}
}
