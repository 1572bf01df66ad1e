package exchange

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// golden has the messages that ibv_rc_pingpong of rdma-core 44 writes for these destinations.
var golden = []struct {
	dest Dest
	text string
}{
	{
		Dest{LID: 0, QPN: 0x11, PSN: 0xabc, GID: gid("00000000000000000000ffffc0a84d02")},
		"0000:000011:000abc:00000000000000000000ffffc0a84d02\x00",
	},
	{
		Dest{LID: 0x1f, QPN: 0xffffff, PSN: 0, GID: gid("fe80000000000000505400fffe770001")},
		"001f:ffffff:000000:fe80000000000000505400fffe770001\x00",
	},
	{Dest{}, "0000:000000:000000:00000000000000000000000000000000\x00"},
}

func gid(digits string) [16]byte {
	d, err := ParseMessage([]byte("0:0:0:" + digits))
	if err != nil {
		panic(err)
	}
	return d.GID
}

func TestMessage(t *testing.T) {
	if MessageLen != 52 {
		t.Errorf("MessageLen = %d; the C programs read 52 bytes", MessageLen)
	}
	for _, g := range golden {
		if got := g.dest.AppendMessage(nil); string(got) != g.text {
			t.Errorf("message of %+v: %q, want %q", g.dest, got, g.text)
		}
		got, err := ParseMessage([]byte(g.text))
		if err != nil || got != g.dest {
			t.Errorf("parse %q: %+v, %v", g.text, got, err)
		}
	}
}

func TestParseRefusesGarbage(t *testing.T) {
	const g = "00000000000000000000ffffc0a84d02"
	for _, text := range []string{
		"", "\x00", "done\x00", "0000:000011:000abc", "0000:000011:000abc:" + g + ":1", "10000:1:1:" + g,
		"0:1000000:1:" + g, "0:1:1000000:" + g, "0:-1:1:" + g, "0:1:1:" + g[1:], "0:1:1:" + g + "0", "0:1:1:x" + g[1:],
	} {
		if d, err := ParseMessage([]byte(text)); err == nil {
			t.Errorf("%q was accepted as %+v", text, d)
		}
	}
}

// The text of a server that is not reached ends with the remedy.
func TestDialErrors(t *testing.T) {
	l, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.l.Close(); err != nil { // its port is free now
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"127.0.0.1": "start the server first, with the same -p",
		"fe80::1":   "must have a zone, as in fe80::1%eth0",
	} {
		if c, err := Dial(host, l.Port()); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, %v", host, c, err)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, g := range golden {
		f.Add([]byte(g.text))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		d, err := ParseMessage(msg)
		if err != nil {
			return
		}
		again, err := ParseMessage(d.AppendMessage(nil))
		if err != nil || again != d {
			t.Fatalf("%q: %+v, after a round trip %+v, %v", msg, d, again, err)
		}
	})
}

// The client of this test is written out byte by byte, as the C client behaves, for one queue pair and for
// the 256 messages of ibv_srq_pingpong.
func TestExchange(t *testing.T) {
	for _, n := range []int{1, 256} {
		l, err := Listen(0)
		if err != nil {
			t.Fatal(err)
		}
		client := make(chan error, 1)
		go func() { client <- playClient(l.l.Addr().(*net.TCPAddr).Port, n) }()

		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]Dest, n)
		if err := c.Recv(got); err != nil {
			t.Fatal(err)
		}
		if want := slices.Repeat([]Dest{golden[0].dest}, n); !slices.Equal(got, want) {
			t.Errorf("received %+v", got)
		}
		if err := c.Send(slices.Repeat([]Dest{golden[1].dest}, n)); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitDone(); err != nil {
			t.Error(err)
		}
		if err := <-client; err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

func playClient(port, n int) error {
	c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return err
	}
	defer c.Close()
	for range n {
		if _, err := io.WriteString(c, golden[0].text); err != nil {
			return err
		}
	}
	got := make([]byte, n*len(golden[1].text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if want := bytes.Repeat([]byte(golden[1].text), n); !bytes.Equal(got, want) {
		return io.ErrUnexpectedEOF
	}
	_, err = io.WriteString(c, "done\x00")
	return err
}

// A peer that sends less than the other program expects, as another pingpong does, ends the wait with a remedy.
func TestSilentPeer(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	_, err := receive(a, make([]byte, 1), time.Millisecond)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "run the same program") {
		t.Errorf("%v", err)
	}
}

// Both ends of this package, and the ways in which a peer can fail.
func TestClientAgainstServer(t *testing.T) {
	for name, client := range map[string]func(*Conn) error{
		"": func(c *Conn) error {
			if err := c.Send([]Dest{golden[0].dest}); err != nil {
				return err
			}
			if err := c.Recv(make([]Dest, 1)); err != nil {
				return err
			}
			return c.SendDone()
		},
		"closed the connection":  func(*Conn) error { return nil },
		"the peer sent \"done\"": func(c *Conn) error { return c.write(append(done, make([]byte, MessageLen)...)) },
		"did not confirm our":    func(c *Conn) error { return c.Send([]Dest{golden[0].dest}) },
		"instead of \"done\\x00\": the client must": func(c *Conn) error {
			return c.Send([]Dest{golden[0].dest, golden[0].dest})
		},
		"look at its output": func(c *Conn) error { return c.c.SetLinger(0) },
	} {
		l, err := Listen(0)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := Dial("127.0.0.1", l.Port())
			if err == nil {
				err = client(c)
				c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Peer().String(); got != "127.0.0.1" {
			t.Errorf("peer %s", got)
		}
		err = c.Recv(make([]Dest, 1))
		if err == nil {
			err = c.Send([]Dest{golden[1].dest})
		}
		if err == nil {
			err = c.WaitDone()
		}
		c.Close()
		if name == "" && err != nil || name != "" && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("case %q: %v", name, err)
		}
	}
}
