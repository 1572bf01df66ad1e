package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// NewGrowingHost is a host whose list of devices may change.
func NewGrowingHost(list func() ([]*verbs.Device, error)) *Host {
	h := newHost(list)
	h.grow = true
	return h
}

// device finds the host's device of a context.
func (h *Host) deviceOf(vctx *verbs.Context) *device {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if d.ctx == vctx {
			return d
		}
	}
	return nil
}

// Remove removes a device, as its fatal error does.
func (h *Host) Remove(vctx *verbs.Context) { h.deviceOf(vctx).remove() }

// Move has the effects of a change of the GID table, of the hardware's address too if hardware is set.
func (h *Host) Move(vctx *verbs.Context, hardware bool) { h.deviceOf(vctx).moved(hardware) }

// LoadPath asks the peer of a connection for an alternate path, equal to its own.
func (id *ID) LoadPath() error {
	return id.dev.cm.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
		return m.LoadPath(now, id.cmid, id.cmid.Path(), 0, nil, out)
	})
}

// do runs a call of the machine that the package does not use.
func (m *manager) do(f func(m *cm.Machine, now int64, out *cm.Batch) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := f(m.machine, m.now(), &m.batch)
	m.finish()
	return err
}

// live counts the machine's connections.
func (m *manager) live() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Live()
}

// MailPath is the path of the connection's messages.
func (id *ID) MailPath() cm.Path {
	id.mu.Lock()
	defer id.mu.Unlock()
	return *id.cmid.Path()
}

// AnswerLookup answers a look-up, with any Q_Key.
func (id *ID) AnswerLookup(qpn, qkey uint32) error {
	return id.dev.cm.answer(id.cmid, &cm.AnswerParams{QPN: qpn, QKey: qkey})
}

// Left lists the IDs, ports and connections that a host still has, empty if none.
func (h *Host) Left() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var left []string
	note := func(what string, n int) {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	note("ports", len(h.ports))
	note("listeners on all devices", len(h.wild))
	for _, d := range h.devices {
		note("IDs", len(d.users))
		if d.cm != nil {
			note("connections", d.cm.live())
		}
	}
	return strings.Join(left, ", ")
}

// PeerInputs are the inputs of a connection that the peer's messages, or their absence, cause.
var PeerInputs = []connInput{inResponse, inReply, inEstablished, inRejected, inTimeout, inDREQ, inDREP, inSilent}

// Report hands the connection an input with an event.
func (id *ID) Report(in connInput) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.report(in, &Event{Type: EventDisconnected})
}

// Unreachable reports that nothing sent to the peer arrives, as the system does.
func (id *ID) Unreachable(err error) { id.onUnreachable(id.cmid, err) }

// AskEvery sets the time between two packets that ask a peer's host whether its port is open.
func AskEvery(d time.Duration) { askEvery.Store(int64(d)) }

// Suspect begins and ends the checks of a peer whose port is closed.
func (id *ID) Suspect(on bool) { id.suspect(on) }

// PortIsClosed asks the host of a peer whether its port is closed.
func (id *ID) PortIsClosed(ctx context.Context, peer netip.Addr) bool {
	e := vigilEnds{id.local.Addr(), peer}
	_, closed := id.dev.cm.closedPorts(ctx, map[vigilEnds]struct{}{e: {}})[e]
	return closed
}

// FatalOn returns a function that ends the test if its argument is an error.
func FatalOn(tb testing.TB) func(error) {
	return func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// PathAge is how long a host keeps what it has asked the system about a path.
const PathAge = pathAge
