package cm

import (
	"net/netip"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A handshake of the passive side is half-open from the REP to the peer's answer. Source addresses of UDP can be
// forged: anybody can begin handshakes and never finish them. These rules keep such handshakes from displacing
// others:
//
//   - A half-open handshake ends 10 s after its first REP, or 10 s after the time that the last MRA asked for, whatever
//     times the REQ has.
//   - A source is an address and the GUID of a node, which a sender of forged requests does not see. A source is
//     known when it has answered: its RTU, REP or MRA has a communication ID that was sent to that address only.
//     Known and unknown sources have separate limits.
//   - At a limit a new request takes the place of the oldest half-open handshake, of the source that has more than
//     its share if there is one. A handshake younger than the grace time keeps its place; the new request is dropped
//     then, and the peer repeats it.
//   - While unknown sources flood a listener, their requests are paced: the program spends at most a part of its time
//     on them. Repetitions of dropped requests have a separate pace, because a flood with forged sources seldom
//     repeats a request.

const (
	// halfOpenTime is the time for the answer to a REP.
	halfOpenTime = 10_000 * millisecond

	// maxREPInterval limits the time between REPs: there are several within halfOpenTime.
	maxREPInterval = millisecond << (DefaultTimeout - 8)

	// unknownREPs limits the repetitions of a REP to an unknown source: the address may be forged, and its owner
	// gets them.
	unknownREPs = 3

	// The grace time is shortGrace if many unknown sources have half-open handshakes, else longGrace: a busy
	// client may begin thousands of handshakes before it answers the first.
	shortGrace, longGrace = 250 * millisecond, 2000 * millisecond

	// With at least manyUnknown unknown sources the grace time is short. With at least floodFrom half-open
	// handshakes, of which the oldest is older than the grace time, a listener is flooded.
	manyUnknown, floodFrom = 16, 64

	// 1/share is the part of a limit that one source may use.
	share = 4

	// In a flood the time between two requests of unknown sources is paceFactor times the time that the program
	// takes for a request, limited to minService to maxService. After a pause paceBurst requests are taken at
	// once.
	paceFactor             = 8
	minService, maxService = millisecond / 20, millisecond
	paceBurst              = 32

	// floodWaiting limits the requests that wait for the program in a flood, so that known sources wait only briefly.
	floodWaiting = 8

	// maxKnown limits the known sources.
	maxKnown = 4096
)

// DefaultMaxHalfOpen is ListenParams.MaxHalfOpen if that is zero.
const DefaultMaxHalfOpen = 1 << 14

// sourceClass is whether the source of a request was known when it came.
type sourceClass uint8

const (
	unknownSource sourceClass = iota
	knownSource
)

// source is an address of link.SourceOf and a node's GUID that has half-open handshakes or is known.
type source struct {
	key   peerKey
	known bool
	half  idList
}

func sourceKey(a netip.Addr, guid uint64) peerKey {
	return peerKey{gid: sourceOf(cmmsg.GID(a)), guid: guid}
}

// sourceOf returns the GID of link.SourceOf.
func sourceOf(gid [16]byte) [16]byte {
	return cmmsg.GID(link.SourceOf(netip.AddrFrom16(gid)))
}

// learnSource makes the source of id's peer known. The peer has answered.
func (m *Machine) learnSource(id *ID) {
	s := m.source(sourceKey(id.path.Dst, id.remoteGUID))
	if s.known {
		return
	}
	if m.known >= maxKnown {
		m.forgetSource()
	}
	s.known = true
	m.known++
	m.guard.know(s.key, true)
	for id := s.half.first; id != nil; id = id.links[inSource].next {
		if l := id.listener; id.class == unknownSource {
			l.half[unknownSource].remove(id, inListener)
			id.class = knownSource
			l.half[knownSource].push(id, inListener)
		}
	}
}

// forgetSource makes one of the known sources unknown.
func (m *Machine) forgetSource() {
	for _, s := range m.sources {
		if s.known {
			s.known = false
			m.known--
			m.guard.know(s.key, false)
			m.dropSource(s)
			return
		}
	}
}

func (m *Machine) source(key peerKey) *source {
	s := m.sources[key]
	if s == nil {
		s = &source{key: key}
		m.sources[key] = s
	}
	return s
}

func (m *Machine) dropSource(s *source) {
	if !s.known && s.half.n == 0 {
		delete(m.sources, s.key)
	}
}

// grace is the time for which a half-open handshake keeps its place.
func (m *Machine) grace(k sourceClass) int64 {
	if k == unknownSource && len(m.sources)-m.known >= manyUnknown {
		return shortGrace
	}
	return longGrace
}

// classOf is the class of a request from a source. A known source with many old half-open handshakes counts as
// unknown: its address may be forged.
func (m *Machine) classOf(now int64, s *source) sourceClass {
	if s == nil || !s.known || s.half.n >= floodFrom && now-s.half.first.since > shortGrace {
		return unknownSource
	}
	return knownSource
}

// makeRoom reports whether l may take a request from src, and ends a half-open handshake if it needs the place.
func (m *Machine) makeRoom(now int64, l *Listener, src netip.Addr, msg cmmsg.Msg, out *Batch) (sourceClass, bool) {
	if l.p.Backlog.full() {
		m.Counters.BacklogFull++
		return 0, false
	}
	s := m.sources[sourceKey(src, cmmsg.REQ(msg.Data()).LocalGUID())]
	k := m.classOf(now, s)
	half, grace, victim := &l.half[k], m.grace(k), l.half[k].first
	greedy := m.top
	if greedy.half.n < max(2, l.p.MaxHalfOpen/share) || greedy.half.first.listener != l || greedy.half.first.class != k {
		greedy = nil
	}
	if (greedy == nil || greedy == s) && k == unknownSource && half.n >= floodFrom && now-victim.since > grace &&
		!m.inTurn(now, l, msg) {
		m.Counters.Flooded++
		m.guard.flood(now, board.Connect)
		return k, false
	}
	if half.n+l.undecided[k] < l.p.MaxHalfOpen {
		return k, true
	}
	if greedy != nil {
		victim = greedy.half.first
		if greedy != s {
			grace = shortGrace
		}
	}
	if victim == nil || now-victim.since <= grace {
		m.Counters.Flooded++
		return k, false
	}
	m.evict(victim, out)
	return k, true
}

// inTurn reports whether the request of an unknown source is taken in a flood.
func (m *Machine) inTurn(now int64, l *Listener, msg cmmsg.Msg) bool {
	h := m.refused.hash(msg)
	again := m.refused.has(now, h)
	gap := paceFactor * min(max(l.service, minService), maxService)
	turn := &l.turn[0]
	if again {
		turn = &l.turn[1]
	}
	*turn = max(*turn, now-paceBurst*gap)
	if *turn > now || l.p.Backlog.Used() >= floodWaiting {
		m.refused.add(now, h)
		return false
	}
	*turn += gap
	return true
}

// evict ends a half-open handshake in favour of another. It sends nothing: if the peer has not got the REP it repeats
// the REQ; if it has, its RTU is answered with a REJ.
func (m *Machine) evict(id *ID, out *Batch) {
	m.Counters.Evicted++
	if m.evicted == nil {
		m.evicted = new([evictedLen]uint32)
	}
	m.evicted[id.localID%evictedLen] = id.localID
	m.retire(id)
	out.report(EventREPTimeout, id, nil)
}

// evictedLen is about the number of evicted handshakes that wasEvicted finds.
const evictedLen = 4096

// wasEvicted reports whether a handshake was evicted a short time ago.
func (m *Machine) wasEvicted(localID uint32) bool {
	return m.evicted != nil && m.evicted[localID%evictedLen] == localID && localID != 0
}

// enterHalfOpen counts a handshake whose REP was sent.
func (m *Machine) enterHalfOpen(now int64, id *ID) {
	id.decided()
	l := id.listener
	l.service += (min(now-id.since, maxService) - l.service) / 8
	l.half[id.class].push(id, inListener)
	id.since, id.until, id.halfOpen = now, now+halfOpenTime, true
	s := m.source(sourceKey(id.path.Dst, id.remoteGUID))
	id.source = s
	s.half.push(id, inSource)
	if s.half.n > m.top.half.n {
		m.top = s
	}
}

// leaveHalfOpen removes a handshake that is not half-open any more from the list and the counts.
func (m *Machine) leaveHalfOpen(id *ID) {
	if !id.halfOpen {
		return
	}
	id.halfOpen = false
	id.listener.half[id.class].remove(id, inListener)
	id.source.half.remove(id, inSource)
	m.dropSource(id.source)
	id.source = nil
}

// decided ends the wait for the program's answer: it has answered, or the request is over.
func (id *ID) decided() {
	if id.undecided {
		id.undecided = false
		id.listener.undecided[id.class]--
	}
}

// The lists of IDs: two for half-open handshakes, and one for timewait.
const (
	inListener = iota
	inSource
	inTimewait = inListener
)

// idList is a list of IDs, the oldest first.
type idList struct {
	first, last *ID
	n           int
}

// links are an ID's neighbours in a list.
type links struct{ prev, next *ID }

func (t *idList) push(id *ID, in int) {
	id.links[in] = links{prev: t.last}
	if t.last == nil {
		t.first = id
	} else {
		t.last.links[in].next = id
	}
	t.last = id
	t.n++
}

func (t *idList) remove(id *ID, in int) {
	l := id.links[in]
	if l.prev == nil {
		t.first = l.next
	} else {
		l.prev.links[in].next = l.next
	}
	if l.next == nil {
		t.last = l.prev
	} else {
		l.next.links[in].prev = l.prev
	}
	id.links[in] = links{}
	t.n--
}

// refusals are the requests that were dropped in a flood, each in 32 bits: 20 of a hash, and the time. A newer
// request may overwrite an older one. They are safe for concurrent use.
type refusals struct {
	key   uint64
	table atomic.Pointer[[refusalsLen]atomic.Uint32] // made with the first
}

const (
	refusalsLen  = 1 << 18
	refusalTick  = 100 * millisecond
	refusalTicks = 1 << 12
	refusalMin   = 3 * refusalTick   // a request that comes again sooner is not a peer's repetition
	refusalMax   = 300 * refusalTick // nor one that comes later
)

// hash returns the hash of a request. That of a repetition is the same.
func (f *refusals) hash(msg cmmsg.Msg) uint64 {
	h := f.key
	mix := func(x uint64) {
		h = (h ^ x) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	if msg.Kind() == cmmsg.KindSIDRREQ {
		r := cmmsg.SIDRREQ(msg.Data())
		mix(uint64(r.RequestID()))
		mix(msg.TID())
		for p := r.Private()[:cmmsg.IPHeaderLen]; len(p) >= 8; p = p[8:] { // the sender's address, if it is there
			mix(be.Uint64(p))
		}
		return h
	}
	r := cmmsg.REQ(msg.Data())
	gid := r.Primary().LocalGID()
	mix(be.Uint64(gid[:8]))
	mix(be.Uint64(gid[8:]))
	mix(r.LocalGUID())
	mix(uint64(r.LocalID())<<32 | uint64(r.LocalQPN()))
	return h
}

// at returns the index of a request's entry and its tag, the upper 20 bits of the entry.
func (f *refusals) at(h uint64) (i int, tag uint32) {
	return int(h % refusalsLen), uint32(h>>44) | 1
}

// age returns how long ago an entry was made.
func (f *refusals) age(now int64, entry uint32) int64 {
	return int64((uint32(now/refusalTick)-entry)%refusalTicks) * refusalTick
}

func (f *refusals) add(now int64, h uint64) {
	t := f.table.Load()
	if t == nil {
		f.table.CompareAndSwap(nil, new([refusalsLen]atomic.Uint32))
		t = f.table.Load()
	}
	i, tag := f.at(h)
	if old := t[i].Load(); old>>12 == tag && f.age(now, old) < refusalMax {
		return // the entry keeps the time of the first drop
	}
	t[i].Store(tag<<12 | uint32(now/refusalTick)%refusalTicks)
}

// has reports whether a request is a peer's repetition of one that was dropped.
func (f *refusals) has(now int64, h uint64) bool {
	t := f.table.Load()
	if t == nil {
		return false
	}
	i, tag := f.at(h)
	old := t[i].Load()
	age := f.age(now, old)
	return old>>12 == tag && age >= refusalMin && age <= refusalMax
}
