package cm

import (
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A Guard recognises messages about connections that do not exist, before they cost more than a look: it limits the
// rate of those that reach the machine, which answers some of them. It is safe for concurrent use with the machine
// and takes no lock.
//
// It counts the machine's communication IDs by a hash, so it takes some unknown IDs for known ones: a part of about
// the number of IDs divided by guardLen.
type Guard struct {
	prefix uint32 // the upper bits of own IDs
	shift  int    // and the number of the other bits
	now    func() int64
	known  [guardLen]atomic.Uint32
	full   atomic.Int64 // when the token bucket is full again
}

const guardLen = 1 << 15

func newGuard(prefix uint32, bits int) *Guard {
	start := time.Now()
	return &Guard{prefix: prefix, shift: 32 - bits, now: func() int64 { return int64(time.Since(start)) }}
}

// Drop reports whether a datagram is to be dropped. It passes requests, and datagrams of other processes that share the
// address.
func (g *Guard) Drop(mad []byte) bool {
	msg, err := cmmsg.Parse(mad)
	if err != nil {
		return !g.pass()
	}
	id := uint32(0)
	switch msg.Kind() {
	case cmmsg.KindREQ, cmmsg.KindSIDRREQ:
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
	return g.own(id).Load() == 0 && !g.pass()
}

// pass takes a token, and reports whether there was one. The rate is that of answers to such messages.
func (g *Guard) pass() bool {
	const each = int64(time.Second) / strayAnswers
	now := g.now()
	for {
		full := g.full.Load()
		next := max(full, now)
		if next-now > (strayAnswerBurst-1)*each {
			return false
		}
		if g.full.CompareAndSwap(full, next+each) {
			return true
		}
	}
}

// own and peer return the counts of a communication ID of ours, and of one of a peer's node.
func (g *Guard) own(id uint32) *atomic.Uint32 { return &g.known[id*0x9E3779B1>>17] }

func (g *Guard) peer(guid uint64, id uint32) *atomic.Uint32 {
	return &g.known[(guid^uint64(id)<<32^uint64(id))*0x9E3779B97F4A7C15>>49]
}

// Guard returns the guard of the machine.
func (m *Machine) Guard() *Guard { return m.guard }
