package cm

import (
	"sync/atomic"
	"time"

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

	sources  [sourcesLen]atomic.Uint32
	floodEnd atomic.Int64 // requests are limited until then
	ahead    atomic.Int64 // time of the machine minus that of the guard
	requests bucket
	repeats  bucket // requests that were dropped before
	refused  *refusals
}

const (
	guardLen   = 1 << 15
	sourcesLen = 1 << 14
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
	case cmmsg.KindREQ:
		return g.dropREQ(cmmsg.REQ(msg.Data()))
	case cmmsg.KindSIDRREQ:
		return false
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

// dropREQ reports whether a request is to be dropped, because a listener is flooded.
func (g *Guard) dropREQ(r cmmsg.REQ) bool {
	now := g.now()
	if now >= g.floodEnd.Load() || g.source(sourceOf(r.Primary().LocalGID()), r.LocalGUID()).Load() > 0 {
		return false
	}
	b, machine := &g.requests, now+g.ahead.Load()
	if g.refused.has(machine, r) {
		b = &g.repeats
	}
	if b.pass(now, guardRequests, guardRequestBurst) {
		return false
	}
	g.refused.add(machine, r)
	return true
}

// flood notes that a listener of the machine is flooded at the machine's time now.
func (g *Guard) flood(now int64) {
	own := g.now()
	g.ahead.Store(now - own)
	g.floodEnd.Store(own + guardTime)
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

// source returns the count of a known source.
func (g *Guard) source(gid [16]byte, guid uint64) *atomic.Uint32 {
	h := (guid ^ be.Uint64(gid[:8])) * 0x9E3779B97F4A7C15
	h = (h ^ h>>29 ^ be.Uint64(gid[8:])) * 0x9E3779B97F4A7C15
	return &g.sources[h>>50]
}

// Guard returns the guard of the machine.
func (m *Machine) Guard() *Guard { return m.guard }
