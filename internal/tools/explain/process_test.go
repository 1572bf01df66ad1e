package explain

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Columns of two processes on one address name the processes, as far as captures do, whoever sends first.
func TestColumnsNameProcesses(t *testing.T) {
	one, other := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	for name, c := range map[string]struct {
		src      netip.Addr
		from, to string
		want     string
	}{
		"one address":   {one, "client (7)", "server (8)", "127.0.0.1 client (7)  <->  127.0.0.1 server (8)\n"},
		"two addresses": {other, "client (7)", "server (8)", "127.0.0.1  <->  127.0.0.2\n"},
		"one capture":   {one, "client (7)", "", "127.0.0.1 client (7)  <->  127.0.0.1 (another process)\n"},
		"hostile name":  {one, "a\x1b[2J", "b", "127.0.0.1 \"a\\x1b[2J\"  <->  127.0.0.1 b\n"},
	} {
		var out bytes.Buffer
		l, printer := newLadder(), &text{w: &out}
		send := func(process string, in bool, qpn uint32) {
			b := make([]byte, 16)
			wire.BTH(b).Put(wire.SendOnly|wire.RC, 0, 0xffff, qpn, 5, 0)
			p, err := wire.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			l.add(&packet{at: time.Unix(1, 0), src: c.src, dst: one, data: p, process: process, inbound: in, outbound: !in})
		}
		send(c.from, false, 0x17)
		if c.to != "" {
			send(c.to, true, 0x17)
		}
		send(c.to, false, 0x18)
		l.emit(0, printer.print)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: no %q in %s", name, c.want, out.String())
		}
	}
}

// Both directions go to QP 1, and a server may send first: the column is that of the process.
func TestColumnsOfOneCapture(t *testing.T) {
	one := netip.MustParseAddr("127.0.0.1")
	var out bytes.Buffer
	l, printer := newLadder(), &text{w: &out}
	for i, c := range []struct {
		in  bool
		qpn uint32
	}{{false, 1}, {true, 1}, {true, 0x18}, {false, 0x17}} {
		b := make([]byte, 16)
		wire.BTH(b).Put(wire.SendOnly|wire.RC, 0, 0xffff, c.qpn, uint32(i), 0)
		p, err := wire.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		l.add(&packet{at: time.Unix(1, 0), src: one, dst: one, data: p, process: "client (7)", inbound: c.in,
			outbound: !c.in})
	}
	l.emit(0, printer.print)
	text := out.String()
	if want := "127.0.0.1 client (7)  <->  127.0.0.1 (another process)\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
	var arrows []string
	for _, word := range strings.Fields(text) {
		if word == "--->" || word == "<---" {
			arrows = append(arrows, word)
		}
	}
	if got := strings.Join(arrows, " "); got != "---> <--- <--- --->" {
		t.Errorf("arrows %s in %s", got, text)
	}
}
