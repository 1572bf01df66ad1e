package rdmacm_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// accepts is a server with one goroutine that accepts, as most are.
func (w *world) accepts(l *rdmacm.Listener, n int) chan *rdmacm.ID {
	got := make(chan *rdmacm.ID, n)
	go func() {
		for range n {
			id, err := l.Accept(bg)
			if err != nil {
				w.Errorf("Accept: %v", err)
				break
			}
			got <- id
		}
		close(got)
	}()
	return got
}

func (w *world) dial(to *rdmacm.Listener) (*rdmacm.ID, error) {
	return rdmacm.Dial(bg, at(addrB, to.Addr().Port()).String(), &rdmacm.Options{Host: w.a})
}

// A client that does not finish the handshake keeps nobody waiting but itself.
func TestAcceptIsNotHeldUp(t *testing.T) {
	lost := 0
	mute := func(p rdmatest.Packet) (rdmatest.Verdict, bool) { // all that the first client has to say after its request
		if len(p.Data) == 12+8+256 && p.Src == addrA && p.Data[20+17] == 0x14 && lost < 5 { // RTU
			lost++
			return rdmatest.Verdict{Drop: true}, true
		}
		return rdmatest.Verdict{}, false
	}
	inFaulty(t, rdmatest.Faults{Script: mute}, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		got := w.accepts(l, 2)
		slow := must(w.dial(l))(w)
		synctest.Wait()
		if lost != 1 {
			t.Fatalf("%d acknowledgements were lost", lost)
		}
		lost = 5 // the others' arrive
		begin := time.Now()
		quick := must(w.dial(l))(w)
		first := <-got
		if took := time.Since(begin); took > time.Second || first.PeerAddr() != quick.LocalAddr() {
			t.Errorf("Accept has brought %v after %v", first.PeerAddr(), took)
		}
		second := <-got // its reply was sent again
		if second.PeerAddr() != slow.LocalAddr() {
			t.Errorf("Accept has brought %v", second.PeerAddr())
		}
		for _, id := range []*rdmacm.ID{slow, quick, first, second} {
			w.ok(id.Close())
		}
		w.ok(l.Close())
	})
}

// A client that goes away in the middle is no failure of the server.
func TestAcceptGoesOn(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		c := w.resolved(rdmacm.PSTCP, at(addrB, l.Addr().Port()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: 5}))
		synctest.Wait()
		c.close() // before anybody looks
		c = w.resolved(rdmacm.PSTCP, at(addrB, l.Addr().Port()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: 5}))
		got := w.accepts(l, 1)
		c.expect(rdmacm.EventConnectResponse)
		c.close() // after the answer
		d := must(w.dial(l))(w)
		s := <-got
		w.exchange(&end{d, w, nil}, &end{s, w, nil})
		w.ok(d.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}

// What is wrong here is an error, each time: all clients would meet with it.
func TestAcceptFailsByItself(t *testing.T) {
	in(t, func(w *world) {
		for what, opts := range map[string]*rdmacm.Options{
			"private data": {Param: &rdmacm.ConnParam{PrivateData: make([]byte, 197)}}, "the QP": {QP: verbs.QPCap{MaxSendSGE: 1 << 20, MaxSendWR: 1}},
			"depth": {Param: &rdmacm.ConnParam{ResponderResources: 200}},
		} {
			opts.Host = w.b
			l := must(rdmacm.Listen(bg, ":0", opts))(w)
			done := make(chan error, 1)
			go func() {
				_, err := l.Accept(bg)
				done <- err
			}()
			_, err := w.dial(l)
			w.errno(err, syscall.ECONNREFUSED)
			if err := <-done; !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %v", what, err)
			}
			w.ok(l.Close())
		}
	})
}

// Accept that is given up loses nothing, and Close ends what is under way.
func TestAcceptGivenUp(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		dialled := make(chan *rdmacm.ID, 3)
		for range 3 {
			go func() { dialled <- must(w.dial(l))(w) }()
		}
		time.Sleep(time.Second)
		seen := map[string]bool{}
		for len(seen) < 2 {
			c, cancel := context.WithCancel(bg)
			cancel()
			id, err := l.Accept(c)
			if errors.Is(err, context.Canceled) {
				time.Sleep(time.Millisecond) // it has begun something
				continue
			}
			w.ok(err)
			seen[id.PeerAddr().String()] = true
			w.ok(id.Close())
		}
		// The third is connected by now, or waits in the backlog. Nobody gets it.
		w.ok(l.Close())
		_, err := l.Accept(bg)
		if !errors.Is(err, rdmacm.ErrClosed) {
			t.Error(err)
		}
		for range 2 {
			id := <-dialled
			delete(seen, id.LocalAddr().String())
			w.ok(id.Close())
		}
		c, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		select {
		case id := <-dialled:
			w.ok(id.Close())
		case <-c.Done():
			t.Error("the third client waits for ever")
		}
	})
}

// A server with synchronous IDs sits in GetRecvComp and asks for no events: its receives tell that the client has left.
func TestTheEndIsSeenWithoutAnEvent(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		got := w.accepts(l, 1)
		c := must(w.dial(l))(w)
		s := <-got
		mr := must(s.RegMsgs(make([]byte, 16)))(w)
		w.ok(s.PostRecv(1, mr.Bytes()[:8], mr))
		w.ok(s.PostRecv(2, mr.Bytes()[8:], mr))
		left := make(chan struct{})
		go func() {
			defer close(left)
			w.ok(c.PostSend(3, []byte("bye"), nil, verbs.SendInline|verbs.SendSignaled))
			must(c.GetSendComp(bg))(w)
			w.ok(c.Disconnect(bg))
			w.ok(c.Close())
		}()
		if wc, err := s.GetRecvComp(w.soon()); err != nil || wc.Err() != nil || string(mr.Bytes()[:wc.ByteLen]) != "bye" {
			t.Errorf("the message: %v, %v", wc.Status, err)
		}
		wc, err := s.GetRecvComp(w.soon())
		if err != nil || wc.WRID != 2 || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("behind the last message: %v of request %d, %v", wc.Status, wc.WRID, err)
		}
		w.ok(s.Disconnect(w.soon()))
		<-left
		w.ok(mr.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}
