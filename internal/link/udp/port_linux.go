package udp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// rxSocket is a receive socket, bound to addr and the RoCEv2 port.
type rxSocket struct {
	fd   int
	addr netip.Addr // a local address or a group
}

// txSocket is a transmit socket, bound to addr and its own source port.
type txSocket struct {
	fd   int
	addr netip.Addr
	port uint16
}

// port is one shard's sockets. The lock is for changes of the addresses: Send and Recv take
// it, once for each batch, and find it free.
type port struct {
	link  *Link
	index int
	wait  *waiter

	mu     sync.Mutex
	rx     []rxSocket
	tx     []txSocket
	sender sender
	verify verifier
	events [16]unix.EpollEvent // for Recv

	counters counters
}

func newPort(l *Link, index int) (*port, error) {
	w, err := newWaiter()
	if err != nil {
		return nil, err
	}
	p := &port{link: l, index: index, wait: w}
	p.sender.init()
	return p, nil
}

// add takes over a receive socket, and a transmit socket unless that is the zero value.
func (p *port) add(rx rxSocket, tx txSocket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.wait.watch(rx.fd); err != nil {
		return fmt.Errorf("link/udp: watching the socket of %v: %w", rx.addr, err)
	}
	p.rx = append(p.rx, rx)
	if tx.addr.IsValid() {
		p.tx = append(p.tx, tx)
		p.sender.forget()
	}
	return nil
}

// remove closes the sockets of one address or group.
func (p *port) remove(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rx = slices.DeleteFunc(p.rx, func(s rxSocket) bool {
		if s.addr == a {
			unix.Close(s.fd)
		}
		return s.addr == a
	})
	p.tx = slices.DeleteFunc(p.tx, func(s txSocket) bool {
		if s.addr == a {
			unix.Close(s.fd)
		}
		return s.addr == a
	})
	p.sender.forget()
}

func (p *port) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait.close()
	closeAll(p.rx, p.tx)
	p.rx, p.tx = nil, nil
	p.sender.forget()
}

// Wait parks the caller; see link.Port.
func (p *port) Wait(d time.Duration) { p.wait.wait(d) }

// Wake ends a Wait; see link.Port.
func (p *port) Wake() { p.wait.wake() }

// Counters reads the counters.
func (p *port) Counters() link.Counters { return p.counters.read() }
