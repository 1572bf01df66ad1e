package rs

import "fmt"

// receiver is the receiving half of a stream: the ring that the peer writes.
type receiver struct {
	rq        int
	half      int // bytes of half of the ring
	ring      SGE // as sent to the peer
	table     []byte
	head      int // offset of the first unread byte
	queued    int // unread bytes
	published int // bytes that the peer may still write
	freed     int // read bytes that were not granted again
	freeAt    int // offset of the half that is granted next

	messages    lengths
	consumed    uint16 // completely read messages
	update      uint16 // value of consumed at which a credit update is due
	remoteEntry int    // entry of the peer's table that is written next
}

// Span is a piece of a buffer.
type Span struct{ Off, Len int }

// onData processes a DATA message.
func (s *Stream) onData(n int) error {
	switch {
	case s.messages.n == s.rq:
		return fmt.Errorf("more messages than the %d credits", s.rq)
	case n > s.published:
		return fmt.Errorf("message of %d bytes: %d are free", n, s.published)
	case n > 2*s.half-s.tail():
		return fmt.Errorf("message of %d bytes goes beyond the end of the buffer", n)
	}
	s.published -= n
	s.queued += n
	if s.messages.cap() == 0 {
		s.messages.make(s.rq)
	}
	s.messages.push(n)
	if n == 0 {
		s.finish()
	}
	if s.readShut {
		s.Discard()
	}
	return nil
}

// tail returns the offset of the peer's next message.
func (s *Stream) tail() int { return (s.head + s.queued) % (2 * s.half) }

// Readable returns the number of unread bytes.
func (s *Stream) Readable() int { return s.queued }

// Peek returns the position of the unread bytes from number skip on, at most max of them and without wrapping
// around.
func (s *Stream) Peek(skip, max int) Span {
	off := (s.head + skip) % (2 * s.half)
	return Span{off, min(max, s.queued-skip, 2*s.half-off)}
}

// Consume frees the first n unread bytes.
func (s *Stream) Consume(n int) {
	s.head = (s.head + n) % (2 * s.half)
	s.queued -= n
	s.freed += n
	s.messages.take(n)
	s.finish()
}

// Discard frees all unread bytes.
func (s *Stream) Discard() { s.Consume(s.queued) }

// finish counts the messages that are completely read.
func (s *Stream) finish() {
	for s.messages.n > 0 && s.messages.first() == 0 {
		s.messages.pop()
		s.consumed++
	}
}

// giveCredits makes the message with the peer's new credit limit, and grants half of the ring if it is free.
func (s *Stream) giveCredits() (c Control) {
	c.Word = Word(OpSGL, uint32(s.consumed+uint16(s.rq)))
	s.update = s.consumed + uint16(s.rq/2)
	if s.freed < s.half {
		return c
	}
	e := SGE{s.ring.Addr + uint64(s.freeAt), s.ring.Key, uint32(s.half)}
	c.Remote = SGE{Addr: s.peer.Table.Addr + uint64(s.remoteEntry)*SGELen, Key: s.peer.Table.Key}
	c.N = copy(c.Payload[:], e.Append(s.entry[:0], s.peer.Order()))
	s.published += s.half
	s.freed -= s.half
	s.freeAt = s.half - s.freeAt
	s.remoteEntry = (s.remoteEntry + 1) % int(s.peer.Table.Length)
	return c
}

// lengths is a queue of the unread lengths of messages.
type lengths struct {
	ring []uint32
	head int
	n    int
}

func (q *lengths) cap() int   { return len(q.ring) }
func (q *lengths) make(n int) { q.ring = make([]uint32, n) }
func (q *lengths) push(v int) {
	q.ring[(q.head+q.n)%len(q.ring)] = uint32(v)
	q.n++
}
func (q *lengths) first() int { return int(q.ring[q.head]) }
func (q *lengths) pop() {
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}

// take reads n bytes. Completely read messages remain with length 0.
func (q *lengths) take(n int) {
	for i := q.head; n > 0; i = (i + 1) % len(q.ring) {
		k := min(n, int(q.ring[i]))
		q.ring[i] -= uint32(k)
		n -= k
	}
}
