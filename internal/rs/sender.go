package rs

// sender is the sending half of a stream: the writable memory of the peer, and the send buffer.
type sender struct {
	peer      ConnData
	seq       uint16 // DATA and IOMAP_SGL messages sent
	limit     uint16 // value of seq at which the credits are used up
	target    [TableEntries]SGE
	current   int // entry of target in use
	nextEntry int // entry of the table that the peer writes next, initially the second

	slots    int // free entries of the send queue, without those for control messages
	ctrl     int // control messages in flight
	inFlight int // other messages in flight

	bufLen  int
	bufHead int // offset of the oldest byte in use
	bufUsed int

	maps    []IOMap // in the peer's memory
	pending []mapUpdate
}

// mapUpdate is an IO map to be sent to the peer.
type mapUpdate struct {
	index int
	m     IOMap
}

// Data is a DATA message to post: a WRITE with immediate of N bytes.
type Data struct {
	Word   uint32
	Remote SGE // Addr and Key
	N      int
	// Buf is the place of the bytes in the send buffer: one range, or two if it wraps around. If both are empty the
	// bytes are sent inline.
	Buf [2]Span
}

// Buffered returns the number of bytes of the send buffer that the message uses.
func (d *Data) Buffered() int { return d.Buf[0].Len + d.Buf[1].Len }

// CanSend reports whether a DATA message can be sent now: there are credits, memory of the peer, and room in the
// queue and in the buffer.
func (s *Stream) CanSend() bool {
	return s.seq != s.limit && s.slots > 0 && s.target[s.current].Length > 0 && s.bufUsed < s.bufLen
}

// NextData returns the next DATA message of at most n bytes, and at most size, if one can be sent. n is positive.
// The message counts as sent: the caller fills the buffer and posts it, before any later message.
func (s *Stream) NextData(n, size, inline int) (d Data, ok bool) {
	t := &s.target[s.current]
	if !s.open || s.disconnected || s.writeShut || s.seq == s.limit || s.slots == 0 || t.Length == 0 {
		return d, false
	}
	n = atMost(min(n, size, MaxData), uint64(t.Length))
	if n > inline {
		if n = min(n, s.bufLen-s.bufUsed); n == 0 {
			return d, false
		}
		d.Buf = s.allocate(n)
	}
	d.Word, d.N, d.Remote = Word(OpData, uint32(n)), n, *t
	t.Addr += uint64(n)
	if t.Length -= uint32(n); t.Length == 0 {
		s.current = (s.current + 1) % TableEntries
	}
	s.post()
	s.seq++
	return d, true
}

// atMost returns the smaller of n and room. room may exceed an int.
func atMost(n int, room uint64) int {
	if uint64(n) > room {
		return int(room)
	}
	return n
}

func (s *Stream) post() {
	s.slots--
	s.inFlight++
}

// allocate takes n bytes of the send buffer, which the caller knows to be free.
func (s *Stream) allocate(n int) (b [2]Span) {
	at := (s.bufHead + s.bufUsed) % s.bufLen
	s.bufUsed += n
	b[0] = Span{at, min(n, s.bufLen-at)}
	b[1] = Span{0, n - b[0].Len}
	return b
}

// OnSent returns the resources of a completed message: its entry of the queue, and buffered bytes of the send
// buffer. Messages complete in the order of NextData.
func (s *Stream) OnSent(buffered int) {
	s.slots++
	s.inFlight--
	s.bufUsed -= buffered
	if s.bufHead += buffered; s.bufHead >= s.bufLen {
		s.bufHead -= s.bufLen
	}
}
