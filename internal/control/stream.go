package control

import (
	"fmt"
	"io"
	"net"
	"time"
)

// parting is how long the end of a program waits for a capture that takes what is left.
const parting = 250 * time.Millisecond

// A Stream is a device's packets as a program sends them: blocks of pcapng, until the program closes the device or the reader has enough.
type Stream struct {
	r    io.Reader
	conn *net.UnixConn
}

// Read reads blocks.
func (s *Stream) Read(b []byte) (int, error) { return s.r.Read(b) }

// Finish asks the program for what it has not sent yet, which ends the stream: reads return it and then io.EOF, or soon an error.
func (s *Stream) Finish() {
	_ = s.conn.SetReadDeadline(time.Now().Add(2 * parting))
	_ = s.conn.CloseWrite()
}

// Close ends the stream.
func (s *Stream) Close() error { return s.conn.Close() }

// Snap asks for the first n bytes of each packet only, from the IP header on.
func (s *Stream) Snap(n int) { _, _ = fmt.Fprintf(s.conn, "snap %d\n", n) }

// SnapOf reads what Snap has asked for.
func SnapOf(line []byte) (n int, ok bool) {
	_, err := fmt.Sscanf(string(line), "snap %d\n", &n)
	return n, err == nil
}
