package fdset

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns the two ends of a stream.
func pair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// A peer that has closed its end causes an error, not a signal for the program.
func TestSendWithoutSignal(t *testing.T) {
	ends := pair(t)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGPIPE)
	defer signal.Stop(signals)
	ends[1].Close()
	if err := Send(ends[0], []byte{1}, nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Send to a closed end: %v, want EPIPE", err)
	}
	select {
	case s := <-signals:
		t.Errorf("Send raised %v", s)
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := ends[0].Write([]byte{1}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Write to a closed end: %v, want EPIPE", err)
	}
	select { // the check above can fail
	case <-signals:
	case <-time.After(10 * time.Second):
		t.Error("Write raised no signal")
	}
}

// More than the socket holds goes out in pieces; the deadline ends the wait of a peer that does not read.
func TestSendInPieces(t *testing.T) {
	ends := pair(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	got := make(chan []byte)
	go func() { b, _ := io.ReadAll(ends[1]); got <- b }()
	if n, err := Writer(ends[0]).Write(want); n != len(want) || err != nil {
		t.Fatalf("Write: %d, %v", n, err)
	}
	ends[0].Close()
	if !bytes.Equal(<-got, want) {
		t.Error("other bytes have arrived")
	}
	ends = pair(t)
	if err := ends[0].SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := Send(ends[0], want, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Send to a peer that does not read: %v, want the deadline's error", err)
	}
}
