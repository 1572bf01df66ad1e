package control

import (
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// TestCallOfAnEndingCapture checks that a program that calls a capture which ends just then gets no signal.
func TestCallOfAnEndingCapture(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: announcement(os.Geteuid(), 0)}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 8); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			unix.Close(c)
		}
	}()
	defer func() {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ends accept
		<-ended
		unix.Close(fd)
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGPIPE)
	defer signal.Stop(signals)
	begin, early := time.Now(), 0
	for early < 100 && time.Since(begin) < 5*time.Second {
		calls := CallCaptures("x", "y", func(string) bool { return false })
		if len(calls) == 0 {
			early++ // the end came first
		}
		for _, c := range calls {
			_ = untrusted.Close(c)
		}
	}
	if early == 0 {
		t.Skip("no end came before the introduction")
	}
	select {
	case s := <-signals:
		t.Errorf("%d ends of captures raised %v", early, s)
	case <-time.After(50 * time.Millisecond):
	}
}
