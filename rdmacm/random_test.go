package rdmacm_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

var (
	randomSeed  = flag.Int64("random.seed", -1, "run only this one of the random programs")
	randomSeeds = flag.Int64("random.seeds", 60, "how many random programs to run")
)

// Programs with random calls, over a network that loses, duplicates and reorders: they cancel calls, close IDs and
// channels during calls, refuse, accept with a QP that does not work, migrate, and end in the middle. No call hangs,
// each error has an errno or is that of the context, and in the end nothing is left: no ID, QP, CQ, port, connection
// or goroutine.
func TestRandomPrograms(t *testing.T) {
	if *randomSeed >= 0 {
		random(t, uint64(*randomSeed))
		return
	}
	for seed := range *randomSeeds {
		random(t, uint64(seed))
		if t.Failed() {
			t.Fatalf("again with: go test ./rdmacm -run %s -random.seed=%d -v", t.Name(), seed)
		}
	}
}

func random(t *testing.T, seed uint64) {
	faults := rdmatest.Faults{}
	if seed%2 == 1 {
		faults = rdmatest.Faults{Loss: 0.1, Duplicate: 0.05, Reorder: 0.1, ReorderDelay: 20 * time.Millisecond}
	}
	inFaulty(t, faults, func(w *world) {
		stop := make(chan struct{})
		var servers, clients sync.WaitGroup
		for i := range 2 {
			r := &player{w: w, host: w.b, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			servers.Go(func() { r.serve(port+uint16(i), stop) })
		}
		for i := range 4 {
			r := &player{w: w, host: w.a, rng: rand.New(rand.NewPCG(seed, uint64(100+i)))}
			clients.Go(func() {
				for range 12 {
					r.dial()
				}
			})
		}
		clients.Wait()
		close(stop)
		servers.Wait()
		time.Sleep(10 * time.Minute) // timewait, and answers that are remembered
		for name, h := range map[string]*rdmacm.Host{"client": w.a, "server": w.b} {
			if left := h.Left(); left != "" {
				t.Errorf("the %s's host still has %s", name, left)
			}
		}
	})
}

// player is a program with a random generator.
type player struct {
	w    *world
	host *rdmacm.Host
	rng  *rand.Rand
}

// one reports true once in n times, at random.
func (p *player) one(n int) bool { return p.rng.IntN(n) == 0 }

// randomTimeout is a context that ends after a random time of up to a minute.
func (p *player) randomTimeout() (context.Context, context.CancelFunc) {
	d := time.Duration(p.rng.Int64N(int64(20 * time.Millisecond)))
	if p.one(2) {
		d = time.Duration(p.rng.Int64N(int64(time.Minute)))
	}
	return context.WithTimeout(bg, d)
}

func (p *player) pause() { time.Sleep(time.Duration(p.rng.Int64N(int64(30 * time.Millisecond)))) }

// may checks an error that is allowed.
func (p *player) may(err error) bool {
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err,
		context.Canceled) && !errors.Is(err, os.ErrDeadlineExceeded) {
		p.w.Errorf("an error without errno: %v", err)
	}
	return err == nil
}

// during runs a call that waits, and perhaps closes the ID or its channel meanwhile.
func (p *player) during(id *rdmacm.ID, call func(context.Context) error) bool {
	ctx, cancel := p.randomTimeout()
	defer cancel()
	if !p.one(6) {
		return p.may(call(ctx))
	}
	delay, channel := time.Duration(p.rng.Int64N(int64(10*time.Millisecond))), p.one(3)
	var gone sync.WaitGroup
	gone.Go(func() {
		time.Sleep(delay)
		if channel {
			_ = id.Channel().Close()
		} else {
			p.end(id)
		}
	})
	ok := p.may(call(ctx))
	gone.Wait()
	return ok
}

// end destroys an ID in any state.
func (p *player) end(id *rdmacm.ID) {
	if id.QP() != nil {
		p.may(id.DestroyQP())
	}
	p.may(id.Close())
}

// dial is a client's life.
func (p *player) dial() {
	dst := at(addrB, port+uint16(p.rng.IntN(3))) // nobody listens on the last one
	if p.one(2) {
		dst = at(addrB6, dst.Port())
	}
	if p.one(10) {
		dst = at(netip.MustParseAddr("198.18.0.99"), port)
	}
	var ch *rdmacm.EventChannel
	if p.one(2) {
		ch = must(p.host.CreateEventChannel())(p.w)
		defer ch.Close()
	}
	id := must(p.host.CreateID(ch, rdmacm.PSTCP, nil))(p.w)
	defer p.end(id)
	if !p.step(id, func(ctx context.Context) error { return id.ResolveAddr(ctx, netip.AddrPort{}, dst, timeout) }) {
		return
	}
	if !p.one(10) {
		p.may(id.CreateQP(nil, qpInit()))
	}
	if !p.step(id, func(ctx context.Context) error { return id.ResolveRoute(ctx, timeout) }) {
		return
	}
	param := &rdmacm.ConnParam{QPNum: 77, PrivateData: make([]byte, p.rng.IntN(60)), RetryCount: 3}
	connected := p.step(id, func(ctx context.Context) error { return id.Connect(ctx, param) })
	if connected || p.one(2) {
		p.may(id.Establish())
		p.after(id)
	}
}

// step does a call, and waits for the event that it brings if the ID is asynchronous.
func (p *player) step(id *rdmacm.ID, call func(context.Context) error) bool {
	if !p.during(id, call) {
		return false
	}
	if p.one(30) {
		p.may(id.Migrate(nil))
	}
	if id.Event() != nil {
		return true
	}
	ctx, cancel := p.randomTimeout()
	defer cancel()
	ev, err := id.Channel().GetEvent(ctx)
	if !p.may(err) {
		return false
	}
	ok := p.may(ev.Err())
	p.may(ev.Ack())
	return ok
}

// after handles an ID after Connect or Accept.
func (p *player) after(id *rdmacm.ID) {
	p.pause()
	if p.one(3) {
		p.may(id.PostSend(1, []byte("x"), nil, verbs.SendInline|verbs.SendSignaled))
		ctx, cancel := p.randomTimeout()
		_, err := id.GetSendComp(ctx)
		cancel()
		p.may(err)
	}
	if !p.one(3) {
		p.during(id, id.Disconnect)
	}
	if p.one(3) {
		p.pause()
		p.during(id, id.Disconnect)
	}
}

// serve is a server's life: listeners that come and go, synchronous or not.
func (p *player) serve(port uint16, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			p.listen(port, stop)
		}
	}
}

func (p *player) listen(port uint16, stop chan struct{}) {
	var ch *rdmacm.EventChannel
	if p.one(2) {
		ch = must(p.host.CreateEventChannel())(p.w)
		defer ch.Close()
	}
	l := must(p.host.CreateID(ch, rdmacm.PSTCP, nil))(p.w)
	defer p.end(l)
	addr := []netip.Addr{addrB, addrB6, netip.IPv6Unspecified()}[p.rng.IntN(3)]
	if !p.may(l.BindAddr(at(addr, port))) || !p.may(l.Listen(p.rng.IntN(4))) {
		p.pause()
		return
	}
	for range 1 + p.rng.IntN(6) {
		select {
		case <-stop:
			return
		default:
		}
		if p.one(8) {
			next := must(p.host.CreateEventChannel())(p.w)
			defer next.Close()
			p.may(l.Migrate(next))
			ch = next
		} else if p.one(8) && ch != nil {
			p.may(l.Migrate(nil))
			ch = nil
		}
		p.pause()
		ctx, cancel := p.randomTimeout()
		p.answer(ctx, l, ch)
		cancel()
	}
}

// answer retrieves the events of a listener and answers them.
func (p *player) answer(ctx context.Context, l *rdmacm.ID, ch *rdmacm.EventChannel) {
	if ch == nil {
		id, err := l.GetRequest(ctx)
		if p.may(err) {
			p.request(id)
			p.end(id)
		}
		return
	}
	ev, err := ch.GetEvent(ctx)
	if !p.may(err) {
		return
	}
	id := ev.ID
	if ev.Type == rdmacm.EventConnectRequest {
		p.request(id)
	}
	if ev.Type == rdmacm.EventConnectRequest && p.one(2) {
		go p.end(id) // it waits for the Ack
		p.pause()
	}
	p.may(ev.Ack())
	if ev.Type == rdmacm.EventDisconnected {
		p.may(id.Disconnect(bg))
	}
}

// request answers a request.
func (p *player) request(id *rdmacm.ID) {
	p.pause()
	if p.one(4) {
		time.Sleep(time.Duration(p.rng.Int64N(int64(20 * time.Second))))
	}
	switch p.rng.IntN(8) {
	case 0:
		p.may(id.Reject(make([]byte, p.rng.IntN(160))))
		p.may(id.Accept(bg, nil))
	case 1:
		p.during(id, func(ctx context.Context) error { return id.Accept(ctx, nil) }) // without a QP
	case 2:
		if p.may(id.CreateQP(nil, qpInit())) {
			p.may(id.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		}
		p.during(id, func(ctx context.Context) error { return id.Accept(ctx, nil) })
	case 3: // nothing
	default:
		p.may(id.CreateQP(nil, qpInit()))
		p.during(id, func(ctx context.Context) error {
			return id.Accept(ctx, &rdmacm.ConnParam{PrivateData: make([]byte, p.rng.IntN(200)), RNRRetryCount: 1})
		})
		p.after(id)
	}
}

// Many goroutines call random methods of the same two IDs. Calls may fail, but nothing else.
func TestConcurrentCalls(t *testing.T) {
	for seed := range uint64(20) {
		in(t, func(w *world) {
			ends := []*end{w.newEnd(w.a, rdmacm.PSTCP), w.newEnd(w.b, rdmacm.PSTCP)}
			if seed%2 == 1 {
				w.ok(ends[1].Migrate(nil))
			}
			w.ok(ends[1].BindAddr(at(addrB, port)))
			w.ok(ends[1].Listen(2))
			var all sync.WaitGroup
			for i := range uint64(8) {
				p := &player{w: w, host: w.a, rng: rand.New(rand.NewPCG(seed, i))}
				all.Go(func() {
					for range 60 {
						p.anything(ends[p.rng.IntN(2)])
					}
				})
			}
			all.Wait()
			for _, e := range ends {
				p := &player{w: w, host: w.a, rng: rand.New(rand.NewPCG(seed, 99))}
				ch := e.Channel()
				p.end(e.ID)
				_ = ch.Close()
				_ = e.ch.Close()
			}
			time.Sleep(10 * time.Minute)
			if left := w.a.Left() + w.b.Left(); left != "" {
				t.Errorf("seed %d: there are still %s", seed, left)
			}
		})
	}
}

// anything does one thing with an ID.
func (p *player) anything(e *end) {
	ctx, cancel := context.WithTimeout(bg, time.Duration(1+p.rng.Int64N(int64(5*time.Millisecond))))
	defer cancel()
	switch p.rng.IntN(16) {
	case 0:
		p.may(e.ResolveAddr(ctx, netip.AddrPort{}, at(addrB, port), timeout))
	case 1:
		p.may(e.ResolveRoute(ctx, timeout))
	case 2:
		p.may(e.CreateQP(nil, qpInit()))
	case 3:
		p.may(e.Connect(ctx, nil))
	case 4:
		p.may(e.Disconnect(ctx))
	case 5, 6, 7:
		ev, err := e.Channel().GetEvent(ctx)
		if !p.may(err) {
			break
		}
		if ev.Type == rdmacm.EventConnectRequest {
			p.may(ev.ID.CreateQP(nil, qpInit()))
			accepted, cancel := context.WithTimeout(bg, time.Millisecond)
			p.may(ev.ID.Accept(accepted, nil))
			cancel()
			p.may(ev.Ack())
			p.end(ev.ID)
			break
		}
		p.may(ev.Ack())
	case 8:
		id, err := e.GetRequest(ctx)
		if p.may(err) {
			p.may(id.Reject(nil))
			p.end(id)
		}
	case 9:
		if p.one(4) {
			p.may(e.DestroyQP())
		}
	case 10:
		p.may(e.PostSend(1, []byte("x"), nil, verbs.SendInline))
	case 11:
		_, err := e.GetSendComp(ctx)
		p.may(err)
	case 12:
		_, err := e.InitQPAttr(&verbs.QPAttr{QPState: verbs.QPSRTR})
		p.may(err)
		_, _, _, _, _ = e.Route(), e.Event(), e.PD(), e.SendCQ(), e.LocalAddr()
	case 13:
		p.may(e.Establish())
	case 14:
		p.may(e.SetTOS(uint8(p.rng.Uint32())))
	case 15:
		time.Sleep(time.Millisecond)
	}
}
