package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/rdmacm"
)

const (
	inFlight    = 64    // connections that are set up or torn down at a time
	connectRate = 5000  // target, connections per second
	idleBytes   = 16384 // target, bytes of an idle connection in each process
	acceptParts = 10    // the connections are divided into so many parts; the last is compared with the first
)

// connections measures the rate at which connections are made and ended, then the memory of many idle ones.
func connections(c *config) ([]result, error) {
	rate := result{Name: "connect", What: "connections made and ended, 64 at a time", Unit: "connections/s",
		Base: connectRate, Target: 1}
	idle := result{Name: "idle", What: "an idle connection, memory", Unit: "small bytes", Base: idleBytes, Target: 1,
		AtMost: true}
	tcp := result{Name: "connect-tcp", What: rate.What, BaseOf: "TCP", Unit: rate.Unit}
	last := result{Name: "accept", What: "the last of " + term.Count(uint64(c.qps)) + " connections",
		BaseOf: "the first", Unit: "s", Target: 1.5, AtMost: true}
	p, err := endpoint.Start()
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	d := &dialer{}
	if err := p.Call("Accept", endpoint.None{}, &d.to); err != nil {
		return nil, err
	}
	d.to = netip.AddrPortFrom(p.There, d.to.Port())
	if err := d.keep(inFlight); err != nil { // the first connections open devices and allocate tables
		return nil, err
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	err = rate.constant(c, func() (float64, error) { return d.rate(c.each) })
	if err != nil {
		return nil, err
	}
	var to netip.AddrPort
	if err := p.Call("TCP", p.There, &to); err != nil {
		return nil, err
	}
	err = tcp.rounds(c, func() (float64, error) { return d.rate(c.each) },
		func() (float64, error) { return inParallel(c.each, func() error { return connectTCP(to) }) })
	if err != nil {
		return nil, err
	}
	err = last.rounds(c, func() (float64, error) {
		bytes, first, late, err := d.fill(p, c.qps)
		idle.RDMA = max(idle.RDMA, bytes)
		last.Base = first
		return late, err
	}, func() (float64, error) { return last.Base, nil })
	idle.Ratio = idle.RDMA / idle.Base
	idle.judge()
	return []result{rate, tcp, idle, last}, err
}

// dialer connects to the second process.
type dialer struct {
	to   netip.AddrPort
	kept []*rdmacm.ID
}

func (d *dialer) dial() (*rdmacm.ID, error) {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return rdmacm.Dial(c, d.to.String(), &rdmacm.Options{QP: endpoint.CMQueues})
}

// rate returns how many connections per second are made and ended.
func (d *dialer) rate(each time.Duration) (float64, error) {
	return inParallel(each, func() error {
		id, err := d.dial()
		if err != nil {
			return err
		}
		return hangUp(id)
	})
}

// inParallel returns how often per second inFlight goroutines call do.
func inParallel(each time.Duration, do func() error) (float64, error) {
	var count atomic.Int64
	begin := time.Now()
	err := parallel(func() error {
		for time.Since(begin) < each {
			if err := do(); err != nil {
				return err
			}
			count.Add(1)
		}
		return nil
	})
	return float64(count.Load()) / time.Since(begin).Seconds(), err
}

// connectTCP makes a TCP connection and ends it on both sides.
func connectTCP(to netip.AddrPort) error {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	err = c.CloseWrite()
	_, end := io.Copy(io.Discard, c)
	return errors.Join(err, end, c.Close())
}

func hangUp(id *rdmacm.ID) error {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(id.Disconnect(c), id.Close())
}

// keep makes n connections, inFlight at a time, and keeps them open.
func (d *dialer) keep(n int) error {
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(n))
	return parallel(func() error {
		for left.Add(-1) >= 0 {
			id, err := d.dial()
			if err != nil {
				return err
			}
			mu.Lock()
			d.kept = append(d.kept, id)
			mu.Unlock()
		}
		return nil
	})
}

// end closes the connections that keep made.
func (d *dialer) end() error {
	var next atomic.Int64
	err := parallel(func() error {
		for {
			i := next.Add(1) - 1
			if i >= int64(len(d.kept)) {
				return nil
			}
			if err := hangUp(d.kept[i]); err != nil {
				return err
			}
		}
	})
	d.kept = nil
	return err
}

// fill makes n connections. It returns the memory per connection in the process where that is larger, and
// the time per connection of the first and the last part.
func (d *dialer) fill(p *endpoint.Pair, n int) (bytes, first, last float64, err error) {
	there, here, err := heaps(p)
	if err != nil {
		return 0, 0, 0, err
	}
	part := max(1, n/acceptParts)
	var took [3]time.Duration
	for i, k := range []int{part, n - 2*part, part} {
		begin := time.Now()
		if err := d.keep(max(0, k)); err != nil {
			return 0, 0, 0, err
		}
		took[i] = time.Since(begin)
	}
	there2, here2, err := heaps(p)
	if err != nil {
		return 0, 0, 0, err
	}
	bytes = max(there2-there, here2-here) / float64(n)
	return bytes, took[0].Seconds() / float64(part), took[2].Seconds() / float64(part), d.end()
}

func heaps(p *endpoint.Pair) (there, here float64, err error) {
	var bytes uint64
	err = p.Call("Heap", endpoint.None{}, &bytes)
	return float64(bytes), float64(endpoint.Heap()), err
}

// parallel runs f in inFlight goroutines and returns the first error.
func parallel(f func() error) error {
	errs := make(chan error, inFlight)
	for range inFlight {
		go func() { errs <- f() }()
	}
	var first error
	for range inFlight {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
