package engine

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// A program that polls once per millisecond polls seldom, one that polls all the time does not. A change is seen after
// one window.
func TestProgramsThatPollSeldomAreRecognised(t *testing.T) {
	var p pace
	now := int64(0)
	polls := func(n int, interval int64) {
		for range n {
			now += interval
			p.note(1)
		}
	}
	polls(10, 1_000_000)
	if !p.rare(now) {
		t.Error("a poll per millisecond is not seldom")
	}
	polls(int(paceWindow/pollNote)-1, pollNote)
	if !p.rare(now) {
		t.Error("it decides before the end of the window")
	}
	polls(1, pollNote)
	if p.rare(now) {
		t.Error("all the time is seldom")
	}
	polls(4, 1_000_000)
	if !p.rare(now) {
		t.Error("a poll per millisecond is not seldom after polls all the time")
	}
}

// A program polls also while a poll works for long.
func TestLongPollsAreNotSeldom(t *testing.T) {
	var clock atomic.Int64
	e := testEngine(t, 1, Config{Now: func() int64 { return clock.Add(50 * pollNote) }})
	cq := e.NewCQ(16, 1, silent{})
	qp := newQP(t, e, cq, silent{})
	defer qp.Destroy()
	s := e.shards[0]
	before := s.bg.pace.notes.Load()
	for range 10 {
		s.poll(e.now(), true)
	}
	if n := s.bg.pace.notes.Load() - before; n < 10*50 {
		t.Errorf("%d notes of 10 polls that took 50 intervals each", n)
	}
}

// The requests of a peer do not wait for the next poll of a program that polls once per millisecond.
func TestPacketsDoNotWaitForSeldomPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		clock := func() int64 { return int64(time.Since(start)) }
		fabric := mem.NewFabric(mem.Config{Now: clock})
		addrs := []netip.Addr{localAddr, localAddr.Next()}
		engines := make([]*Engine, len(addrs))
		cqs := make([]*CQ, len(addrs))
		qps := make([]*QP, len(addrs))
		for i, a := range addrs {
			engines[i] = New(Config{Now: clock, Open: func() (link.Link, error) {
				return fabric.Open([]netip.Addr{a}, 1)
			}})
			defer engines[i].Close()
			cqs[i] = engines[i].NewCQ(16, 0, silent{})
			qps[i] = newQP(t, engines[i], cqs[i], silent{})
			defer qps[i].Destroy()
		}
		for i, qp := range qps {
			connectTo(t, qp, link.Path{Src: addrs[i], Dst: addrs[1-i]}, qps[1-i].Num(), 14)
		}
		end := make(chan struct{})
		go func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(time.Millisecond):
					_, _ = cqs[1].Poll(1, func(int, *transport.CQE) {})
				}
			}
		}()
		defer close(end)
		time.Sleep(20*time.Millisecond + 300*time.Microsecond)
		for range 20 {
			began := time.Now()
			if err := postWrite(qps[0], 0); err != nil {
				t.Fatal(err)
			}
			for n := 0; n == 0; {
				time.Sleep(10 * time.Microsecond)
				n, _ = cqs[0].Poll(1, func(int, *transport.CQE) {})
			}
			if d := time.Since(began); d > 50*time.Microsecond {
				t.Errorf("a WRITE took %v", d)
			}
			time.Sleep(900 * time.Microsecond)
		}
	})
}
