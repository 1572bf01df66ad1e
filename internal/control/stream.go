package control

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// parting limits the wait of a program that ends for a capture that reads the remaining packets.
const parting = 250 * time.Millisecond

// A Stream is the packets of a device as a program sends them: blocks of pcapng, until the program closes the device
// or the reader ends the stream.
type Stream struct {
	r    io.Reader
	conn *net.UnixConn
}

// Read reads blocks.
func (s *Stream) Read(b []byte) (int, error) { return s.r.Read(b) }

// Finish requests the remaining packets, which ends the stream: reads return them and then io.EOF, or soon an error.
func (s *Stream) Finish() {
	_ = s.conn.SetReadDeadline(time.Now().Add(2 * parting))
	_ = s.conn.CloseWrite()
}

// Close ends the stream.
func (s *Stream) Close() error { return untrusted.Close(s.conn) }

// Snap requests only the first n bytes of each packet, from the IP header on.
func (s *Stream) Snap(n int) { _, _ = fmt.Fprintf(s.conn, "snap %d\n", n) }

// SnapOf parses a request of Snap.
func SnapOf(line []byte) (n int, ok bool) {
	_, err := fmt.Sscanf(string(line), "snap %d\n", &n)
	return n, err == nil
}
