package endpoint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// busy is a process with which data is exchanged until it is killed or the test ends.
type busy struct {
	*Pair
	rounds atomic.Int64
	stop   atomic.Bool
	done   chan error
}

const busyBytes = 40000 // several packets, the last one shorter

func startBusy(t *testing.T, addr netip.Addr) *busy {
	t.Helper()
	p, err := StartAt(addr)
	if err != nil {
		t.Fatal(err)
	}
	b := &busy{Pair: p, done: make(chan error, 1)}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Connect(Options{QPs: 2, Depth: 8, Bytes: 2 * busyBytes}); err != nil {
		t.Fatal(err)
	}
	go func() { b.done <- b.run() }()
	return b
}

// run repeatedly writes to the other process and reads the data back.
func (b *busy) run() error {
	out, back := b.End.Buf[:busyBytes], b.End.Buf[busyBytes:]
	for seed := uint64(1); !b.stop.Load(); seed++ {
		Fill(out, seed)
		if _, err := b.Do(b.Remote(verbs.WRRDMAWrite, 0, 0, busyBytes)); err != nil {
			return err
		}
		if _, err := b.Do(b.Remote(verbs.WRRDMARead, busyBytes, 0, busyBytes)); err != nil {
			return err
		}
		if err := Check(back, seed); err != nil {
			return err
		}
		b.rounds.Add(1)
	}
	return nil
}

// goesOn waits until every process has completed further rounds.
func goesOn(t *testing.T, when string, all []*busy) {
	t.Helper()
	for i, b := range all {
		from := b.rounds.Load()
		for deadline := time.Now().Add(20 * time.Second); b.rounds.Load() < from+5; time.Sleep(time.Millisecond) {
			select {
			case err := <-b.done:
				t.Fatalf("%s: process %d of %d: %v", when, i+1, len(all), err)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: process %d of %d: no progress", when, i+1, len(all))
			}
		}
	}
}

// Processes that share an address are killed during traffic, including the first one, which opened the
// device. The remaining processes continue without errors, all QP numbers are distinct, and new processes
// can join.
func TestProcessesShareADevice(t *testing.T) {
	for shm, addr := range map[string]string{"1": loopback.Addr(1), "0": loopback.Addr(2)} {
		t.Run("VERBENA_SHM="+shm, func(t *testing.T) {
			t.Setenv("VERBENA_SHM", shm)
			t.Setenv("VERBENA_DEVICES", "")
			at := netip.MustParseAddr(addr)
			var all, dead []*busy
			for range 4 {
				all = append(all, startBusy(t, at))
			}
			distinct(t, all)
			goesOn(t, "at the start", all)
			for _, which := range []string{"first", "last", "any"} {
				i := map[string]int{"first": 0, "last": len(all) - 1, "any": rand.IntN(len(all))}[which]
				victim := all[i]
				all = slices.Delete(all, i, i+1)
				victim.Kill()
				goesOn(t, "after killing the "+which+" process", all)
				dead = append(dead, victim)
				all = append(all, startBusy(t, at))
				distinct(t, all)
				goesOn(t, "after a new process joined", all)
			}
			for _, b := range dead {
				if err := <-b.done; err == nil {
					t.Error("requests to a dead process succeed")
				}
			}
			for _, b := range all {
				b.stop.Store(true)
				if err := <-b.done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// distinct fails the test if two QPs have the same number.
func distinct(t *testing.T, all []*busy) {
	t.Helper()
	seen := map[uint32]string{}
	for i, b := range all {
		ours, err := b.End.Infos()
		if err != nil {
			t.Fatal(err)
		}
		for side, infos := range map[string][]verbs.QPInfo{"ours": ours, "theirs": b.Peer.QPs} {
			for _, q := range infos {
				owner := fmt.Sprintf("%s of process %d", side, i)
				if seen[q.QPN] != "" {
					t.Errorf("QP number 0x%x: %s and %s", q.QPN, seen[q.QPN], owner)
				}
				seen[q.QPN] = owner
			}
		}
	}
}

// Connections to each of several listening processes succeed while the processes that own QP 1 are killed.
func TestConnectionsWhileLeadersDie(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "")
	at := netip.MustParseAddr(loopback.Addr(3))
	listen := func() (*Pair, string) {
		t.Helper()
		p, err := StartAt(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
		var to netip.AddrPort
		if err := p.Call("Accept", None{}, &to); err != nil {
			t.Fatal(err)
		}
		return p, netip.AddrPortFrom(at, to.Port()).String()
	}
	dial := func(when, to string) {
		t.Helper()
		c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		id, err := rdmacm.Dial(c, to, &rdmacm.Options{QP: CMQueues})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := id.Disconnect(c); err != nil {
			t.Errorf("%s: disconnect: %v", when, err)
		}
		_ = id.Close()
	}
	leader, toLeader := listen()
	stays, to := listen()
	for range 3 {
		dial("to the owner of QP 1", toLeader)
		dial("while another process owns QP 1", to)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			leader.Kill()
		}()
		dial("while the owner of QP 1 dies", to)
		<-killed
		dial("after its death", to)
		// The next owner is the remaining process or this one.
		leader, toLeader = stays, to
		stays, to = listen()
	}
	dial("at the end", to)
}
