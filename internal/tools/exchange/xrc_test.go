package exchange

import (
	"strings"
	"testing"
)

// goldenXRC has the messages in ibv_xsrq_pingpong's format: five numbers of at least 4, 6, 6, 6 and 6
// digits, the GID, a NUL.
var goldenXRC = []struct {
	dest XRCDest
	text string
}{
	{
		XRCDest{Recv: 0x11, Send: 0x12, PSN: 0xabc, SRQN: 0x7, GID: gid("00000000000000000000ffffc0a84d02")},
		"0000:000011:000012:000abc:000007:00000000000000000000ffffc0a84d02\x00",
	},
	{
		XRCDest{LID: 0x1f, Recv: 0xffffff, Send: 0xfffffe, SRQN: 0xffffff, GID: gid("fe80000000000000505400fffe770001")},
		"001f:ffffff:fffffe:000000:ffffff:fe80000000000000505400fffe770001\x00",
	},
}

func TestXRCMessage(t *testing.T) {
	if XRCMessageLen != 66 {
		t.Errorf("XRCMessageLen = %d; the C program reads 66 bytes", XRCMessageLen)
	}
	for _, g := range goldenXRC {
		if got := g.dest.AppendMessage(nil); string(got) != g.text {
			t.Errorf("message of %+v: %q, want %q", g.dest, got, g.text)
		}
		got, err := ParseXRCMessage([]byte(g.text))
		if err != nil || got != g.dest {
			t.Errorf("parse %q: %+v, %v", g.text, got, err)
		}
	}
}

func TestParseXRCRefusesGarbage(t *testing.T) {
	const g = "00000000000000000000ffffc0a84d02"
	for text, why := range map[string]string{
		"": "1 fields", "END\x00": "1 fields", "0:1:1:1:1:" + g + ":1": "7 fields", "10000:1:1:1:1:" + g: "LID",
		"0:1000000:1:1:1:" + g: "RECV_QPN",
		"0:1:-1:1:1:" + g:      "SEND_QPN", "0:1:1:x:1:" + g: "PSN", "0:1:1:1:1000000:" + g: "SRQN",
		"0:1:1:1:1:" + g[1:]: "32 digits", "0:1:1:1:1:x" + g[1:]: "hexadecimal",
	} {
		if d, err := ParseXRCMessage([]byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
}

// Both ends over TCP, with several clients in sequence.
func TestXRCExchange(t *testing.T) {
	l, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, g := range goldenXRC {
		client := make(chan error, 1)
		go func() { client <- xrcClient(l.Port(), g.dest) }()
		conn, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := conn.RecvXRC()
		if err != nil || got != g.dest {
			t.Errorf("%+v, %v", got, err)
		}
		for _, step := range []func() error{func() error { return conn.SendXRC(got) }, conn.WaitEnd, conn.SendEnd,
			conn.Close} {
			if err := step(); err != nil {
				t.Error(err)
			}
		}
		if err := <-client; err != nil {
			t.Error(err)
		}
	}
}

func xrcClient(port uint16, d XRCDest) error {
	conn, err := Dial("127.0.0.1", port)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, step := range []func() error{
		func() error { return conn.SendXRC(d) }, func() error { _, err := conn.RecvXRC(); return err }, conn.SendEnd,
		conn.WaitEnd,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
