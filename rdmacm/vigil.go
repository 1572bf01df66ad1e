package rdmacm

import (
	"context"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A process that is killed sends no DREQ. If it was the last one of its address, nobody sends its last will, and a
// program that only receives would wait for ever. But its host answers packets with ICMP: the port is closed. So a
// manager with connections sends each peer's address, at intervals, a packet that every receiver drops. An ICMP
// message may be forged, or late: it only makes the connections of that address check their peers, with the WRITE of
// keep-alive. A peer that acknowledges it is alive, and so is one that is merely stopped: its port is open.

const (
	// askPatience is the time for an ICMP message to come.
	askPatience = time.Second
	// suspectIdle is the keep-alive of a connection whose peer's port is closed.
	suspectIdle = time.Second
	// suspectFor is the time in which such a connection fails, or its peer has proved that it is alive.
	suspectFor = 10 * time.Second
)

// askEvery is the time between two packets to an address.
var askEvery = 5 * time.Second

// vigilEnds are the addresses of a connection, without zones.
type vigilEnds struct{ src, dst netip.Addr }

// startVigil starts keepVigil if there are IDs to watch over.
//
// +checklocks:m.mu
func (m *manager) startVigil() {
	if m.vigil != nil || m.closed || m.machine.Live() == 0 || !m.onInterfaces {
		return
	}
	var ctx context.Context
	ctx, m.vigil = context.WithCancel(context.Background())
	m.ended.Go(func() { m.keepVigil(ctx) })
}

// keepVigil asks until no ID is left.
func (m *manager) keepVigil(ctx context.Context) {
	timer := time.NewTimer(askEvery)
	defer timer.Stop()
	var suspects []*ID
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for _, id := range suspects {
			id.acquit()
		}
		peers, more := m.vigilPeers()
		if !more {
			return
		}
		suspects = m.suspects(m.closedPorts(ctx, peers))
		for _, id := range suspects {
			id.suspect()
		}
		timer.Reset(askEvery)
		if len(suspects) > 0 {
			timer.Reset(suspectFor)
		}
	}
}

// vigilPeers returns the peers of all connections. If there are no IDs any more it ends the vigil and returns false.
func (m *manager) vigilPeers() (peers map[vigilEnds]struct{}, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.machine.Live() == 0 {
		m.vigil()
		m.vigil = nil
		return nil, false
	}
	peers = map[vigilEnds]struct{}{}
	m.machine.Established(func(c *cm.ID) { peers[vigilEnds{c.Path().Src, c.Path().Dst}] = struct{}{} })
	return peers, true
}

// closedPorts asks all peers at once, and returns those whose port is closed.
func (m *manager) closedPorts(ctx context.Context, peers map[vigilEnds]struct{}) (closed map[vigilEnds]struct{}) {
	bySource := map[netip.Addr][]netip.AddrPort{}
	for e := range peers {
		src, dst := e.src, e.dst
		if lookup.NeedsZone(dst) {
			zone := m.dev.netDev(m.dev.find(src))
			src, dst = src.WithZone(zone), dst.WithZone(zone)
		}
		bySource[src] = append(bySource[src], netip.AddrPortFrom(dst, wire.Port))
	}
	closed = map[vigilEnds]struct{}{}
	for src, dsts := range bySource {
		for _, dst := range lookup.Closed(ctx, src, dsts, askPatience, wire.Harmless) {
			closed[vigilEnds{src.WithZone(""), dst.Addr().WithZone("")}] = struct{}{}
		}
	}
	return closed
}

// suspects returns the IDs that are connected to a peer whose port is closed.
func (m *manager) suspects(closed map[vigilEnds]struct{}) (ids []*ID) {
	if len(closed) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.Established(func(c *cm.ID) {
		id, ok := c.Context.(*ID)
		if _, dead := closed[vigilEnds{c.Path().Src, c.Path().Dst}]; dead && ok {
			ids = append(ids, id)
		}
	})
	return ids
}

// suspect makes the connection check its peer soon.
func (id *ID) suspect() { id.checkPeer(suspectIdle) }

// acquit ends the checks that suspect has started.
func (id *ID) acquit() { id.checkPeer(0) }

// checkPeer gives the QP another keep-alive than the program's, unless that is the shorter one.
func (id *ID) checkPeer(idle time.Duration) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.conn != connEstablished || id.qp == nil || !id.sends() || id.keepAlive != 0 && id.keepAlive <= suspectIdle {
		return
	}
	if idle == 0 {
		idle = id.keepAlive
	}
	_ = id.qp.SetKeepAlive(idle)
}
