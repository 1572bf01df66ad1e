package rsocket_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// A waiting Read or Write returns as soon as its direction is shut down, and does not delay the shutdown.
func TestR_SHUT_01_WakesWaitingCalls(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		start := time.Now()
		done := make(chan error)
		go func() {
			_, err := a.Write(make([]byte, 10<<20)) // the peer does not read
			done <- err
		}()
		synctest.Wait()
		p.OK(a.CloseWrite())
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
		p.OK(a.CloseRead())
		if err := <-done; err != io.EOF {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// CloseRead ends a Read that waits, although the peer has nothing to say to it.
func TestCloseReadAloneEndsAWait(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		p.OK(a.SetReadDeadline(time.Now().Add(time.Minute)))
		ended := make(chan error)
		go func() {
			_, err := a.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		p.OK(a.CloseRead())
		if err := <-ended; err != io.EOF {
			t.Errorf("read: %v", err)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// CloseRead leaves the other direction open, and CloseWrite too.
func TestR_SHUT_02_OneDirectionOnly(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		p.OK(a.CloseRead())
		must(a.Write([]byte("x")))(p)
		p.OK(a.CloseWrite())
		p.OK(b.SetReadDeadline(time.Now().Add(time.Minute)))
		if got, err := io.ReadAll(b); string(got) != "x" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// SetLinger may be called at any time, as each method; after Close it fails.
func TestSetLingerDuringClose(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		done := make(chan error)
		go func() { done <- a.SetLinger(time.Second) }()
		p.OK(a.Close())
		if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		p.OK(b.Close())
	})
}

// A time to linger must not be negative, and a closed connection has no keepalives.
func TestRefusedOptions(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		if err := a.SetLinger(-1); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("linger for -1 ns: %v", err)
		}
		p.OK(a.SetKeepAlive(time.Second))
		p.OK(a.Close())
		if err := a.SetKeepAlive(time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("keepalives when closed: %v", err)
		}
		p.OK(b.Close())
	})
}

// If the peer does not answer, Close waits for the time of SetLinger, but two seconds at most.
func TestLinger(t *testing.T) {
	for linger, want := range map[time.Duration]time.Duration{
		0: 0, 100 * time.Millisecond: 100 * time.Millisecond, 2 * time.Second: 2 * time.Second, time.Hour: 2 * time.Second,
	} {
		inBubble(t, rdmatest.Faults{}, func(p *places) {
			a, b := p.pair(rsocket.Options{}, rsocket.Options{})
			synctest.Wait()
			p.OK(a.SetLinger(linger))
			p.OK(b.SetLinger(0))
			p.Fab.Cut(p.A.Addr, p.B.Addr)
			must(a.Write([]byte("lost")))(p)
			start := time.Now()
			p.OK(a.Close())
			if took := time.Since(start); took != want {
				t.Errorf("with %v it took %v, want %v", linger, took, want)
			}
			p.OK(b.Close())
			time.Sleep(time.Hour) // until the rest has given up
		})
	}
}

// Close lingers: data that is written, and not acknowledged yet, arrives.
func TestCloseWaitsForAcknowledgements(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		restore := p.LoseRequests()
		must(a.Write([]byte("last words")))(p)
		closed := make(chan error)
		go func() { closed <- a.Close() }()
		synctest.Wait()
		restore()
		got, err := io.ReadAll(b)
		if string(got) != "last words" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		p.OK(b.Close())
		p.OK(<-closed)
	})
}

// Close ends a CloseWrite that waits for the peer's acknowledgement, and does not wait for it.
func TestCloseEndsCloseWrite(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		synctest.Wait()
		p.OK(a.SetLinger(0))
		p.OK(b.SetLinger(0))
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		must(a.Write([]byte("lost")))(p)
		ended := make(chan error)
		go func() { ended <- a.CloseWrite() }()
		synctest.Wait()
		begin := time.Now()
		p.OK(a.Close())
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		p.OK(b.Close())
		time.Sleep(time.Hour) // until the rest has given up
	})
}
