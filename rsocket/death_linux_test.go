package rsocket_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket"
)

// victimAddr is set in a process that serves one connection until it is killed.
const victimAddr = "VERBENA_TEST_VICTIM"

// When the process at the other end is killed the stream ends, with and without data in flight to it.
func TestPeerIsKilled(t *testing.T) {
	if a := os.Getenv(victimAddr); a != "" {
		l, err := (&rsocket.ListenConfig{Host: deviceAt(t, a)}).Listen(bg, "tcp", a+":0")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("listens at", l.Addr())
		c, err := l.Accept()
		if err == nil {
			_, err = c.Write([]byte("the last words"))
		}
		fmt.Println("written:", err)
		select {}
	}
	pid := os.Getpid()
	addr := netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0xc0, byte(pid), 71})
	victims := []netip.Addr{addr, addr.Next()}
	if os.Getenv("VERBENA_SHM") == "0" {
		victims = victims[:1] // the processes of two addresses have only packets in common then
	}
	for _, victim := range victims {
		host := deviceAt(t, addr.String())
		ctx, cancel := context.WithTimeout(bg, 2*time.Minute) // should it hang
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPeerIsKilled$")
		cmd.Env = append(os.Environ(), victimAddr+"="+victim.String())
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		kill := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		t.Cleanup(kill)
		said := bufio.NewReader(out)
		says := func(what string) string {
			for {
				line, err := said.ReadString('\n')
				if rest, ok := strings.CutPrefix(line, what); ok {
					return strings.TrimSpace(rest)
				}
				if err != nil {
					t.Fatalf("the other process did not print %q: %v", what, err)
				}
			}
		}
		conn, err := (&rsocket.Dialer{Host: host, KeepAlive: -1}).Dial("tcp", says("listens at "))
		if err != nil {
			t.Fatal(err)
		}
		says("written: <nil>")
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 14)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "the last words" {
			t.Errorf("%v: read %q, %v", victim, got, err)
		}
		kill()
		if n, err := conn.Read(got); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v: %d bytes read after the end, %v", victim, n, err)
		}
		if _, err := conn.Write([]byte("?")); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v: written after the end: %v", victim, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}
}

func deviceAt(t *testing.T, addr string) *rdmacm.Host {
	t.Helper()
	dev, err := soft.New(soft.Config{Name: "d", Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
	if err != nil {
		t.Fatal(err)
	}
	return rdmacm.NewHost(dev.Device)
}
