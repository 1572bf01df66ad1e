package rs

import "slices"

// MaxMaps returns the number of IO maps that the peer has room for; 0 if it does not support IO maps.
func (s *Stream) MaxMaps() int {
	if s.peer.Flags&FlagIOMap == 0 {
		return 0
	}
	return Unscale(s.peer.IOMaps)
}

// SetMap publishes an IO map to the peer, before the next data (W-RS-25). The index is below MaxMaps.
func (s *Stream) SetMap(index int, m IOMap) { s.pending = append(s.pending, mapUpdate{index, m}) }

// MapMessage is an IOMAP_SGL message to post: a WRITE with immediate of Payload to Remote.
type MapMessage struct {
	Word    uint32
	Remote  SGE // Addr and Key
	Payload [IOMapLen]byte
}

// MapsPending reports whether there are IO maps that were not sent to the peer yet.
func (s *Stream) MapsPending() bool { return len(s.pending) > 0 }

// NextMap returns the next IOMAP_SGL message to post. It costs a credit that is never returned (W-RS-22).
func (s *Stream) NextMap() (m MapMessage, ok bool) {
	if len(s.pending) == 0 || !s.open || s.disconnected || s.seq == s.limit || s.slots == 0 {
		return m, false
	}
	u := s.pending[0]
	s.pending = s.pending[1:]
	m.Word = Word(OpIOMap, uint32(u.index))
	at := uint64(s.peer.Table.Length)*SGELen + uint64(u.index)*IOMapLen
	m.Remote = SGE{Addr: s.peer.Table.Addr + at, Key: s.peer.Table.Key}
	copy(m.Payload[:], u.m.Append(s.entry[:0], s.peer.Order()))
	s.post()
	s.seq++
	return m, true
}

// NextWrite returns the next WRITE of at most n bytes to an offset in the peer's IO maps (W-RS-24). found is false
// if no map has the offset, ok if there is no room now.
func (s *Stream) NextWrite(n int, offset uint64, size, inline int) (d Data, found, ok bool) {
	m := s.findMap(offset)
	if m == nil {
		return d, false, false
	}
	skip := offset - m.Offset
	if !s.open || s.disconnected || s.writeShut || s.slots == 0 {
		return d, true, false
	}
	n = atMost(min(n, size, MaxData), uint64(m.Length)-skip)
	if n > inline {
		if n = min(n, s.bufLen-s.bufUsed); n == 0 {
			return d, true, false
		}
		d.Buf = s.allocate(n)
	}
	d.N, d.Remote = n, SGE{Addr: m.Addr + skip, Key: m.Key}
	s.post()
	return d, true, true
}

// CanPlace reports whether there may be room now for messages of IO maps: an entry of the queue, and a credit if a
// map is pending.
func (s *Stream) CanPlace() bool { return s.slots > 0 && (s.seq != s.limit || !s.MapsPending()) }

// findMap returns the peer's IO map that contains an offset.
func (s *Stream) findMap(offset uint64) *IOMap {
	for i := range s.maps {
		if m := &s.maps[i]; offset >= m.Offset && offset-m.Offset < uint64(m.Length) {
			return m
		}
	}
	return nil
}

// MapBudget returns how many IO maps may be published during the connection without using up the credits (W-RS-22).
func (s *Stream) MapBudget() int { return max(1, int(s.peer.Credits)/2) }

// DropMap removes an IO map that was not sent to the peer yet, and reports whether there was one.
func (s *Stream) DropMap(index int) bool {
	n := len(s.pending)
	s.pending = slices.DeleteFunc(s.pending, func(u mapUpdate) bool { return u.index == index })
	return len(s.pending) < n
}
