package soft_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// sleeper is an end with a completion channel.
type sleeper struct {
	*end
	ch *verbs.CompChannel
}

func newSleeper(tb testing.TB, e *end) *sleeper {
	s := &sleeper{ch: get(e.ctx.CreateCompChannel())(tb)}
	tb.Cleanup(func() { must(tb, s.ch.Close()) })
	own := *e
	own.cq = get(e.ctx.CreateCQ(64, &verbs.CQOptions{Channel: s.ch}))(tb)
	tb.Cleanup(func() { must(tb, own.cq.Close()) })
	s.end = &own
	return s
}

// wait blocks until the next completion event.
func (s *sleeper) wait() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cq := get(s.ch.GetEvent(ctx))(s.tb)
	cq.AckEvents(1)
}

// noEvent checks that there is no completion event.
func (s *sleeper) noEvent(why string) {
	s.tb.Helper()
	time.Sleep(5 * time.Millisecond)
	if _, err := s.ch.TryGetEvent(); !errors.Is(err, verbs.EAGAIN) {
		s.tb.Fatalf("an event although %s: %v", why, err)
	}
}

func TestV_NTF_03_ReceiveEndsAWait(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := newSleeper(t, ends[0]), newSleeper(t, ends[1])
		qa, qb := connect(a.end, b.end, verbs.QPTypeRC, nil)
		for range 20 {
			must(t, qb.PostRecv(recv(b.end, 1, 100)))
			must(t, b.cq.ReqNotify(false))
			must(t, a.cq.ReqNotify(false))
			must(t, qa.PostSend(send(a.end, 10)))
			b.wait()
			a.wait()
			a.good(1)
			b.good(1)
			// The polling in good must not end the next wait.
		}
		b.noEvent("nothing came")
	})
}

func TestV_NTF_04_SolicitedMessagesOnly(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], newSleeper(t, ends[1])
		qa, qb := connect(a, b.end, verbs.QPTypeRC, nil)
		must(t, qb.PostRecv(recv(b.end, 1, 100), recv(b.end, 2, 100), recv(b.end, 3, 100)))
		must(t, b.cq.ReqNotify(true))
		must(t, qa.PostSend(send(a, 10)))
		a.good(1)
		b.noEvent("the message was not solicited")
		wr := send(a, 10)
		wr.Flags |= verbs.SendSolicited
		must(t, qa.PostSend(wr))
		b.wait()
		a.good(1)
		b.good(2)
		must(t, b.cq.ReqNotify(true))
		must(t, qb.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // flushes the third receive
		b.wait()
		if wc := b.poll(1)[0]; wc.Status != verbs.WCWRFlushErr || wc.WRID != 3 {
			t.Errorf("flushed: %+v", wc)
		}
	})
}

// TestPassiveTargetNeedsNoCalls: a target of one-sided operations answers without any call of its program.
func TestPassiveTargetNeedsNoCalls(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		poll(t, b, 3*time.Millisecond) // it polls once, then never again
		for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
			must(t, qa.PostSend(verbs.SendWR{
				Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 100000)}, RemoteAddr: b.mr.Addr(),
				RKey: b.mr.RKey(),
			}))
			a.good(1)
		}
	})
}

func poll(t *testing.T, e *end, d time.Duration) {
	wcs := make([]verbs.WC, 1)
	for start := time.Now(); time.Since(start) < d; {
		get(e.cq.Poll(wcs))(t)
	}
}

// TestTimersNeedNoCalls: retransmission needs no poller.
func TestTimersNeedNoCalls(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := newSleeper(t, ends[0]), ends[1]
		qa, qb := connect(a.end, b, verbs.QPTypeRC, &verbs.ConnectOptions{RNRRetry: 7, MinRNRTimer: 14}) // 1.28 ms
		must(t, a.cq.ReqNotify(false))
		must(t, qa.PostSend(send(a.end, 10)))
		time.Sleep(10 * time.Millisecond) // several RNR NAKs
		must(t, qb.PostRecv(recv(b, 1, 10)))
		a.wait()
		a.good(1)
		qa, qb = connect(a.end, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 8}) // 1 ms
		must(t, qb.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))   // it does not answer
		must(t, a.cq.ReqNotify(false))
		must(t, qa.PostSend(send(a.end, 10)))
		a.wait()
		if wc := a.poll(1)[0]; wc.Status != verbs.WCRetryExcErr {
			t.Errorf("completion %+v", wc)
		}
	})
}

func TestV_AE_15_CommEst(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, nil)
		ia, ib := get(qa.LocalInfo())(t), get(qb.LocalInfo())(t)
		must(t, qa.Connect(ib, nil))
		toRTR(t, qb, ia)
		must(t, qb.PostRecv(recv(b, 1, 100)))
		must(t, qa.PostSend(send(a, 10)))
		if ev := nextEvent(t, b); ev.Type != verbs.EventCommEst || ev.QP != qb {
			t.Errorf("event %+v", ev)
		}
		a.good(1)
		b.good(1)
	})
}

func toRTR(t *testing.T, qp *verbs.QP, peer verbs.QPInfo) {
	t.Helper()
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: allAccess},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	must(t, qp.Modify(rtrAttr(peer), rtrMask))
}

const rtrMask = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
	verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer

func rtrAttr(peer verbs.QPInfo) *verbs.QPAttr {
	return &verbs.QPAttr{
		QPState: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPNum: peer.QPN, RQPSN: peer.PSN, MaxDestRdAtomic: 1,
		MinRNRTimer: 12,
		AHAttr: verbs.AHAttr{
			PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: peer.GID, SGIDIndex: 1, HopLimit: 64},
		},
	}
}

func nextEvent(t *testing.T, e *end) verbs.AsyncEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ev := get(e.ctx.GetAsyncEvent(ctx))(t)
	ev.Ack()
	return ev
}

func TestV_AE_16_SQDrained(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		sent := counter(a.dev, "sent_pkts")
		must(t, qa.PostSend(send(a, 10))) // waits for a receive
		waitFor(t, "start of the request", func() bool { return counter(a.dev, "sent_pkts") > sent })
		must(t, qa.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD, EnSQDAsyncNotify: true},
			verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
		if attr, _, err := qa.Query(verbs.QPAttrState); err != nil || attr.QPState != verbs.QPSSQD || !attr.SQDraining {
			t.Errorf("Query: %+v, %v", attr, err)
		}
		if err := qa.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("SQD to RTS while draining: %v", err)
		}
		must(t, qa.PostSend(send(a, 20))) // V-QPS-10: held
		must(t, qb.PostRecv(recv(b, 1, 100), recv(b, 2, 100)))
		if ev := nextEvent(t, a); ev.Type != verbs.EventSQDrained || ev.QP != qa {
			t.Errorf("event %+v", ev)
		}
		a.good(1)
		time.Sleep(2 * time.Millisecond)
		if wcs := make([]verbs.WC, 2); get(a.cq.Poll(wcs))(t) != 0 {
			t.Error("a request was sent in SQD")
		}
		must(t, qa.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))
		a.good(1)
		if wcs := b.good(2); wcs[0].ByteLen != 10 || wcs[1].ByteLen != 20 {
			t.Errorf("receives %+v", wcs)
		}
	})
}

// TestV_AE_19_CQOverrun: an overflowed CQ is in error, and so are the QPs that use it, in all shards.
func TestV_AE_19_CQOverrun(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		small := get(b.ctx.CreateCQ(4, nil))(t)
		t.Cleanup(func() { must(t, small.Close()) })
		onSmall := func(init *verbs.QPInitAttr) { init.RecvCQ = small }
		qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, onSmall)
		join(t, qa, qb, nil)
		other := b.qp(verbs.QPTypeUD, onSmall)
		must(t, other.Connect(verbs.QPInfo{}, nil))
		for i := range small.Cap() + 1 {
			must(t, qb.PostRecv(recv(b, uint64(i), 10)))
			must(t, qa.PostSend(send(a, 10)))
		}
		seen := map[verbs.EventType]int{}
		for range 3 {
			ev := nextEvent(t, b)
			seen[ev.Type]++
			if ev.Type == verbs.EventCQErr && ev.CQ != small {
				t.Errorf("event %+v", ev)
			}
		}
		if seen[verbs.EventCQErr] != 1 || seen[verbs.EventQPFatal] != 2 {
			t.Errorf("events %v", seen)
		}
		for _, q := range []*verbs.QP{qb, other} {
			if q.State() != verbs.QPSErr {
				t.Errorf("QP in %v", q.State())
			}
		}
		wcs := make([]verbs.WC, 10)
		if k := get(small.Poll(wcs))(t); k != small.Cap() || wcs[0].WRID != 0 {
			t.Errorf("%d completions from before the overflow, want %d", k, small.Cap())
		}
		if _, err := small.Poll(wcs); err == nil {
			t.Error("no error from polling an overflowed CQ")
		}
	})
}

// TestExtendedCQOverrun: an overflowed CQ whose completions have additional fields has the completions from before
// the overflow, with these fields, and then the error.
func TestExtendedCQOverrun(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	small := get(b.ctx.CreateCQ(4, &verbs.CQOptions{WCFlags: verbs.WCExWithCompletionTimestamp}))(t)
	t.Cleanup(func() { must(t, small.Close()) })
	qa := a.qp(verbs.QPTypeRC, nil)
	qb := b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.RecvCQ = small })
	join(t, qa, qb, nil)
	for i := range small.Cap() + 1 {
		must(t, qb.PostRecv(recv(b, uint64(i), 10)))
		must(t, qa.PostSend(send(a, 10)))
	}
	for nextEvent(t, b).Type != verbs.EventCQErr {
	}
	wcs := make([]verbs.WC, 10)
	if k := get(small.Poll(wcs))(t); k != small.Cap() || wcs[0].WRID != 0 || wcs[0].Timestamp == 0 {
		t.Errorf("%d completions from before the overflow, the first %+v", k, wcs[0])
	}
	if _, err := small.Poll(wcs); err == nil {
		t.Error("no error from polling an overflowed CQ")
	}
}

// TestV_EV_08_SamplePrograms: the two sample programs of the manual: one blocks in GetEvent, the other polls the
// channel's descriptor.
func TestV_EV_08_SamplePrograms(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, s *sleeper) *verbs.CQ{
		"blocking": func(t *testing.T, s *sleeper) *verbs.CQ {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			return get(s.ch.GetEvent(ctx))(t)
		},
		"non-blocking": func(t *testing.T, s *sleeper) *verbs.CQ {
			for start := time.Now(); ; time.Sleep(time.Millisecond) { // where the sample calls poll
				cq, err := s.ch.TryGetEvent()
				if err == nil {
					return cq
				}
				if !errors.Is(err, verbs.EAGAIN) || time.Since(start) > 10*time.Second {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ends := newEnds(t, &networks[0], 2, nil)
			a, b := ends[0], newSleeper(t, ends[1])
			qa, qb := connect(a, b.end, verbs.QPTypeRC, nil)
			const messages = 5
			for i := range messages {
				must(t, qb.PostRecv(recv(b.end, uint64(i), 10)))
			}
			must(t, b.cq.ReqNotify(false))
			for got := 0; got < messages; {
				must(t, qa.PostSend(send(a, 10)))
				cq := next(t, b)
				cq.AckEvents(1)
				must(t, cq.ReqNotify(false))
				var wc [1]verbs.WC
				for get(cq.Poll(wc[:]))(t) == 1 {
					must(t, wc[0].Err())
					if wc[0].WRID != uint64(got) {
						t.Fatalf("completion %d has wr_id %d", got, wc[0].WRID)
					}
					got++
				}
				a.good(1)
			}
		})
	}
}

// TestWaitOnADevice: several goroutines wait for the completions of one CQ of a device, on every link.
func TestWaitOnADevice(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		const messages = 200
		var got atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for wc, err := range b.cq.All(ctx) {
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					if wc.Err() != nil || wc.Opcode != verbs.WCRecv || qb.PostRecv(recv(b, 1, 64)) != nil {
						t.Error(wc.Err())
					}
					if got.Add(1) == messages {
						cancel()
					}
				}
			})
		}
		for range 8 {
			must(t, qb.PostRecv(recv(b, 1, 64)))
		}
		var wcs [4]verbs.WC
		for i := range messages {
			must(t, qa.PostSend(send(a, 16)))
			if n := get(a.cq.Wait(t.Context(), wcs[:]))(t); n != 1 || wcs[0].Err() != nil {
				t.Fatal(n, wcs[0].Err())
			}
			if i%16 == 0 {
				time.Sleep(time.Millisecond) // all goroutines block
			}
		}
		all.Wait()
		if got.Load() != messages {
			t.Errorf("%d of %d messages", got.Load(), messages)
		}
	})
}
