package cm

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// ListenParams are the requests that a listener takes: those for the service ID whose type of QP and whose address
// match.
type ListenParams struct {
	Service cmmsg.ServiceID
	UD      bool            // look-ups (SIDR_REQ) instead of requests for connections
	Kind    cmmsg.Transport // of connections

	// Addr is the address that the peer's IP header must name. An unspecified address, 0.0.0.0 or ::, matches
	// any; with AFOnly, any of its family. The zero Addr matches any, and requests without an IP header; so does
	// an unspecified address without AFOnly.
	Addr   netip.Addr
	AFOnly bool

	// MTU limits the path MTU of requests, as a code, 1 to 5, in addition to that of the port; 0 means no limit.
	MTU uint8

	// GID: Addr stands for a GID, and requests to it need no IP header.
	GID bool

	// Backlog limits the requests that the program has not fetched. Listeners of one program on several devices
	// may share it. nil means a separate one of MaxBacklog.
	Backlog *Backlog

	// MaxHalfOpen limits the handshakes of unknown sources, and of known ones, that are half-open or wait for the
	// program; 0 means DefaultMaxHalfOpen.
	MaxHalfOpen int

	Context any // the caller's
}

// Listener takes requests for a service ID.
type Listener struct {
	Context any
	p       ListenParams

	// By the class of the source: half-open handshakes, and requests that the program has not answered.
	half      [2]idList
	undecided [2]int

	service int64    // mean time from a request to its answer, at most maxService
	turn    [2]int64 // in a flood, the times from which the next new and the next repeated request are taken
}

// Params are the parameters of the listener.
func (l *Listener) Params() ListenParams { return l.p }

// MaxBacklog is the largest backlog, and the default.
const MaxBacklog = 1024

// Backlog counts the requests that the program has not fetched, up to a limit. Several machines may use it.
type Backlog struct {
	limit int64
	used  atomic.Int64
}

// NewBacklog returns a backlog for n requests, for MaxBacklog if n is below 1 or above MaxBacklog.
func NewBacklog(n int) *Backlog {
	if n < 1 || n > MaxBacklog {
		n = MaxBacklog
	}
	return &Backlog{limit: int64(n)}
}

// Used is the number of requests that hold a place.
func (b *Backlog) Used() int { return int(b.used.Load()) }

func (b *Backlog) full() bool { return b.used.Load() >= b.limit }

func (b *Backlog) enter() bool {
	if b.used.Add(1) > b.limit {
		b.used.Add(-1)
		return false
	}
	return true
}

func (b *Backlog) leave() { b.used.Add(-1) }

// Listen begins to take requests (ib_cm_listen), also those that have come since another listener at the port
// ended, if that was just now. EADDRINUSE: there is a listener for the same requests.
func (m *Machine) Listen(now int64, p ListenParams, out *Batch) (*Listener, error) {
	if p.Addr.IsValid() {
		p.Addr = p.Addr.Unmap().WithZone("")
	}
	if p.Backlog == nil {
		p.Backlog = NewBacklog(0)
	}
	if p.MaxHalfOpen == 0 {
		p.MaxHalfOpen = DefaultMaxHalfOpen
	}
	for _, l := range m.listeners[p.Service] {
		if q := l.p; q.UD == p.UD && q.Kind == p.Kind && q.Addr == p.Addr && q.AFOnly == p.AFOnly {
			return nil, &Error{Op: "listen", Detail: "somebody listens for " + p.Service.String() + " at that address already",
				Errno: syscall.EADDRINUSE}
		}
	}
	l := &Listener{Context: p.Context, p: p}
	m.listeners[p.Service] = append(m.listeners[p.Service], l)
	m.admitWaiting(now, p.Service, out)
	return l, nil
}

// Unlisten ends l. Requests that it has handed up stay: the caller answers or destroys them.
func (m *Machine) Unlisten(now int64, l *Listener) {
	s := l.p.Service
	if i := slices.Index(m.listeners[s], l); i >= 0 {
		m.listeners[s] = slices.Delete(m.listeners[s], i, i+1)
	}
	if len(m.listeners[s]) == 0 {
		delete(m.listeners, s)
		m.noteEnd(now, s)
	}
}

// admit finds the listener for a request, or the reason for which there is none.
func (m *Machine) admit(back *link.Path, r cmmsg.REQ) (l *Listener, reason cmmsg.Reason, ari []byte) {
	kind := r.Transport()
	listens := false
	for _, l := range m.listeners[r.ServiceID()] {
		listens = listens || !l.p.UD
	}
	switch local := cmmsg.GID(back.Src); {
	case !listens:
		return nil, cmmsg.RejInvalidServiceID, nil
	case kind != cmmsg.RC && kind != cmmsg.UC && kind != cmmsg.XRC:
		return nil, cmmsg.RejInvalidTransport, nil
	case r.Primary().LocalGID() != cmmsg.GID(back.Dst) || r.Primary().RemoteGID() != local:
		m.ari = local
		return nil, cmmsg.RejInvalidGID, m.ari[:]
	}
	l = m.match(r.ServiceID(), false, kind, back, r.Private())
	if l == nil {
		return nil, cmmsg.RejConsumer, nil
	}
	if limit := m.mtuLimit(l, back.Src); r.MTU() < 1 || r.MTU() > limit {
		m.ari[0] = limit
		return nil, cmmsg.RejInvalidMTU, m.ari[:1]
	}
	return l, 0, nil
}

// mtuLimit is the code of the largest path MTU that a listener takes at a local address.
func (m *Machine) mtuLimit(l *Listener, local netip.Addr) uint8 {
	limit := uint8(5)
	if m.cfg.MTU != nil {
		limit = m.cfg.MTU(local)
	}
	if l.p.MTU != 0 {
		limit = min(limit, l.p.MTU)
	}
	return limit
}

// match finds the listener that fits a request's IP header best. A listener for the address precedes one for any
// address.
func (m *Machine) match(s cmmsg.ServiceID, ud bool, kind cmmsg.Transport, back *link.Path,
	private []byte) (best *Listener) {
	h := cmmsg.IPHeader(private[:cmmsg.IPHeaderLen])
	dst := h.Dst()
	if dst.IsValid() && (h.Version() != 0 || !plausible(h.Src(), back.Dst)) {
		return nil
	}
	rank, gid := 0, back.Src.Unmap().WithZone("")
	for _, l := range m.listeners[s] {
		if l.p.UD != ud || !ud && l.p.Kind != kind {
			continue
		}
		if n := l.p.fits(dst, gid); n > rank {
			best, rank = l, n
		}
	}
	return best
}

// fits ranks a listener for a request that was received at gid and names the address dst, the zero Addr if it names
// none. 0 means that the listener does not fit.
func (p *ListenParams) fits(dst, gid netip.Addr) int {
	any := !p.Addr.IsValid() || p.Addr.IsUnspecified()
	switch {
	case p.Addr.IsValid() && p.Addr == dst, p.GID && p.Addr == gid:
		return 3
	case any && p.AFOnly && p.Addr.IsValid() && dst.IsValid() && p.Addr.Is4() == dst.Is4():
		return 2
	case any && !p.AFOnly:
		return 1
	}
	return 0
}

// plausible reports whether a request that came from ip may name src as its source: only ip itself. Otherwise the peer
// chose the address that a program sees, and with it passed for another host. On RoCE the source address of a request
// is its GID, in Linux too.
func plausible(src, ip netip.Addr) bool { return src.Unmap() == ip.Unmap().WithZone("") }

// Limit is the number of requests that may hold a place.
func (b *Backlog) Limit() int { return int(b.limit) }
