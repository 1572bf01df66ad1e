package soft_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Goroutines that poll empty CQs all the time let those run that sleep until an event, even with one P. Otherwise each
// of the four hand-overs of a round trip waits 10 ms, until the Go runtime takes the P from the poller.
func TestBusyPollersStarveNobody(t *testing.T) {
	for _, procs := range []int{1, 2} {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			onEach(t, besideBusyPollers)
		})
	}
}

func besideBusyPollers(t *testing.T, net *network) {
	ends := newEnds(t, net, 2, nil)
	connect(ends[0], ends[1], verbs.QPTypeRC, nil) // idle
	a, b := newSleeping(ends[0]), newSleeping(ends[1])
	join(t, a.qp, b.qp, nil)
	var stop atomic.Bool
	done := make(chan error, 2)
	for _, e := range ends {
		go func() {
			var wcs [4]verbs.WC
			var err error
			for err == nil && !stop.Load() {
				_, err = e.cq.Poll(wcs[:])
			}
			done <- err
		}()
	}
	const rounds, each = 10, 20
	for range rounds * each {
		must(t, a.qp.PostRecv(recv(a.end, 1, 8)))
		must(t, b.qp.PostRecv(recv(b.end, 1, 8)))
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		for range rounds * each {
			b.wait()
			b.send()
		}
	}()
	var took []time.Duration
	for range rounds { // other programs may use the processors during some of them
		start := time.Now()
		for range each {
			a.send()
			a.wait()
		}
		took = append(took, time.Since(start)/each)
	}
	<-echoed
	stop.Store(true)
	for range ends {
		must(t, <-done)
	}
	slices.Sort(took)
	t.Logf("a round trip takes %v", took)
	if median := took[rounds/2]; median > 5*time.Millisecond {
		t.Errorf("a round trip takes %v beside busy pollers", median)
	}
}

// A sleeping QP has a CQ with a channel, and its program waits for events.
type sleeping struct {
	*end
	ch *verbs.CompChannel
	cq *verbs.CQ
	qp *verbs.QP
}

func newSleeping(e *end) *sleeping {
	s := &sleeping{end: e, ch: get(e.ctx.CreateCompChannel())(e.tb)}
	e.tb.Cleanup(func() { must(e.tb, s.ch.Close()) })
	s.cq = get(e.ctx.CreateCQ(64, &verbs.CQOptions{Channel: s.ch}))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, s.cq.Close()) })
	s.qp = e.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) {
		init.RecvCQ, init.SendCQ, init.Cap.MaxRecvWR = s.cq, s.cq, 256
	})
	must(e.tb, s.cq.ReqNotify(false))
	return s
}

func (s *sleeping) send() {
	must(s.tb, s.qp.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 8),
	}))
}

// wait waits for the receive of a message.
func (s *sleeping) wait() {
	var wcs [4]verbs.WC
	for {
		n, err := s.cq.Poll(wcs[:])
		must(s.tb, err)
		received := false
		for i := range wcs[:n] {
			must(s.tb, wcs[i].Err())
			received = received || wcs[i].Opcode == verbs.WCRecv
		}
		if received {
			return
		}
		if n > 0 {
			continue
		}
		get(s.ch.GetEvent(s.tb.Context()))(s.tb)
		s.cq.AckEvents(1)
		must(s.tb, s.cq.ReqNotify(false))
	}
}
