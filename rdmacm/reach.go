package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A request that gets no answer, to connect or to disconnect, is repeated for over a minute. If the system knows
// meanwhile that nothing arrives, the request fails with that reason: a firewall of this host, or an ICMP message of
// the peer or a router. The packets of requests do not show it, as QP 1 sends them for all connections: a packet that
// every receiver drops does.

const (
	// reachAfter is how long a request waits for its answer before the system is asked.
	reachAfter = 100 * time.Millisecond
	// reachFor is how long the system has for its answer: address resolution takes three seconds to fail, and the peer
	// sends one ICMP message per second, of which the requests themselves get some.
	reachFor = 10 * time.Second
)

// watchReach asks the system whether the peer can be reached, if the request c is not answered soon.
//
// +checklocks:id.mu
func (id *ID) watchReach(c *cm.ID) {
	if !id.dev.onInterface(id.sgid) {
		return
	}
	src, dst := id.packetsTo()
	all, ends := &id.dev.cm.asking, askedEnds{src, dst.Addr()}
	id.endWatch()
	id.watch = time.AfterFunc(reachAfter, func() {
		if !id.requesting(c) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), reachFor)
		defer cancel()
		ctx, leave := all.join(ctx, ends)
		defer leave()
		go id.stopAsking(ctx, cancel, c)
		err := lookup.Unreachable(ctx, src, dst, wire.Harmless)
		if err != nil {
			all.tell(ends, err)
		} else {
			err = heard(ctx)
		}
		if err != nil {
			id.onUnreachable(c, err)
		}
	})
}

// endWatch ends watchReach, unless it has asked the system already.
//
// +checklocks:id.mu
func (id *ID) endWatch() {
	if id.watch != nil {
		id.watch.Stop()
		id.watch = nil
	}
}

// packetsTo returns the addresses of packets to the peer.
//
// +checklocks:id.mu
func (id *ID) packetsTo() (src netip.Addr, dst netip.AddrPort) {
	return id.zoned(id.local).Addr(), id.zoned(netip.AddrPortFrom(id.remote.Addr(), wire.Port))
}

// stopAsking ends ctx when c has its answer.
func (id *ID) stopAsking(ctx context.Context, cancel func(), c *cm.ID) {
	tick := time.NewTicker(reachAfter)
	defer tick.Stop()
	for id.requesting(c) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	cancel()
}

// requesting reports whether the request c waits for an answer, of which nothing has been heard yet.
func (id *ID) requesting(c *cm.ID) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.waitsFor(c)
}

// waitsFor is requesting for callers that hold id.mu.
//
// +checklocks:id.mu
func (id *ID) waitsFor(c *cm.ID) bool {
	if id.state == stDestroying || id.state == stRemoved || id.cmid != c {
		return false
	}
	switch id.dev.cm.state(c) {
	case cm.StateREQSent, cm.StateSIDRREQSent:
		return id.conn == connRequesting
	case cm.StateDREQSent:
		return true
	}
	return false
}

// onUnreachable ends a request that cannot arrive. An ICMP message alone does not end a connection that this side does
// not end.
func (id *ID) onUnreachable(c *cm.ID, err error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case !id.waitsFor(c):
	case id.dev.cm.state(c) == cm.StateDREQSent:
		id.unreachable = err
		id.dev.cm.giveUp(c)
	default:
		id.dev.cm.destroy(c)
		id.report(inTimeout, &Event{Type: EventUnreachable, Status: -int(errnoOf(err)), cause: err})
	}
}

// onSilence ends a handshake whose request, or reply, had no answer. For a request the system was asked before
// (watchReach). For a reply it is asked now, with one short packet, as the request may be forged.
//
// +checklocks:id.mu
func (id *ID) onSilence(reply bool) {
	ev := &Event{Type: EventUnreachable, Status: -int(syscall.ETIMEDOUT)}
	if !id.dev.onInterface(id.sgid) {
		id.report(inTimeout, ev)
		return
	}
	src, dst := id.packetsTo()
	what := "request"
	if reply {
		what = "reply"
		if err := lookup.Withheld(src, dst, wire.Harmless); err != nil {
			ev.Status, ev.cause = -int(errnoOf(err)), fmt.Errorf("no answer came to the reply: %w", err)
		}
	}
	if ev.cause == nil {
		ev.cause = fmt.Errorf("no answer came to the %s; a firewall or address translation may drop it, or the answer "+
			"(UDP port %d); verbena doctor %v looks for the cause: %w", what, wire.Port, dst.Addr(), syscall.ETIMEDOUT)
	}
	id.report(inTimeout, ev)
}
