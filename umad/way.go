package umad

import (
	"context"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

// A way is how the datagrams of a share travel: by a QP 1 of this process (own.go), or by the kernel's (kernel.go).
type way interface {
	run()  // dispatches datagrams until stop, or until the device is removed
	stop() // ends run; the result of it may come later
	close() error
	removed() bool // the device was removed: run ends, or has ended

	register(a *Agent) error // a.num is set
	unregister(a *Agent)

	send(a *Agent, to *Address, mad MAD) error
	// ask sends a request, whose answer is expected already, and waits for the answer.
	ask(ctx context.Context, a *Agent, to *Address, request MAD, r retry, answer <-chan *Received) (*Received, error)
	flush()
}

// retry is when a request is sent again, and how often.
type retry struct {
	after time.Duration
	times int
}

// openWay opens QP 1 of a device.
func openWay(s *share, dev *verbs.Device) (way, error) {
	if gsi.Refused(dev) != nil {
		return openKernel(s, dev)
	}
	return openOwn(s, dev)
}

// localEntry returns the GID table entry of a local address: one of RoCE v2 before others, and then the last one, since
// the first may be the default GID.
func localEntry(ctx *verbs.Context, to *Address) (found verbs.GIDEntry, err error) {
	table, err := ctx.QueryGIDTable()
	if err != nil {
		return found, err
	}
	gid := verbs.GIDFromAddr(to.Local)
	for _, e := range table {
		if e.GID == gid && (found.Port == 0 || e.Type == verbs.GIDTypeRoCEv2 || found.Type != verbs.GIDTypeRoCEv2) {
			found = e
		}
	}
	if found.Port == 0 {
		return found, fail(syscall.EADDRNOTAVAIL, "send: local address %v: must be an address of %s", to.Local,
			ctx.Device().Name())
	}
	return found, nil
}
