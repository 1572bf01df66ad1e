package explain

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// A live capture that is damaged ends with an error, although its programs go on: they may be idle, or send more than
// anybody reads.
func TestDamagedLiveCapture(t *testing.T) {
	lie := make([]byte, 32) // a packet block with a packet that is longer than it
	lie[0], lie[4], lie[20] = 6, 32, 200
	for name, more := range map[string][]byte{"idle": nil, "busy": make([]byte, 1<<20)} {
		ended := make(chan error, 1)
		record := func(ctx context.Context, w io.Writer) error {
			b := append(pcap.AppendInterface(pcap.AppendSection(nil), "vrb_a", ""), lie...)
			_, err := w.Write(append(b, more...))
			<-ctx.Done()
			return err
		}
		go func() {
			_, err := piped(context.Background(), newLadder(), &text{w: io.Discard}, record)
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it does not end", name)
		}
	}
}
