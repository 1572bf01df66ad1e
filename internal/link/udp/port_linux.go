package udp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// An rxSocket is a receive socket, bound to addr and the RoCEv2 port.
type rxSocket struct {
	fd     int
	addr   netip.Addr // a local address or a group
	shared bool       // other processes have the socket open too
	index  int        // in the group of processes: see host.SocketOf
	group  forwarder  // of a shared socket, for packets of other processes
}

// gsi reports whether s is the socket of QP 1.
func (s *rxSocket) gsi() bool { return s.shared && s.index == host.GSI }

// ownerless reports whether s receives packets for several processes.
func (s *rxSocket) ownerless() bool { return s.shared && s.index < host.FirstSlot }

// foreign reports whether a packet may belong to another process.
func (s *rxSocket) foreign(pkt []byte) bool {
	return s.shared && (s.ownerless() || host.SocketOf(wire.BTH(pkt).DestQPN()) != s.index)
}

// A txSocket is a transmit socket, bound to addr and its own source port.
type txSocket struct {
	fd   int
	addr netip.Addr
	port uint16
}

// A port is the sockets of one shard. The lock is for changes of the addresses: Send and Recv lock it once for each
// batch, without contention.
type port struct {
	link  *Link
	index int
	wait  *waiter

	mu sync.Mutex
	rx []rxSocket
	// direct is the index of the socket that Recv reads without epoll_wait: the one besides that of QP 1 that had
	// packets last. scans is the number of reads from one epoll_wait to the next, a power of two. direct is -1 if there is
	// no such socket.
	direct int
	scans  uint
	// +checklocks:mu
	turn    uint
	woken   atomic.Bool // Wait has returned: the next Recv reads all sockets that have packets
	gsiMore bool        // the socket of QP 1 had many packets
	// filled: the last read of recvDirect got as many messages as it asked for. Otherwise the next one asks for one
	// message: to find that there is no second one takes the kernel a third of the time of a read.
	filled   bool
	strays   []*strayReader // of the addresses at which this process leads
	tx       []*txSocket    // of each address the first is for paths without a source port
	more     another        // when a further source port may be opened
	sender   sender
	lender   lender
	attempts attempts // to find a multicast group
	verify   verifier
	events   [16]unix.EpollEvent // for Recv

	unreached unreached // nil while no ICMP message says that a peer cannot be reached

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

// add takes over a receive socket, and a transmit socket unless it is nil.
func (p *port) add(rx rxSocket, tx *txSocket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.wait.watch(rx.fd); err != nil {
		return fmt.Errorf("link/udp: watching the socket of %v: %w", rx.addr, err)
	}
	p.rx = append(p.rx, rx)
	p.findDirect()
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
	p.findDirect()
	p.strays = slices.DeleteFunc(p.strays, func(r *strayReader) bool {
		if r.rx.addr == a {
			r.close()
		}
		return r.rx.addr == a
	})
	p.tx = slices.DeleteFunc(p.tx, func(s *txSocket) bool {
		if s.addr == a {
			unix.Close(s.fd)
		}
		return s.addr == a
	})
	p.sender.forget()
}

// drop closes a socket. It stops watching it first, because other processes may have a shared socket open.
func (p *port) drop(s rxSocket) {
	p.wait.unwatch(s.fd)
	unix.Close(s.fd)
}

// findDirect updates direct and scans after a change of the sockets.
func (p *port) findDirect() {
	p.direct, p.scans = -1, gsiTurns
	for i := range p.rx {
		switch {
		case p.rx[i].gsi():
		case p.direct < 0:
			p.direct = i
		default:
			p.scans = someTurns
		}
	}
}

func (p *port) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.rx {
		p.drop(s)
	}
	for _, r := range p.strays {
		r.close()
	}
	p.wait.close()
	closeAll(nil, p.tx)
	p.lender.close()
	p.rx, p.tx, p.strays = nil, nil, nil
	p.findDirect()
	p.sender.forget()
}

// Wait parks the caller; see link.Port.
func (p *port) Wait(d time.Duration) {
	p.wait.wait(d)
	p.woken.Store(true)
}

// Wake ends a Wait; see link.Port.
func (p *port) Wake() { p.wait.wake() }

// Counters returns the counters.
func (p *port) Counters() link.Counters {
	c := p.counters.read()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.rx {
		if p.rx[i].gsi() {
			c.MailDropped += p.rx[i].group.MailDropped()
		}
	}
	return c
}
