package rdmacm_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// accepts is a server with one accepting goroutine, the usual form.
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

// A client that does not finish the handshake delays no other client.
func TestAcceptIsNotHeldUp(t *testing.T) {
	lost := 0
	mute := func(p rdmatest.Packet) (rdmatest.Verdict, bool) { // all that the first client has to say after its request
		if isMessage(p, attrRTU) && p.Src == addrA && lost < 5 {
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

// A client that disconnects during the handshake is no error of the server.
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

// Errors of this side fail each Accept: they concern all clients.
func TestAcceptFailsByItself(t *testing.T) {
	in(t, func(w *world) {
		for what, opts := range map[string]*rdmacm.Options{
			"private data": {Param: &rdmacm.ConnParam{PrivateData: make([]byte, 197)}},
			"the QP":       {QP: verbs.QPCap{MaxSendSGE: 1 << 20, MaxSendWR: 1}},
			"depth":        {Param: &rdmacm.ConnParam{ResponderResources: 200}},
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

// An Accept whose context ends loses no connection, and Close ends the handshakes.
func TestAcceptCancelled(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		dialled := make(chan *rdmacm.ID, 3)
		for range 3 {
			go func() { dialled <- must(w.dial(l))(w) }()
		}
		time.Sleep(time.Second)
		seen := map[string]bool{}
		for len(seen) < 2 {
			ctx, cancel := context.WithCancel(bg)
			cancel()
			id, err := l.Accept(ctx)
			if errors.Is(err, context.Canceled) {
				time.Sleep(time.Millisecond) // it has begun something
				continue
			}
			w.ok(err)
			seen[id.PeerAddr().String()] = true
			w.ok(id.Close())
		}
		// The third is connected by now, or waits in the backlog. Accept does not return it.
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
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		select {
		case id := <-dialled:
			w.ok(id.Close())
		case <-ctx.Done():
			t.Error("the third client waits for ever")
		}
	})
}

// A server with synchronous IDs waits in GetRecvComp and reads no events: GetRecvComp reports that the client has
// disconnected.
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
		_, err := s.GetRecvComp(w.soon())
		if !errors.Is(err, io.EOF) || !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("behind the last message: %v", err)
		}
		w.ok(s.Disconnect(w.soon()))
		if wc, err := s.GetRecvComp(w.soon()); err != nil || wc.WRID != 2 || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("the receive that was left: %v of request %d, %v", wc.Status, wc.WRID, err)
		}
		<-left
		w.ok(mr.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}

// The error of a call whose context ended has the ID and what the call waited for; errors.Is finds the context's
// error too.
func TestErrorsOfCancelledWaits(t *testing.T) {
	in(t, func(w *world) {
		is := func(err error, target error, errno syscall.Errno, texts ...string) {
			t.Helper()
			if !errors.Is(err, target) || !errors.Is(err, errno) {
				t.Errorf("%v: not %v with %v", err, target, errno)
			}
			for _, text := range texts {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		}
		soon := func() context.Context {
			ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		never, cancel := context.WithCancel(bg)
		cancel()
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		to := at(addrB, l.Addr().Port()).String()
		_, err := rdmacm.Dial(soon(), to, &rdmacm.Options{Host: w.a}) // nobody accepts
		is(err, context.DeadlineExceeded, syscall.ETIMEDOUT, "connect: the peer has not answered yet", to)
		w.ok(must(l.Request(bg))(w).Close())

		got := w.accepts(l, 1)
		c := must(w.dial(l))(w)
		s := <-got
		_, err = c.GetRecvComp(soon())
		is(err, context.DeadlineExceeded, syscall.ETIMEDOUT, "get_recv_comp: no completion yet", to)
		_, err = c.GetSendComp(never)
		is(err, context.Canceled, syscall.ECANCELED, "get_send_comp: no completion yet", to)
		is(c.Disconnect(soon()), context.DeadlineExceeded, syscall.ETIMEDOUT,
			"disconnect: the peer has not called Disconnect or Close yet", to)
		w.ok(s.Close())
		w.ok(c.Close())
		w.ok(l.Close())
		_, err = rdmacm.Dial(bg, "nowhere", nil)
		w.errno(err, syscall.EINVAL)
	})
}

// A peer disconnects at once when it has the last message: the acknowledgement may come after its DREQ, and still
// counts.
func TestDREQBeforeTheAcknowledgement(t *testing.T) {
	late := func(p rdmatest.Packet) (rdmatest.Verdict, bool) {
		const ack = 0x11
		return rdmatest.Verdict{Delay: 10 * time.Millisecond}, p.Src == addrB && p.Opcode() == ack
	}
	inFaulty(t, rdmatest.Faults{Script: late}, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		left := make(chan struct{})
		go func() {
			defer close(left)
			s := must(l.Request(bg))(w)
			mr := must(s.RegMsgs(make([]byte, 16)))(w)
			w.ok(s.PostRecv(1, mr.Bytes(), mr))
			w.ok(s.Accept(bg, nil))
			must(s.GetRecvComp(bg))(w)
			w.ok(s.Disconnect(bg))
			w.ok(mr.Close())
			w.ok(s.Close())
		}()
		c := must(w.dial(l))(w)
		w.ok(c.PostSend(3, []byte("bye"), nil, verbs.SendInline|verbs.SendSignaled))
		if wc, err := c.GetSendComp(w.soon()); err != nil || wc.Err() != nil {
			t.Errorf("the last message: %v, %v", wc.Err(), err)
		}
		w.ok(c.Disconnect(bg))
		<-left
		w.ok(c.Close())
		w.ok(l.Close())
	})
}

// A request that the program has retrieved leaves its place in the backlog to the next one, before it is answered.
func TestRetrievedRequestLeavesTheBacklog(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 1)
		var clients, servers []*end
		for qpn := range uint32(3) {
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: 5 + qpn}))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.Ack())
			clients, servers = append(clients, c), append(servers, &end{ev.ID, w, l.ch})
		}
		for i := range clients {
			servers[i].closeID()
			clients[i].expect(rdmacm.EventRejected)
			clients[i].close()
		}
		l.close()
	})
}
