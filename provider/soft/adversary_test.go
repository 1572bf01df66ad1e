package soft_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// These programs make permitted but unusual sequences of calls.

// rdma returns a signaled request of n bytes from the start of a's memory to the start of b's.
func rdma(a, b *end, op verbs.WROpcode, n int) verbs.SendWR {
	wr := send(a, n)
	wr.Opcode, wr.RemoteAddr, wr.RKey = op, b.mr.Addr(), b.mr.RKey()
	return wr
}

// while runs f repeatedly in n goroutines until stop returns.
func while(n int, f func(i int), stop func()) {
	var wg sync.WaitGroup
	var end atomic.Bool
	for i := range n {
		wg.Go(func() {
			for !end.Load() {
				f(i)
				runtime.Gosched()
			}
		})
	}
	stop()
	end.Store(true)
	wg.Wait()
}

// checkConcurrent checks the error of a call on an object that other goroutines destroy or break concurrently.
func checkConcurrent(t *testing.T, what string, err error) {
	if err != nil && !errors.Is(err, verbs.EINVAL) && !errors.Is(err, verbs.ENOMEM) {
		t.Errorf("%s: %v", what, err)
	}
}

// TestV_QPD_01_V_LIB_05_DestroyedDuringUse: QPs are destroyed while other goroutines post to them, poll, modify and
// query them. Each is destroyed once.
func TestV_QPD_01_V_LIB_05_DestroyedDuringUse(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		for range 3 {
			qa, qb := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 8, RetryCnt: 1, RNRRetry: 1, MinRNRTimer: 1})
			var gone atomic.Int32
			while(3, func(i int) {
				switch i {
				case 0:
					checkConcurrent(t, "PostRecv", qb.PostRecv(recv(b, 1, 100)))
					checkConcurrent(t, "PostSend", qa.PostSend(send(a, 100), rdma(a, b, verbs.WRRDMARead, 5000)))
				case 1:
					var wcs [16]verbs.WC
					for _, e := range ends {
						if _, err := e.cq.Poll(wcs[:]); err != nil {
							t.Error(err)
						}
					}
				default:
					_, _, err := qa.Query(0)
					checkConcurrent(t, "Query", err)
					checkConcurrent(t, "Modify", qb.Modify(&verbs.QPAttr{MinRNRTimer: 2}, verbs.QPAttrMinRNRTimer))
				}
			}, func() {
				time.Sleep(2 * time.Millisecond)
				var wg sync.WaitGroup
				for range 4 {
					for _, qp := range []*verbs.QP{qa, qb} {
						wg.Go(func() {
							if err := qp.Close(); err == nil {
								gone.Add(1)
							} else if !errors.Is(err, verbs.ErrClosed) {
								t.Error(err)
							}
						})
					}
				}
				wg.Wait()
			})
			if gone.Load() != 2 {
				t.Errorf("2 QPs were destroyed %d times", gone.Load())
			}
		}
		for range 20 { // the CQs still work
			var wcs [64]verbs.WC
			for _, e := range ends {
				get(e.cq.Poll(wcs[:]))(t)
			}
		}
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		must(t, qb.PostRecv(recv(b, 77, 100)))
		must(t, qa.PostSend(send(a, 100)))
		for begin, found := time.Now(), false; !found; {
			var wcs [16]verbs.WC
			get(a.cq.Poll(wcs[:]))(t)
			for _, wc := range wcs[:get(b.cq.Poll(wcs[:]))(t)] {
				found = found || wc.WRID == 77 && wc.Status == verbs.WCSuccess
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatal("nothing arrives any more")
			}
		}
	})
}

// TestV_CQ_09_V_CQ_11_V_POLL_02_ResizedUnderLoad: while a CQ is resized and several goroutines poll it, each
// completion comes once.
func TestV_CQ_09_V_CQ_11_V_POLL_02_ResizedUnderLoad(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		cq := get(a.ctx.CreateCQ(128, nil))(t)
		qp := get(a.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 1}}))(t)
		defer func() { must(t, qp.Close()); must(t, cq.Close()) }()
		join(t, qp, b.qp(verbs.QPTypeRC, nil), &verbs.ConnectOptions{Timeout: 19})
		const total = 500
		var seen [total]atomic.Int32
		var done, polls atomic.Int32
		begin := time.Now()
		// waiting reports whether the time limit is not reached. It also counts polls: on a loaded machine
		// the program may run rarely.
		waiting := func() bool {
			return done.Load() < total && (time.Since(begin) < 30*time.Second || polls.Load() < 100000)
		}
		while(4, func(i int) {
			if i == 3 {
				err := cq.Resize(64 + int(done.Load())%200)
				if err != nil && !errors.Is(err, verbs.EINVAL) {
					t.Error(err)
				}
				time.Sleep(100 * time.Microsecond)
				return
			}
			var wcs [8]verbs.WC
			got, err := cq.Poll(wcs[:1+i*3])
			polls.Add(1)
			if err != nil {
				t.Error(err)
			}
			for _, wc := range wcs[:got] {
				if wc.Status != verbs.WCSuccess {
					t.Error(wc.Err())
				}
				seen[wc.WRID].Add(1)
				done.Add(1)
			}
		}, func() {
			for id := 0; id < total && waiting(); {
				wr := rdma(a, b, verbs.WRRDMAWrite, 8)
				wr.WRID = uint64(id)
				if err := qp.PostSend(wr); err == nil {
					id++
				} else if !errors.Is(err, verbs.ENOMEM) {
					t.Error(err)
					return
				} else {
					runtime.Gosched()
				}
			}
			for waiting() {
				time.Sleep(time.Millisecond)
			}
		})
		for id := range seen {
			if c := seen[id].Load(); c != 1 {
				t.Fatalf("request %d completed %d times", id, c)
			}
		}
	})
}

// TestV_QPS_17_X_QPS_01_FlushedInOrder: all requests that several goroutines post before and after a QP goes to ERR
// are flushed once, in the order of their queue.
func TestV_QPS_17_X_QPS_01_FlushedInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		for round := range 3 {
			qa, _ := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 22})
			const each = 20
			var wg sync.WaitGroup
			for q := range 2 {
				wg.Go(func() {
					for i := range each {
						var err error
						if q == 0 {
							wr := send(a, 10) // the peer has no receive
							wr.WRID, wr.Flags = uint64(i), 0
							err = qa.PostSend(wr)
						} else {
							err = qa.PostRecv(recv(a, uint64(1000+i), 10))
						}
						must(t, err)
						if i == each/2+round {
							must(t, qa.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
						}
					}
				})
			}
			wg.Wait()
			next := [2]uint64{0, 1000}
			var wcs [8]verbs.WC
			for begin := time.Now(); next != [2]uint64{each, 1000 + each}; {
				for _, wc := range wcs[:get(a.cq.Poll(wcs[:]))(t)] {
					q := wc.WRID / 1000
					if wc.WRID != next[q] || wc.Status != verbs.WCWRFlushErr {
						t.Fatalf("request %d came as %v, want %d", wc.WRID, wc.Status, next[q])
					}
					next[q]++
				}
				if time.Since(begin) > 20*time.Second {
					t.Fatalf("flushed up to %v", next)
				}
			}
			must(t, qa.Close())
		}
	})
}

// TestV_QPS_03_RepeatedReset: after each of several resets during traffic a connection works, without a completion or
// message of an earlier one.
func TestV_QPS_03_RepeatedReset(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, nil)
		for round := range uint64(10) {
			join(t, qa, qb, &verbs.ConnectOptions{Timeout: 19, RNRRetry: 7, MinRNRTimer: 1})
			for i := range uint64(10) {
				must(t, qb.PostRecv(recv(b, round<<8|i, 5000)))
				wr := send(a, 5000)
				wr.WRID, wr.Opcode, wr.ImmData = round<<8|i, verbs.WRSendWithImm, uint32(round)
				must(t, qa.PostSend(wr))
			}
			var got [2]uint64
			for begin := time.Now(); got[0]+got[1] < round; {
				for i, e := range ends {
					var wcs [4]verbs.WC
					for _, wc := range wcs[:get(e.cq.Poll(wcs[:]))(t)] {
						if wc.WRID != round<<8|got[i] || wc.Status != verbs.WCSuccess || i == 1 && wc.ImmData != uint32(round) {
							t.Fatalf("round %d, completion %d of end %d: %+v", round, got[i], i, wc)
						}
						got[i]++
					}
				}
				if time.Since(begin) > 20*time.Second {
					t.Fatalf("round %d stopped at %v", round, got)
				}
			}
			for _, qp := range []*verbs.QP{qa, qb} {
				must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
			}
			for i, e := range ends {
				var wcs [64]verbs.WC
				if n := get(e.cq.Poll(wcs[:]))(t); n != 0 {
					t.Fatalf("end %d has %d completions after RESET: %+v", i, n, wcs[0])
				}
			}
		}
	})
}

// TestV_SRQ_04_V_SRQ_09_SharedByManyQPs: many QPs take receives from one SRQ that its program refills at each limit
// event; each message arrives once, with the number of the QP that received it.
func TestV_SRQ_04_V_SRQ_09_SharedByManyQPs(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		srq := newSRQ(t, b, 64, 1)
		const qps, messages = 8, 25
		from := map[uint32]int{}
		var senders []*verbs.QP
		for i := range qps {
			qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
			join(t, qa, qb, &verbs.ConnectOptions{Timeout: 19, RNRRetry: 7, MinRNRTimer: 1})
			senders, from[qb.QPN()] = append(senders, qa), i
		}
		left := 0
		refill := func() {
			for ; left < 64; left++ {
				must(t, srq.PostRecv(recv(b, 1, 100)))
			}
			must(t, srq.Modify(&verbs.SRQAttr{SRQLimit: 32}, verbs.SRQAttrLimit))
		}
		refill()
		limits := 0
		var got [qps]uint32
		var wg sync.WaitGroup
		defer wg.Wait()
		for i, qp := range senders {
			wg.Go(func() {
				for m := range uint32(messages) {
					wr := send(a, 10)
					wr.Opcode, wr.ImmData = verbs.WRSendWithImm, uint32(i)<<16|m
					for begin := time.Now(); ; time.Sleep(100 * time.Microsecond) {
						if err := qp.PostSend(wr); err == nil {
							break
						} else if !errors.Is(err, verbs.ENOMEM) || time.Since(begin) > 20*time.Second {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for begin, done := time.Now(), 0; done < qps*messages; {
			var wcs [16]verbs.WC
			get(a.cq.Poll(wcs[:]))(t)
			for _, wc := range wcs[:get(b.cq.Poll(wcs[:]))(t)] {
				i := from[wc.QPNum]
				if wc.Status != verbs.WCSuccess || wc.ImmData != uint32(i)<<16|got[i] {
					t.Fatalf("message %d of QP %d: %+v", got[i], i, wc)
				}
				got[i]++
				done++
				left--
			}
			if ev, err := b.ctx.TryGetAsyncEvent(); err == nil {
				ev.Ack()
				if ev.Type != verbs.EventSRQLimitReached || ev.SRQ != srq {
					t.Fatalf("event %v", ev.Type)
				}
				limits++
				refill()
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("%d of %d messages, %d limit events", done, qps*messages, limits)
			}
		}
		if limits < qps*messages/64 {
			t.Errorf("%d limit events", limits)
		}
	})
}

// TestV_MR_22_RegionsChangeUnderLoad: a region is closed or loses its access rights while a peer writes to it. A
// refused WRITE never wrote.
func TestV_MR_22_RegionsChangeUnderLoad(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		for i := range a.buf[:64] {
			a.buf[i] = 0xee
		}
		for round := range 4 {
			buf := make([]byte, 4096)
			mr := get(b.pd.RegMR(buf, allAccess))(t)
			qa, qb := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 19})
			wr := rdma(a, b, verbs.WRRDMAWrite, 64)
			wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
			var failed bool
			posted, polled := 0, 0
			drain := func() {
				var wcs [16]verbs.WC
				for _, wc := range wcs[:get(a.cq.Poll(wcs[:]))(t)] {
					polled++
					switch wc.Status {
					case verbs.WCSuccess:
						if failed {
							t.Error("a success after a failure")
						}
					case verbs.WCRemAccessErr, verbs.WCWRFlushErr:
						failed = true
					default:
						t.Error(wc.Err())
					}
				}
				get(b.cq.Poll(wcs[:]))(t)
			}
			revoked := make(chan error, 1)
			for i := 0; i < 2000 && !failed; i++ {
				if i == 50 {
					go func() {
						if round%2 == 0 {
							revoked <- mr.Close()
						} else {
							revoked <- mr.Rereg(verbs.ReregChangeAccess, nil, nil, verbs.AccessLocalWrite)
						}
					}()
				}
				if qa.PostSend(wr) == nil {
					posted++
				}
				drain()
			}
			must(t, <-revoked)
			clear(buf) // the device does not write to it any more
			for begin := time.Now(); polled < posted && time.Since(begin) < 20*time.Second; {
				drain()
			}
			if polled != posted {
				t.Fatalf("%d of %d completed", polled, posted)
			}
			for i, v := range buf {
				if v != 0 {
					t.Fatalf("byte %d was written after the right had gone", i)
				}
			}
			must(t, qa.Close())
			must(t, qb.Close())
			if err := mr.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// TestV_TR_04_V_KC_10_ManyUDSenders: several UD QPs send from several goroutines, inline at the limit, to one that
// receives with a GRH.
func TestV_TR_04_V_KC_10_ManyUDSenders(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		rx := b.qp(verbs.QPTypeUD, nil)
		must(t, rx.Connect(verbs.QPInfo{}, nil))
		info := get(rx.LocalInfo())(t)
		const senders, messages = 3, 16
		for i := range senders * messages {
			must(t, rx.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*128, 128)}}))
		}
		var wg sync.WaitGroup
		for s := range senders {
			cq := get(a.ctx.CreateCQ(32, nil))(t)
			qp := get(a.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq,
				Cap: verbs.QPCap{MaxSendWR: 16, MaxInlineData: 64}}))(t)
			must(t, qp.Connect(verbs.QPInfo{}, nil))
			choice := get(a.ctx.SelectGID(1, info.GID.Addr()))(t)
			ah := get(a.pd.CreateAH(&verbs.AHAttr{PortNum: 1, IsGlobal: true,
				GRH: verbs.GlobalRoute{DGID: info.GID, SGIDIndex: choice.Index, HopLimit: 9}}))(t)
			t.Cleanup(func() { must(t, qp.Close()); must(t, cq.Close()); must(t, ah.Close()) })
			wg.Go(func() {
				for m := range messages {
					data := make([]byte, 64)
					copy(data, fmt.Sprintf("%d/%d", s, m))
					err := qp.PostSend(verbs.SendWR{
						Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: data, AH: ah, RemoteQPN: info.QPN,
						RemoteQKey: verbs.DefaultQKey,
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
				var wcs [16]verbs.WC
				for done, begin := 0, time.Now(); done < messages && time.Since(begin) < 20*time.Second; {
					got, err := cq.Poll(wcs[:])
					if err != nil {
						t.Error(err)
						return
					}
					done += got
				}
			})
		}
		seen := map[string]bool{}
		for begin := time.Now(); len(seen) < senders*messages; {
			var wcs [16]verbs.WC
			for _, wc := range wcs[:get(b.cq.Poll(wcs[:]))(t)] {
				at := int(wc.WRID) * 128
				text := string(b.buf[at+40 : at+48])
				if wc.Status != verbs.WCSuccess || wc.ByteLen != 104 || wc.WCFlags&verbs.WCGRH == 0 || seen[text] {
					t.Fatalf("%+v %q", wc, text)
				}
				seen[text] = true
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("%d of %d messages", len(seen), senders*messages)
			}
		}
		wg.Wait()
	})
}

// TestAddressHandleOfAConnectedQP: an RC QP ignores the fields of address handles in a request.
func TestAddressHandleOfAConnectedQP(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	qa, qb := connect(ends[0], ends[1], verbs.QPTypeRC, nil)
	must(t, qb.PostRecv(recv(ends[1], 1, 100)))
	wr := send(ends[0], 100)
	wr.AH, wr.RemoteQPN = new(verbs.AH), 1<<31
	must(t, qa.PostSend(wr))
	ends[0].good(1)
	ends[1].good(1)
}
