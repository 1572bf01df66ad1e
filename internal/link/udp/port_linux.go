package udp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// rxSocket is a receive socket, bound to addr and the RoCEv2 port.
type rxSocket struct {
	fd     int
	addr   netip.Addr   // a local address or a group
	shared bool         // the descriptor is the group's
	index  int          // in the group: a lane, or host.GSI
	sorter *host.Sorter // if it is shared, for what is other processes'
}

// gsi tells whether it is the socket of QP 1.
func (s *rxSocket) gsi() bool { return s.shared && s.index == host.GSI }

// foreign tells whether a packet should perhaps not have come here.
func (s *rxSocket) foreign(pkt []byte) bool {
	return s.shared && (s.index == host.GSI || host.SocketOf(wire.BTH(pkt).DestQPN()) != s.index)
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
	only   int // index of the only socket that is not QP 1's; -1 if there are several
	turn   uint
	tx     []*txSocket // of each address the first is for paths that want no source port
	noMore bool        // no further source port can be opened
	sender sender
	lender lender
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

// add takes over a receive socket, and a transmit socket unless that is nil.
func (p *port) add(rx rxSocket, tx *txSocket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.wait.watch(rx.fd); err != nil {
		return fmt.Errorf("link/udp: watching the socket of %v: %w", rx.addr, err)
	}
	p.rx = append(p.rx, rx)
	p.findOnly()
	if tx != nil {
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
			p.drop(s)
		}
		return s.addr == a
	})
	p.findOnly()
	p.tx = slices.DeleteFunc(p.tx, func(s *txSocket) bool {
		if s.addr == a {
			unix.Close(s.fd)
		}
		return s.addr == a
	})
	p.sender.forget()
}

// drop ends receiving at a socket. A shared one stays open in other processes, and so would stay watched.
func (p *port) drop(s rxSocket) {
	if s.shared {
		p.wait.unwatch(s.fd)
		return
	}
	unix.Close(s.fd)
}

// findOnly keeps the books of the ordinary sockets.
func (p *port) findOnly() {
	p.only = -1
	n := 0
	for i := range p.rx {
		if !p.rx[i].gsi() {
			p.only = i
			n++
		}
	}
	if n != 1 {
		p.only = -1
	}
}

func (p *port) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.rx {
		p.drop(s)
	}
	p.wait.close()
	closeAll(nil, p.tx)
	p.lender.close()
	p.rx, p.tx = nil, nil
	p.findOnly()
	p.sender.forget()
}

// Wait parks the caller; see link.Port.
func (p *port) Wait(d time.Duration) { p.wait.wait(d) }

// Wake ends a Wait; see link.Port.
func (p *port) Wake() { p.wait.wake() }

// Counters reads the counters.
func (p *port) Counters() link.Counters { return p.counters.read() }
