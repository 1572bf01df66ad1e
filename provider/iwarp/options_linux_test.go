package iwarp_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// requestOf returns the start-up frame with which an ID asks for a connection.
func requestOf(t *testing.T) []byte {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback.AsSlice()})
	must(t, err)
	defer l.Close()
	id, ch := resolved(t, newHost(t), l.Addr().(*net.TCPAddr).AddrPort())
	equip(t, id, ch)
	must(t, id.Connect(t.Context(), nil))
	c, err := l.Accept()
	must(t, err)
	defer c.Close()
	frame := make([]byte, 24)
	_, err = io.ReadFull(c, frame)
	must(t, err)
	return frame
}

// The environment decides whether a request asks for CRCs and for peer-to-peer mode.
func TestI_MPA_03_I_MPA_07_OptionsOfARequest(t *testing.T) {
	const flags, ird, ord = 16, 20, 22 // bytes of a frame
	for _, c := range []struct {
		crc, p2p        string
		hasCRC, hasPeer bool
	}{{"", "", false, true}, {"1", "0", true, false}, {"0", "1", false, true}} {
		t.Setenv("VERBENA_IWARP_CRC", c.crc)
		t.Setenv("VERBENA_IWARP_P2P", c.p2p)
		f := requestOf(t)
		if got := f[flags]&0x40 != 0; got != c.hasCRC {
			t.Errorf("%+v: asks for CRCs: %v", c, got)
		}
		if got := f[ird]&0x80 != 0; got != c.hasPeer {
			t.Errorf("%+v: asks for peer-to-peer mode: %v", c, got)
		}
		if got := f[ird]&0x40 != 0 && f[ord]&0xc0 == 0xc0; got != c.hasPeer {
			t.Errorf("%+v: all three first messages: %v", c, got)
		}
	}
	t.Setenv("VERBENA_IWARP_CRC", "yes")
	id, ch := resolved(t, newHost(t), netip.AddrPortFrom(loopback, 9))
	equip(t, id, ch)
	if err := id.Connect(t.Context(), nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("VERBENA_IWARP_CRC=yes: %v", err)
	}
}

// Without peer-to-peer mode a server may send first too, after a pause.
func TestI_MPA_02_ServerSendsFirstWithoutPeerToPeer(t *testing.T) {
	t.Setenv("VERBENA_IWARP_P2P", "0")
	c, s := connect(t)
	c.recv(1, 0, 100)
	must(t, s.QP().PostSend(verbs.SendWR{WRID: 4, Opcode: verbs.WRSend, SGList: s.sge(0, 100)}))
	if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCSuccess || wc.ByteLen != 100 {
		t.Errorf("SEND of the server: %+v", wc)
	}
}

// With CRCs and in peer-to-peer mode the side that was called may send first.
func TestI_MPA_02_ServerSendsFirst(t *testing.T) {
	for _, crc := range []string{"0", "1"} {
		t.Setenv("VERBENA_IWARP_CRC", crc)
		c, s := connect(t)
		c.recv(1, 0, memSize)
		fill(s.mem, 3)
		must(t, s.QP().PostSend(verbs.SendWR{WRID: 4, Opcode: verbs.WRSend, SGList: s.sge(0, memSize)}))
		if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCSuccess || wc.ByteLen != memSize || c.mem[5] != s.mem[5] {
			t.Errorf("SEND of the server: %+v", wc)
		}
	}
}
