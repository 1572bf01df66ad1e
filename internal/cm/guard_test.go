package cm

import (
	"math/rand/v2"
	"testing"
	"time"

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
