package rsocket_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm/cmtest"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// forgedTo is a flood of requests of rsockets to a listener of b.
func (p *places) forgedTo(l net.Listener) *cmtest.Flood {
	d := rs.ConnData{
		Flags: rs.HostFlags(), Credits: 384, Table: rs.SGE{Addr: 4096, Key: 1, Length: 2}, Data: rs.SGE{Addr: 8192, Key: 1,
			Length: 65536},
	}
	to := netip.AddrPortFrom(p.B.Addr, uint16(l.Addr().(*net.TCPAddr).Port))
	return &cmtest.Flood{To: to, Private: d.Append(nil), Timeout: 31, Retries: 15}
}

// forge sends n requests at a rate, in requests per second.
func (p *places) forge(f *cmtest.Flood, n, rate int) {
	for i := range n {
		from, b := f.Next()
		p.Fab.Inject(from, f.To.Addr(), cmtest.SourcePort, b)
		if i%10 == 9 {
			time.Sleep(10 * time.Second / time.Duration(rate))
		}
	}
}

// echo serves connections until the listener is closed.
func (p *places) echo(l net.Listener) (stopped chan struct{}) {
	stopped = make(chan struct{})
	go func() {
		defer close(stopped)
		var open sync.WaitGroup
		defer open.Wait()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	}()
	return stopped
}

// visit connects, has a message echoed and leaves.
func (p *places) visit(l net.Listener, limit time.Duration) error {
	c, cancel := context.WithTimeout(bg, limit)
	defer cancel()
	conn, err := p.dialer(rsocket.Options{}).DialContext(c, "tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err
}

// During a flood of handshakes that are not completed, a client that has connected before connects at the first
// attempt. Any client connects soon after the flood.
func TestConnectInAFlood(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		stopped := p.echo(l)
		p.OK(p.visit(l, time.Second))
		over := make(chan struct{})
		go func() {
			defer close(over)
			p.forge(p.forgedTo(l), 5000, 10_000)
		}()
		n := 0
		for more := true; more; n++ {
			select {
			case <-over:
				more = false
			default:
			}
			if err := p.visit(l, time.Second); err != nil {
				t.Fatalf("connection %d: %v", n, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n < 10 {
			t.Errorf("%d connections", n)
		}
		time.Sleep(time.Second)
		p.OK(p.visit(l, time.Second))
		p.OK(l.Close())
		<-stopped
	})
}

// An unknown client connects 11 s after 1,100 handshakes that are not completed.
func TestConnectAfterUnfinishedHandshakes(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		stopped := p.echo(l)
		p.forge(p.forgedTo(l), 1100, 4000)
		time.Sleep(11 * time.Second)
		p.OK(p.visit(l, time.Second))
		p.OK(l.Close())
		<-stopped
	})
}

// A listener with a full backlog accepts no more requests, and serves all clients once Accept is called.
func TestBacklogOfAListener(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		const backlog, clients = 2, 12
		l, err := (&rsocket.ListenConfig{Host: p.B.Host, Backlog: backlog}).Listen(bg, "tcp", p.B.At(0))
		p.OK(err)
		errs := make(chan error, clients)
		for i := range clients {
			if i == backlog {
				time.Sleep(time.Second) // until the queue is full
			}
			go func() { errs <- p.visit(l, time.Minute) }()
		}
		time.Sleep(20 * time.Second)
		if n := rsocket.Queued(l); n < backlog || n >= clients {
			t.Errorf("%d connections are queued for Accept, with a backlog of %d", n, backlog)
		}
		stopped := p.echo(l)
		for range clients {
			p.OK(<-errs)
		}
		p.OK(l.Close())
		<-stopped
	})
}

// Of clients that come one by one, a listener connects as many as its backlog.
func TestBacklogIsExact(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		for _, backlog := range []int{1, 2, 5} {
			l, err := (&rsocket.ListenConfig{Host: p.B.Host, Backlog: backlog}).Listen(bg, "tcp", p.B.At(0))
			p.OK(err)
			a, b := p.pairOf(l.(*rsocket.Listener), rsocket.Options{}) // Accept has made room before it is needed
			p.OK(a.Close())
			p.OK(b.Close())
			errs := make(chan error, backlog+3)
			for range cap(errs) {
				go func() { errs <- p.visit(l, time.Minute) }()
				time.Sleep(time.Second)
			}
			if n := rsocket.Queued(l); n != backlog {
				t.Errorf("%d connections are queued for Accept, with a backlog of %d", n, backlog)
			}
			stopped := p.echo(l)
			for range cap(errs) {
				p.OK(<-errs)
			}
			p.OK(l.Close())
			<-stopped
		}
	})
}

// Close ends the connections of a full backlog and the request that waits for room in it.
func TestCloseWithAFullBacklog(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, err := (&rsocket.ListenConfig{Host: p.B.Host, Backlog: 1}).Listen(bg, "tcp", p.B.At(0))
		p.OK(err)
		errs := make(chan error, 2)
		for range cap(errs) {
			go func() { errs <- p.visit(l, time.Minute) }()
			time.Sleep(time.Second)
		}
		begin := time.Now()
		p.OK(l.Close())
		for range cap(errs) {
			if err := <-errs; err == nil {
				t.Error("a client had an echo from a listener that never accepted")
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the clients learnt of Close after %v", took)
		}
	})
}

// Close ends the handshakes that clients have not finished: nothing of them is left, whenever it is called.
func TestCloseEndsHandshakes(t *testing.T) {
	for _, n := range []int{1, 7, 100} {
		inBubble(t, rdmatest.Faults{}, func(p *places) {
			l := p.listen(rsocket.Options{})
			f := p.forgedTo(l)
			p.forge(f, n, 10_000)
			if n > 1 {
				time.Sleep(100 * time.Millisecond)
			}
			begin := time.Now()
			p.OK(l.Close())
			if took := time.Since(begin); took > time.Second {
				t.Errorf("Close took %v with %d handshakes", took, n)
			}
		})
	}
}
