package rsocket_test

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// Who waits in Read or in Write learns at once that his side was shut, and does not keep the other from shutting it.
func TestR_SHUT_01_WakesWhoeverWaits(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		start := time.Now()
		done := make(chan error)
		go func() {
			_, err := a.Write(make([]byte, 10<<20)) // the peer does not read
			done <- err
		}()
		synctest.Wait()
		p.ok(a.CloseWrite())
		if err := <-done; !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
		go func() {
			n, err := a.Read(make([]byte, 1))
			if n != 0 {
				t.Errorf("%d bytes", n)
			}
			done <- err
		}()
		synctest.Wait()
		p.ok(a.CloseRead())
		if err := <-done; err != io.EOF {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		p.ok(a.Close())
		p.ok(b.Close())

		s := p.socket(p.a, rsocket.SockStream)
		p.errno("how -1", s.Shutdown(-1), syscall.EINVAL)
		p.errno("how 3", s.Shutdown(3), syscall.EINVAL)
		p.errno("no connection", s.Shutdown(rsocket.ShutBoth), syscall.ENOTCONN)
		p.closeSockets(s)
	})
}

// Close waits for a peer that does not answer as long as SetLinger says, but two seconds at most.
func TestLinger(t *testing.T) {
	for linger, want := range map[time.Duration]time.Duration{
		0: 0, 100 * time.Millisecond: 100 * time.Millisecond, 2 * time.Second: 2 * time.Second, time.Hour: 2 * time.Second,
	} {
		inBubble(t, rdmatest.Faults{}, func(p *places) {
			a, b := p.pair(rsocket.Options{}, rsocket.Options{})
			synctest.Wait()
			p.ok(a.SetLinger(linger))
			p.ok(b.SetLinger(0))
			p.fab.Cut(p.a.addr, p.b.addr)
			must(a.Write([]byte("lost")))(p)
			start := time.Now()
			p.ok(a.Close())
			if took := time.Since(start); took != want {
				t.Errorf("with %v it took %v, want %v", linger, took, want)
			}
			p.ok(b.Close())
			time.Sleep(time.Hour) // until the rest has given up
		})
	}
}

// An accepted socket looks after its peer if the listening one was told to.
func TestR_SOCK_09_KeepAliveOfAccepted(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, func(l *rsocket.Socket) {
			p.ok(l.SetOptionInt(rsocket.SolSocket, rsocket.SoKeepAlive, 1))
			p.ok(l.SetOptionInt(rsocket.IPProtoTCP, rsocket.TCPKeepIdle, 5))
		})
		if n := must(s.OptionInt(rsocket.IPProtoTCP, rsocket.TCPKeepIdle))(p); n != 5 {
			t.Errorf("%d seconds", n)
		}
		synctest.Wait()
		p.fab.Cut(p.a.addr, p.b.addr)
		if e := p.poll(s, 0, time.Hour); e != rsocket.PollErr|rsocket.PollHup {
			t.Errorf("after an hour it has %#x", e)
		}
		p.closeSockets(c, s)
		time.Sleep(time.Hour) // until the peer has given up
	})
}
