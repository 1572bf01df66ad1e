package rstools

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// toFullDisk is a client's connection to a server whose file cannot be written, and which has opened it.
func toFullDisk(t *testing.T) net.Conn {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no file that is always full: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		s := copyServer{env: &tool.Env{Stdout: io.Discard, Stderr: io.Discard}, c: bounded{far}, file: full}
		served <- s.serve()
		far.Close()
	}()
	t.Cleanup(func() {
		c.Close()
		if err := <-served; !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the server: %v", err)
		}
	})
	return c
}

// zeros is a long file: longer than the buffers of a connection.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

const longFile = 64 << 20

// The client of a server whose disk is full prints the reason, and not that the connection ended.
func TestCopyToAFullDisk(t *testing.T) {
	if err := sendFile(toFullDisk(t), zeros{}, longFile); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the client: %v", err)
	}
}

// A client that reads the answer after it has sent the whole file, as the C program, gets the reason too.
func TestCopyToAFullDiskInOrder(t *testing.T) {
	c := toFullDisk(t)
	m := copyMsg{command: copyWrite, body: binary.NativeEndian.AppendUint64(nil, longFile)}
	if err := m.send(c); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(c, zeros{}, longFile); err != nil {
		t.Errorf("sending: %v", err)
	}
	if err := copyAnswer(c, copyWrite); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the answer: %v", err)
	}
}

// A file that is shorter than it was ends the copy: the client does not wait for an answer.
func TestCopyOfAShrinkingFile(t *testing.T) {
	c, far := net.Pipe()
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	err := sendFile(c, io.LimitReader(zeros{}, 10), 20)
	if want := "10 of 20 bytes were sent"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A destination may have colons, as paths of Windows do.
func TestServerAndDestination(t *testing.T) {
	for arg, want := range map[string][2]string{
		"192.0.2.1":             {"192.0.2.1", "source"},
		"192.0.2.1:":            {"192.0.2.1", "source"},
		"192.0.2.1:/a":          {"192.0.2.1", "/a"},
		`192.0.2.1:C:\a`:        {"192.0.2.1", `C:\a`},
		"host:12:30":            {"host", "12:30"},
		"2001:db8::1":           {"2001:db8::1", "source"},
		"fe80::1%eth0":          {"fe80::1%eth0", "source"},
		"[2001:db8::1]":         {"2001:db8::1", "source"},
		"[2001:db8::1]:/a":      {"2001:db8::1", "/a"},
		`[fe80::1%eth0]:C:\a:b`: {"fe80::1%eth0", `C:\a:b`},
	} {
		if server, destination := splitServer(arg, "source"); server != want[0] || destination != want[1] {
			t.Errorf("%s: %q, %q; want %q", arg, server, destination, want)
		}
	}
}
