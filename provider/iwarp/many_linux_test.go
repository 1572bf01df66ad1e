package iwarp_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// envConnections is how many connections TestManyConnections makes. Each takes two descriptors of the process.
const envConnections = "VERBENA_TEST_CONNECTIONS"

func connections(t *testing.T) int {
	n := 500
	if v := os.Getenv(envConnections); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 1 {
			t.Fatalf("%s=%q: must be a number from 1", envConnections, v)
		}
	}
	if need, most := 2*n+100, fdset.Limit(); most < need {
		t.Skipf("%d connections need %d descriptors, the limit is %d (ulimit -n)", n, need, most)
	}
	return n
}

// crowd is both ends of many connections, as a program has them that is made for many: each side has one event channel
// and one CQ.
type crowd struct {
	t        *testing.T
	h        *rdmacm.Host
	listener *rdmacm.ID
	sides    [2]side // clients, servers
	ids      []*rdmacm.ID
}

type side struct {
	ch   *rdmacm.EventChannel
	cq   *verbs.CQ
	init verbs.QPInitAttr
}

const perQP = 4 // requests

func newCrowd(t *testing.T, most int) *crowd {
	c := &crowd{t: t, h: newHost(t)}
	var ch *rdmacm.EventChannel
	c.listener, ch = listen(t, c.h)
	for i := range c.sides {
		s := &c.sides[i]
		if s.ch = ch; i == 0 {
			s.ch = channel(t, c.h)
		}
		var err error
		s.cq, err = c.listener.Verbs().CreateCQ(2*perQP*most, nil)
		must(t, err)
		t.Cleanup(func() { must(t, s.cq.Close()) })
		s.init = verbs.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, SigAll: true, Cap: verbs.QPCap{MaxSendWR: perQP,
			MaxRecvWR: perQP, MaxSendSGE: 1, MaxRecvSGE: 1}}
	}
	t.Cleanup(func() {
		for _, id := range c.ids {
			must(t, id.DestroyQP())
			must(t, id.Close())
		}
	})
	return c
}

// connect makes a connection.
func (c *crowd) connect() {
	client, err := c.h.CreateID(c.sides[0].ch, rdmacm.PSTCP, nil)
	must(c.t, err)
	must(c.t, client.ResolveAddr(c.t.Context(), netip.AddrPort{}, c.listener.LocalAddr(), time.Second))
	must(c.t, event(c.t, c.sides[0].ch, rdmacm.EventAddrResolved).Ack())
	must(c.t, client.ResolveRoute(c.t.Context(), time.Second))
	must(c.t, event(c.t, c.sides[0].ch, rdmacm.EventRouteResolved).Ack())
	must(c.t, client.CreateQP(nil, &c.sides[0].init))
	must(c.t, client.Connect(c.t.Context(), nil))
	ev := event(c.t, c.sides[1].ch, rdmacm.EventConnectRequest)
	must(c.t, ev.Ack())
	must(c.t, ev.ID.CreateQP(nil, &c.sides[1].init))
	must(c.t, ev.ID.Accept(c.t.Context(), nil))
	for i := range c.sides {
		must(c.t, event(c.t, c.sides[i].ch, rdmacm.EventEstablished).Ack())
	}
	c.ids = append(c.ids, client, ev.ID)
}

// talk has each end send a message, and waits for all.
func (c *crowd) talk() {
	for _, id := range c.ids {
		must(c.t, id.QP().PostRecv(verbs.RecvWR{WRID: 1}))
	}
	for _, id := range c.ids {
		must(c.t, id.QP().PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend}))
	}
	e := end{t: c.t}
	for i := range c.sides {
		for range len(c.ids) { // a message sent and one received for each end of the side
			if wc := e.wait(c.sides[i].cq); wc.Status != verbs.WCSuccess {
				c.t.Fatalf("%+v", wc)
			}
		}
	}
}

// Connections take no goroutine each, and little memory, also when messages have passed.
func TestManyConnections(t *testing.T) {
	n := connections(t)
	c := newCrowd(t, n+1)
	c.connect() // the first connection opens the device
	goroutines, bytes := runtime.NumGoroutine(), heap()
	begin := time.Now()
	for range n {
		c.connect()
	}
	took := time.Since(begin)
	c.check("idle", goroutines, bytes)
	for range 3 {
		c.talk()
	}
	c.check("after messages", goroutines, bytes)
	t.Logf("%d connections, %v each", n, took/time.Duration(n))
}

// check compares the goroutines and the memory with those before the connections were made.
func (c *crowd) check(when string, goroutines, bytes int) {
	c.t.Helper()
	const moreGoroutines, perEnd = 10, 8 << 10
	grown := (heap() - bytes) / len(c.ids)
	more := runtime.NumGoroutine() - goroutines
	for start := time.Now(); more > moreGoroutines && time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
		more = runtime.NumGoroutine() - goroutines // those of the start-up are about to end
	}
	if more > moreGoroutines {
		c.t.Errorf("%s: %d goroutines more than before, want at most %d", when, more, moreGoroutines)
	}
	if grown > perEnd {
		c.t.Errorf("%s: %d bytes for each end, want at most %d", when, grown, perEnd)
	}
	c.t.Logf("%s: %d bytes for each end, %d goroutines more than before", when, grown, more)
}

// dialPatiently is Dial for one of many connections: a machine with other work may need longer for all of them than the
// initiator of MPA waits for one.
func dialPatiently(ctx context.Context, addr string, o *rdmacm.Options) (id *rdmacm.ID, err error) {
	for err = syscall.ETIMEDOUT; errors.Is(err, syscall.ETIMEDOUT) && ctx.Err() == nil; {
		id, err = rdmacm.Dial(ctx, addr, o)
	}
	return id, err
}

// A host may make many connections at once.
func TestBurstOfConnections(t *testing.T) {
	const n = 500
	o := &rdmacm.Options{Host: newHost(t), QP: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	ctx, cancel := limit()
	defer cancel()
	l, err := rdmacm.Listen(ctx, "127.0.0.1:0", o)
	must(t, err)
	dialed := make(chan error, n)
	var accepted atomic.Int32
	var serving sync.WaitGroup
	for range n {
		serving.Go(func() {
			for {
				id, err := l.Accept(ctx)
				if err != nil {
					return
				}
				if err := id.Close(); err != nil {
					t.Error(err)
				}
				accepted.Add(1)
			}
		})
		go func() {
			id, err := dialPatiently(ctx, l.Addr().String(), o)
			if err == nil {
				err = id.Close()
			}
			dialed <- err
		}()
	}
	for range n {
		if err := <-dialed; err != nil {
			cancel() // the others wait for as many connections
			t.Error(err)
		}
	}
	for accepted.Load() < n && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if got := accepted.Load(); got < n {
		t.Errorf("%d connections were accepted, want %d", got, n)
	}
	must(t, l.Close())
	serving.Wait()
}
