package cm

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// TestGuard: of messages about connections that do not exist 256 pass at once and then 1,000 per second. Those about
// connections that exist pass meanwhile, and so do requests and messages for other processes.
func TestGuard(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := New(Config{Seed: [32]byte{byte(seed)}, IDPrefix: 0x35000000, IDBits: 8})
		now := rng.Int64N(1 << 40)
		m.guard.now = func() int64 { return now }
		var ids []*ID
		for range 100 {
			id := m.NewID(nil)
			if !m.enroll(id) {
				t.Fatal("no room")
			}
			id.remoteGUID, id.remoteID = rng.Uint64(), rng.Uint32()
			m.addPeer(id)
			ids = append(ids, id)
		}
		var mad [wire.MADLen]byte
		kinds := []cmmsg.Kind{cmmsg.KindREP, cmmsg.KindRTU, cmmsg.KindDREQ, cmmsg.KindDREP, cmmsg.KindREJ, cmmsg.KindMRA,
			cmmsg.KindLAP, cmmsg.KindAPR, cmmsg.KindSIDRREP}
		about := func(id uint32) bool {
			k := kinds[rng.IntN(len(kinds))]
			msg := cmmsg.Make(mad[:], k, rng.Uint64())
			be.PutUint32(msg.Data(), id)
			if k != cmmsg.KindSIDRREP {
				be.PutUint32(msg.Data(), rng.Uint32())
				be.PutUint32(msg.Data()[4:], id)
			}
			return !m.Guard().Drop(mad[:])
		}
		unknown := func() (passed int) {
			for n := 0; n < 3000; {
				id := m.cfg.IDPrefix | rng.Uint32()>>8
				if m.guard.own(id).Load() > 0 {
					continue // the hash of a known ID
				}
				n++
				if about(id) {
					passed++
				}
			}
			return passed
		}
		if n := unknown(); n != 256 {
			t.Errorf("seed %d: %d passed at once, want 256", seed, n)
		}
		now += int64(100 * time.Millisecond)
		if n := unknown(); n != 100 {
			t.Errorf("seed %d: %d passed 100 ms later, want 100", seed, n)
		}
		for i, id := range ids {
			if !about(id.localID) {
				t.Errorf("seed %d: a message about connection %d was dropped", seed, i)
			}
			msg := cmmsg.Make(mad[:], cmmsg.KindREJ, 1)
			cmmsg.REJ(msg.Data()).Put(id.remoteID, m.cfg.IDPrefix|0x777, cmmsg.AboutOther, cmmsg.RejTimeout,
				be.AppendUint64(nil, id.remoteGUID))
			if m.Guard().Drop(mad[:]) {
				t.Errorf("seed %d: a time-out of the peer of connection %d was dropped", seed, i)
			}
		}
		if !about(0x36000000) {
			t.Errorf("seed %d: a message for another process was dropped", seed)
		}
		for _, k := range []cmmsg.Kind{cmmsg.KindREQ, cmmsg.KindSIDRREQ} {
			cmmsg.Make(mad[:], k, 1)
			if m.Guard().Drop(mad[:]) {
				t.Errorf("seed %d: a %v was dropped", seed, k)
			}
		}
		if mad[1] = 3; !m.Guard().Drop(mad[:]) {
			t.Errorf("seed %d: a datagram of another class passed without a token", seed)
		}
		for _, id := range ids {
			m.retire(id)
		}
		checkEmpty(t, m)
	}
}

// TestGuardAllocatesNothing: a stranger's datagram costs no memory.
func TestGuardAllocatesNothing(t *testing.T) {
	m := New(Config{})
	mad := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindDREQ, 1)
	if n := testing.AllocsPerRun(1000, func() { m.Guard().Drop(mad) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// source returns the count of a known source.
func (g *Guard) source(gid [16]byte, guid uint64) *atomic.Uint32 {
	return &g.sources[sourceHash(gid, guid)]
}

// requests is a source of requests for the guard.
type requests struct {
	mad [wire.MADLen]byte
	n   uint32
}

// from returns the next request of a node.
func (r *requests) from(a netip.Addr, guid uint64) []byte {
	r.n++
	msg := cmmsg.Make(r.mad[:], cmmsg.KindREQ, uint64(r.n))
	cmmsg.REQ(msg.Data()).Put(cmmsg.REQFields{LocalID: r.n, LocalGUID: guid, LocalQPN: r.n&0x7fffff<<1 | 1,
		Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(a), RemoteGID: cmmsg.GID(netip.MustParseAddr("10.0.0.1"))}})
	return r.mad[:]
}

// TestGuardInAFlood: while the machine drops requests because of a flood, 64 of unknown sources pass at once and then
// 1,000 per second, and so do repetitions of dropped ones, apart from them. All of known sources pass.
func TestGuardInAFlood(t *testing.T) {
	m := New(Config{Seed: [32]byte{8: 4}}) // with this key no two of the requests share an entry
	clock := int64(5 * time.Second)
	m.guard.now = func() int64 { return clock }
	g, r := m.Guard(), &requests{}
	stranger, known := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")
	passed := func(n int, mad func() []byte) (passed int) {
		for range n {
			if !g.Drop(mad()) {
				passed++
			}
		}
		return passed
	}
	unknown := func() []byte { return r.from(stranger, uint64(r.n)) }
	if n := passed(1000, unknown); n != 1000 {
		t.Errorf("%d of 1000 pass before the flood", n)
	}
	key := sourceKey(known, 9)
	g.know(key, true)
	g.flood(77*second, board.Connect) // the machine's clock is another one

	first := r.n
	if n := passed(300, unknown); n != 64 {
		t.Errorf("%d of 300 pass at the beginning of the flood, want 64", n)
	}
	if n := passed(1000, func() []byte { return r.from(netip.MustParseAddr("2001:db8::8"), 9) }); n != 1000 {
		t.Errorf("%d of 1000 requests of a known source pass", n)
	}
	flooded := func(after time.Duration, want int, what string, mad func() []byte) {
		t.Helper()
		clock += int64(after)
		g.flood(77*second+clock, board.Connect)
		if n := passed(200, mad); n != want {
			t.Errorf("%s: %d of 200 pass, want %d", what, n, want)
		}
	}
	later := func() []byte { return r.from(stranger, 1<<40|uint64(r.n)) }
	flooded(100*time.Millisecond, 64, "other requests later", later)
	r.n = first + 65
	flooded(400*time.Millisecond, 64, "repetitions", unknown)
	flooded(0, 64, "other requests at the same time", later)
	flooded(10*time.Millisecond, 10, "other requests 10 ms later", later)
	clock += int64(guardTime)
	if n := passed(1000, unknown); n != 1000 {
		t.Errorf("%d of 1000 pass after the flood", n)
	}
}

// TestFloodReachesTheGuard: the machine tells the guard of a flood and of the sources that it knows.
func TestFloodReachesTheGuard(t *testing.T) {
	s := newFloodTest(t, 0)
	if s.connect(honestAddr, 7, millisecond, s.pass) != 1 {
		t.Fatal("no connection")
	}
	key := sourceKey(honestAddr, s.guid)
	if s.m.guard.source(key.gid, key.guid).Load() != 1 {
		t.Error("the guard does not know the source of a connection")
	}
	dropped := func() bool { return s.m.guard.flooded(board.Connect) }
	if dropped() {
		t.Error("a flood without requests")
	}
	s.forged(5000, 10000, spread())
	if !dropped() {
		t.Error("the guard does not know of the flood")
	}
	s.end()
}
