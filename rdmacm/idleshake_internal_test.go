package rdmacm

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// shaking is a listener, and a host from which it is dialed.
type shaking struct {
	t      *testing.T
	ctx    context.Context
	l      *Listener
	client *Host
}

func newShaking(t *testing.T, prepare func(*ID) error) *shaking {
	t.Helper()
	hosts := hereAndThere(t)
	for _, h := range hosts {
		t.Cleanup(func() { _ = h.Close() })
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	l, err := Listen(ctx, netip.AddrPortFrom(fuzzThere, 0).String(), &Options{Host: hosts[1], Prepare: prepare})
	if err != nil {
		t.Fatal(err)
	}
	return &shaking{t, ctx, l, hosts[0]}
}

// connect makes and ends connections at the same time.
func (s *shaking) connect(many int) {
	s.t.Helper()
	var dials sync.WaitGroup
	defer dials.Wait()
	for range many {
		dials.Go(func() {
			id, err := Dial(s.ctx, s.l.Addr().String(), &Options{Host: s.client})
			if err != nil {
				s.t.Error(err)
				return
			}
			_ = id.Disconnect(s.ctx)
			_ = id.Close()
		})
	}
	for range many {
		id, err := s.l.Accept(s.ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		_ = id.Disconnect(s.ctx)
		_ = id.Close()
	}
}

// waiting checks how many goroutines wait for requests.
func (s *shaking) waiting(want int32) {
	s.t.Helper()
	for s.l.idle.Load() != want && s.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n := s.l.idle.Load(); n != want {
		s.t.Errorf("%d goroutines wait for requests, want %d", n, want)
	}
}

// close closes the listener, which waits for the goroutines.
func (s *shaking) close() {
	s.t.Helper()
	if err := s.l.Close(); err != nil {
		s.t.Error(err)
	}
}

// The goroutines of handshakes wait for more requests, but not more than maxIdle of them, and Close ends them.
func TestGoroutinesWaitForRequests(t *testing.T) {
	const many = maxIdle + 40
	var begun sync.WaitGroup
	begun.Add(many)
	s := newShaking(t, func(*ID) error { // all handshakes are in progress at the same time
		begun.Done()
		begun.Wait()
		return nil
	})
	s.connect(many)
	s.waiting(maxIdle)
	s.close()
}

// A request gets a goroutine that waits: one after the other they need one, or two if it does not wait yet.
func TestHandshakesInTheSameGoroutine(t *testing.T) {
	s := newShaking(t, nil)
	const requests = 20
	for range requests {
		s.connect(1)
		time.Sleep(time.Millisecond)
	}
	if n := s.l.idle.Load(); n > requests/2 {
		t.Errorf("%d goroutines for %d requests, one after the other", n, requests)
	}
	s.close()
}
