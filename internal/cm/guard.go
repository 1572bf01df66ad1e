package cm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A Guard recognises messages that need not reach the machine, before they cost more than a look. It limits the rate
// of messages about connections that do not exist, and, while a listener is flooded, the rate of requests of unknown
// sources. It is safe for concurrent use with the machine and takes no lock.
//
// It counts the machine's communication IDs and its known sources by a hash, so it takes some unknown ones for known: a
// part of about their number divided by guardLen, or by sourcesLen.
type Guard struct {
	prefix uint32 // the upper bits of own IDs
	shift  int    // and the number of the other bits
	now    func() int64
	known  [guardLen]atomic.Uint32
	stray  bucket // messages about connections that do not exist

	sources [sourcesLen]atomic.Uint32
	ahead   atomic.Int64 // time of the machine minus that of the guard
	gates   [board.Kinds]gate
	refused *refusals

	boardsMu sync.Mutex
	// +checklocks:boardsMu
	boards []*board.Board // have what others must know of sources and gates
}

const (
	guardLen   = 1 << 15
	sourcesLen = board.Sources
)

// Rates and limits of a flood.
const (
	// guardRequests is the number of requests per second that pass in a flood, and as many repetitions. The machine
	// takes one per 0.4 to 8 ms: see minService.
	guardRequests, guardRequestBurst = 1000, 64

	// guardTime is how long a flood lasts for the guard after the machine has dropped a request.
	guardTime = 250 * millisecond
)

func newGuard(prefix uint32, bits int, refused *refusals) *Guard {
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	return &Guard{prefix: prefix, shift: 32 - bits, now: now, refused: refused}
}

// Drop reports whether a datagram is to be dropped. It passes datagrams of other processes that share the address.
func (g *Guard) Drop(mad []byte) bool {
	msg, err := cmmsg.Parse(mad)
	if err != nil {
		return !g.passStray()
	}
	id := uint32(0)
	switch msg.Kind() {
	case cmmsg.KindREQ, cmmsg.KindSIDRREQ:
		return g.dropRequest(msg)
	case cmmsg.KindSIDRREP:
		id = msg.LocalID()
	case cmmsg.KindREJ:
		if r := cmmsg.REJ(msg.Data()); r.Reason() == cmmsg.RejTimeout && len(r.ARI()) >= 8 &&
			g.peer(be.Uint64(r.ARI()), r.LocalID()).Load() > 0 {
			return false
		}
		fallthrough
	default:
		id = msg.RemoteID()
	}
	if uint64(id)>>g.shift != uint64(g.prefix)>>g.shift {
		return false
	}
	return g.own(id).Load() == 0 && !g.passStray()
}

// dropRequest reports whether a request is to be dropped, because a listener is flooded.
func (g *Guard) dropRequest(msg cmmsg.Msg) bool {
	now := g.now()
	gate := &g.gates[kindOf(msg)]
	if !gate.closed(now) {
		return false
	}
	if i, ok := sourceIndex(msg); ok && g.sources[i].Load() > 0 {
		return false
	}
	return gate.drop(now, g.ahead.Load(), g.refused, msg)
}

// kindOf returns the kind of a request.
func kindOf(msg cmmsg.Msg) board.Kind {
	if msg.Kind() == cmmsg.KindSIDRREQ {
		return board.Lookup
	}
	return board.Connect
}

// flood notes that a listener of the machine is flooded with requests of a kind at the machine's time now.
func (g *Guard) flood(now int64, k board.Kind) {
	own := g.now()
	g.ahead.Store(now - own)
	g.gates[k].close(own)
	g.boardsMu.Lock()
	defer g.boardsMu.Unlock()
	for _, b := range g.boards {
		b.Flood(k)
	}
}

// flooded reports whether requests of a kind are limited.
func (g *Guard) flooded(k board.Kind) bool { return g.gates[k].closed(g.now()) }

// Show implements link.Screen.
func (g *Guard) Show(boards []*board.Board) {
	g.boardsMu.Lock()
	defer g.boardsMu.Unlock()
	g.boards = boards
	for _, b := range boards {
		for i := range g.sources {
			b.Know(uint32(i), g.sources[i].Load() > 0)
		}
	}
}

// know counts a source that is known now, or not any more.
func (g *Guard) know(k peerKey, known bool) {
	i := sourceHash(k.gid, k.guid)
	g.boardsMu.Lock()
	defer g.boardsMu.Unlock()
	n := g.sources[i].Load() - 1
	if known {
		n += 2
	}
	g.sources[i].Store(n)
	for _, b := range g.boards {
		b.Know(i, n > 0)
	}
}

// passStray takes a token for a message about a connection that does not exist. The rate is that of answers to them.
func (g *Guard) passStray() bool { return g.stray.pass(g.now(), strayAnswers, strayAnswerBurst) }

// A bucket is a token bucket.
type bucket struct {
	full atomic.Int64 // when it is full again
}

// pass takes a token, and reports whether there was one.
func (b *bucket) pass(now, perSecond, burst int64) bool {
	each := int64(time.Second) / perSecond
	for {
		full := b.full.Load()
		next := max(full, now)
		if next-now > (burst-1)*each {
			return false
		}
		if b.full.CompareAndSwap(full, next+each) {
			return true
		}
	}
}

// own and peer return the counts of a communication ID of ours, and of one of a peer's node.
func (g *Guard) own(id uint32) *atomic.Uint32 { return &g.known[id*0x9E3779B1>>17] }

func (g *Guard) peer(guid uint64, id uint32) *atomic.Uint32 {
	return &g.known[(guid^uint64(id)<<32^uint64(id))*0x9E3779B97F4A7C15>>49]
}

// sourceIndex returns the hash of the source of a request; false if its sources are not known to anybody.
func sourceIndex(msg cmmsg.Msg) (uint32, bool) {
	if msg.Kind() != cmmsg.KindREQ {
		return 0, false
	}
	r := cmmsg.REQ(msg.Data())
	return sourceHash(sourceOf(r.Primary().LocalGID()), r.LocalGUID()), true
}

func sourceHash(gid [16]byte, guid uint64) uint32 {
	h := (guid ^ be.Uint64(gid[:8])) * 0x9E3779B97F4A7C15
	h = (h ^ h>>29 ^ be.Uint64(gid[8:])) * 0x9E3779B97F4A7C15
	return uint32(h >> 50)
}

// Guard returns the guard of the machine.
func (m *Machine) Guard() *Guard { return m.guard }
