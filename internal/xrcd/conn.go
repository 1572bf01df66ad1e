package xrcd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

const (
	// longest is the length of the longest message: a run of packets, which carries at most as much as one receive.
	longest = 64 << 20
	// room is the number of bytes that wait to be written, beyond which Offer drops messages.
	room = 4 << 20
	// headLen is the length of what precedes a message: its length.
	headLen = 4
)

var errTooLong = errors.New("xrcd: a message is longer than 64 MiB")

// A Conn carries messages between two members. Send and Offer may be called by any goroutine, and do not block; Receive
// by one.
type Conn struct {
	u      *net.UnixConn
	in     *bufio.Reader
	buf    []byte
	closed func(*Conn)

	mu   sync.Mutex // guards the following fields
	more sync.Cond  // out is not empty, or over is set
	// +checklocks:mu
	out []byte // messages that are not written yet
	// +checklocks:mu
	over bool
}

func newConn(u *net.UnixConn, closed func(*Conn)) *Conn {
	c := &Conn{u: u, closed: closed}
	c.in = bufio.NewReaderSize(reader(u), 1<<16)
	c.more.L = &c.mu
	go c.write()
	return c
}

// write writes messages until the connection ends.
func (c *Conn) write() {
	w := writer(c.u)
	var spare []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.over {
			c.more.Wait()
		}
		if c.over {
			c.mu.Unlock()
			return
		}
		batch := c.out
		c.out = spare[:0]
		c.mu.Unlock()
		if _, err := w.Write(batch); err != nil {
			c.Close()
			return
		}
		if spare = batch; cap(spare) > room {
			spare = nil
		}
	}
}

// Send sends a message, which build appends to the slice that it gets.
func (c *Conn) Send(build func(b []byte) []byte) { c.put(build, false) }

// Offer is Send for a message that may be lost. It reports whether there was room for it.
func (c *Conn) Offer(build func(b []byte) []byte) bool { return c.put(build, true) }

func (c *Conn) put(build func(b []byte) []byte, droppable bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || droppable && len(c.out) > room {
		return false
	}
	at := len(c.out)
	c.out = build(append(c.out, make([]byte, headLen)...))
	binary.BigEndian.PutUint32(c.out[at:], uint32(len(c.out)-at-headLen))
	if at == 0 {
		c.more.Signal()
	}
	return true
}

// Receive returns the next message, which is valid until the next call.
func (c *Conn) Receive() ([]byte, error) {
	var head [headLen]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > longest {
		return nil, errTooLong
	}
	if cap(c.buf) > room {
		c.buf = nil
	}
	// The buffer grows with what has come, so that a length alone costs no memory.
	c.buf = c.buf[:0]
	for uint32(len(c.buf)) < n {
		at := len(c.buf)
		step := min(int(n)-at, max(at, 1<<16))
		c.buf = append(c.buf, make([]byte, step)...)
		if _, err := io.ReadFull(c.in, c.buf[at:]); err != nil {
			return nil, err
		}
	}
	return c.buf, nil
}

// Close ends the connection. It does not wait until the messages of Send are written.
func (c *Conn) Close() {
	c.mu.Lock()
	was := c.over
	c.over = true
	c.more.Signal()
	c.mu.Unlock()
	if was {
		return
	}
	_ = c.u.Close() // the peer is of this user, and the socket refuses descriptors
	c.closed(c)
}
