package rs

import "fmt"

// receiver is the receiving half of a stream: the ring that the peer fills.
type receiver struct {
	rq        int
	half      int // bytes of half of the ring
	ring      SGE // as the peer is told it
	table     []byte
	head      int // offset of the first byte that was not read yet
	queued    int // bytes to be read
	published int // bytes that the peer may still write
	freed     int // bytes that were read and not handed out again
	freeAt    int // offset of the half that is handed out next

	messages    lengths
	consumed    uint16 // messages that were read to their end
	update      uint16 // consumed that makes an update of credits due
	remoteEntry int    // of the peer's table, written to next
}

// Span is a piece of a buffer.
type Span struct{ Off, Len int }

// onData takes a DATA message.
func (s *Stream) onData(n int) error {
	switch {
	case s.messages.n == s.rq:
		return fmt.Errorf("a message more than the %d that it has credits for", s.rq)
	case n > s.published:
		return fmt.Errorf("a message of %d bytes, where %d are free", n, s.published)
	case n > 2*s.half-s.tail():
		return fmt.Errorf("a message of %d bytes goes beyond the end of the buffer", n)
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

// tail is the offset at which the peer's next message lands.
func (s *Stream) tail() int { return (s.head + s.queued) % (2 * s.half) }

// Readable is how many bytes can be read.
func (s *Stream) Readable() int { return s.queued }

// Peek is where the bytes from the skip-th one on are that can be read, at most max of them and as many as lie together.
func (s *Stream) Peek(skip, max int) Span {
	off := (s.head + skip) % (2 * s.half)
	return Span{off, min(max, s.queued-skip, 2*s.half-off)}
}

// Consume gives the first n of the readable bytes free.
func (s *Stream) Consume(n int) {
	s.head = (s.head + n) % (2 * s.half)
	s.queued -= n
	s.freed += n
	s.messages.take(n)
	s.finish()
}

// Discard gives everything free.
func (s *Stream) Discard() { s.Consume(s.queued) }

// finish counts the messages of which nothing is left.
func (s *Stream) finish() {
	for s.messages.n > 0 && s.messages.first() == 0 {
		s.messages.pop()
		s.consumed++
	}
}

// giveCredits makes the message that tells the peer its new limit, and hands out half of the ring if it is free.
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

// lengths is a queue of the lengths of messages, as far as they were not read yet.
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

// take reads n bytes. Messages that are read to their end stay, with nothing left.
func (q *lengths) take(n int) {
	for i := q.head; n > 0; i = (i + 1) % len(q.ring) {
		k := min(n, int(q.ring[i]))
		q.ring[i] -= uint32(k)
		n -= k
	}
}
