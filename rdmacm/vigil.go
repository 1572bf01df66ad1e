package rdmacm

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
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

// askEvery is the time between two packets to an address, which tests shorten while devices of others have timers.
var askEvery atomic.Int64

func init() { askEvery.Store(int64(5 * time.Second)) }

// vigilEnds are the addresses of a connection, without zones.
type vigilEnds struct{ src, dst netip.Addr }

// vigil is the state of a manager's questions to the hosts of its peers.
type vigil struct {
	onInterfaces bool            // the device sends through network interfaces: there are hosts to ask
	life         context.Context // of the manager
	end          context.CancelFunc
	suspects     []*ID       // of the last question; of keepVigil
	next         *time.Timer // calls keepVigil; nil while there are no IDs; guarded by manager.mu
}

// newVigil makes the vigil of a device.
func newVigil(d *device) (v vigil) {
	if table, err := d.ctx.QueryGIDTable(); err == nil {
		v.onInterfaces = slices.ContainsFunc(table, func(e verbs.GIDEntry) bool { return e.NetDev != "" })
	}
	v.life, v.end = context.WithCancel(context.Background())
	return v
}

// startVigil makes keepVigil run after the time wait, unless it will run already or there are no IDs to watch over.
//
// +checklocks:m.mu
func (m *manager) startVigil(wait time.Duration) {
	if v := &m.vigil; v.next == nil && v.onInterfaces && !m.closed && m.machine.Live() > 0 {
		v.next = time.AfterFunc(wait, m.keepVigil)
	}
}

// keepVigil asks once, and sets the timer for the next time unless no ID is left.
func (m *manager) keepVigil() {
	peers, ok := m.vigilPeers()
	if !ok {
		return
	}
	defer m.ended.Done()
	v := &m.vigil
	for _, id := range v.suspects {
		id.suspect(false)
	}
	v.suspects = m.suspects(m.closedPorts(v.life, peers))
	for _, id := range v.suspects {
		id.suspect(true)
	}
	wait := time.Duration(askEvery.Load())
	if len(v.suspects) > 0 {
		wait = suspectFor
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v.next = nil
	m.startVigil(wait)
}

// vigilPeers returns the peers of all connections; false if the manager has ended. Otherwise end waits for
// ended.Done.
func (m *manager) vigilPeers() (peers map[vigilEnds]struct{}, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, false
	}
	m.ended.Add(1)
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

// suspect makes the connection check its peer soon, or ends that: the QP has another keep-alive than the program's
// meanwhile, unless that is the shorter one.
func (id *ID) suspect(on bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.conn != connEstablished || id.qp == nil || !id.sends() || id.keepAlive != 0 && id.keepAlive <= suspectIdle {
		return
	}
	idle := id.keepAlive
	if on {
		idle = suspectIdle
	}
	_ = id.qp.SetKeepAlive(idle)
}
