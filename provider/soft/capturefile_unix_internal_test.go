//go:build unix

package soft

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// stderrOf returns what f prints.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = w
	f()
	os.Stderr = was
	w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fullDisk is a file that cannot be written.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestIncompleteCaptureIsReported checks that the program is told of a capture file that cannot be written, and of
// nothing else.
func TestIncompleteCaptureIsReported(t *testing.T) {
	for file, want := range map[io.Writer]string{
		io.Discard: "",
		fullDisk{}: "verbena: VERBENA_PCAP: incomplete capture: no space left on device\n",
	} {
		for what, end := range map[string]func(c *capture){
			"closed": func(c *capture) { c.stop() },
			"not closed": func(*capture) {
				pcap.Flush()
				pcap.Flush() // the error is reported once
			},
		} {
			var sink *pcap.Sink
			got := stderrOf(t, func() {
				sink = pcap.NewSink(&captureFile{file: file}, 0)
				tap := sink.Tap()
				pkt := make([]byte, wire.BTHLen+4)
				wire.BTH(pkt).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 17, 1, 0)
				tap.From(17, 1024)
				tap.Placed(&link.Path{Src: addrs("10.0.0.1")[0], Dst: addrs("10.0.0.2")[0]}, pkt, false)
				tap.Sent()
				end(&capture{file: sink, streams: new(streams)})
			})
			if what == "not closed" {
				_ = sink.Close()
			}
			if got != want {
				t.Errorf("%T, %s: %q, want %q", file, what, got, want)
			}
		}
	}
}

// TestFailureOfACaptureIsReportedOnce checks that the program is told of the first write that fails only.
func TestFailureOfACaptureIsReportedOnce(t *testing.T) {
	c := &captureFile{file: fullDisk{}}
	got := stderrOf(t, func() {
		for range 3 {
			if _, err := c.Write(make([]byte, 8)); err == nil {
				t.Error("the write succeeds")
			}
		}
	})
	if n := strings.Count(got, "incomplete capture"); n != 1 {
		t.Errorf("%d reports: %q", n, got)
	}
}
