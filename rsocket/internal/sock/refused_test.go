package sock

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// A datagram that cannot be sent counts no bytes.
func TestDatagramsThatAreRefused(t *testing.T) {
	four, six := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("[2001:db8::1]:7")
	d := NewDatagram(nil, true, Options{}.WithDefaults())
	for name, c := range map[string]struct {
		to   netip.AddrPort
		len  int
		want error
	}{
		"another family": {six, 1, syscall.EINVAL}, "no port": {netip.AddrPortFrom(four.Addr(), 0), 1, syscall.EINVAL},
		"too long": {four, d.max() + 1, syscall.EMSGSIZE},
	} {
		if n, err := d.SendTo(make([]byte, c.len), c.to, WaitMode{}); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d bytes, %v, want %v", name, n, err, c.want)
		}
	}
	ok(t, d.SetDeadline(time.Now().Add(-time.Second), false, true))
	if n, err := d.SendTo([]byte{1}, four, d.Writing()); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %d bytes, %v", n, err)
	}
	d.closed = true
	if n, err := d.SendTo([]byte{1}, four, WaitMode{}); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %d bytes, %v", n, err)
	}
}

// A receive that must not begin counts no bytes.
func TestReceivesThatAreRefused(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	recv := func(want error) {
		t.Helper()
		if n, from, err := d.RecvFrom(make([]byte, 1), 0, d.Reading()); n != 0 || from.IsValid() || !errors.Is(err, want) {
			t.Errorf("%d bytes from %v, %v, want %v", n, from, err, want)
		}
	}
	ok(t, d.SetDeadline(time.Now().Add(-time.Second), true, false))
	recv(os.ErrDeadlineExceeded)
	ok(t, d.SetDeadline(time.Now().Add(20*time.Millisecond), true, false))
	recv(os.ErrDeadlineExceeded)
	d.Close()
	recv(net.ErrClosed)
}
