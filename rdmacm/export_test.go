package rdmacm

import (
	"fmt"
	"strings"

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
func (h *Host) deviceOf(ctx *verbs.Context) *device {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if d.ctx == ctx {
			return d
		}
	}
	return nil
}

// Remove does what the end of a device does.
func (h *Host) Remove(ctx *verbs.Context) { h.deviceOf(ctx).remove() }

// Move does what a change of the GID table does, of the hardware's address too if hardware is set.
func (h *Host) Move(ctx *verbs.Context, hardware bool) { h.deviceOf(ctx).moved(hardware) }

// LoadPath asks the peer of a connection for an alternate path, the same as it has.
func (id *ID) LoadPath() error {
	return id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
		return m.LoadPath(now, id.cmid, id.cmid.Path(), 0, nil, out)
	})
}

// MailPath is the way of the messages about the connection.
func (id *ID) MailPath() cm.Path {
	id.mu.Lock()
	defer id.mu.Unlock()
	return *id.cmid.Path()
}

// AnswerLookup answers a look-up with any Q_Key.
func (id *ID) AnswerLookup(qpn, qkey uint32) error {
	return id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
		return m.Answer(now, id.cmid, &cm.AnswerParams{QPN: qpn, QKey: qkey}, out)
	})
}

// Left says what a host still has of IDs, ports and connections, empty if nothing.
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
		if d.started {
			d.mu.Lock()
			note("connections", d.machine.Live())
			d.mu.Unlock()
		}
	}
	return strings.Join(left, ", ")
}
