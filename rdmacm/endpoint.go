package rdmacm

import (
	"bytes"
	"context"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// endpoint is the part of an ID that CreateEP has made.
type endpoint struct {
	pd      *verbs.PD         // passive: for the QPs of requests
	init    *verbs.QPInitAttr // passive: those QPs; nil for none
	connect []byte            // active: prefix of the private data
}

// epTimeout is the time-out of each step of an active CreateEP.
const epTimeout = 2 * time.Second

// CreateEP makes a synchronous ID from a result of GetAddrInfo on the default host (rdma_create_ep).
func CreateEP(ctx context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) (*ID, error) {
	return defaultHost.CreateEP(ctx, res, pd, init)
}

// CreateEP makes a synchronous ID from the first of the results of GetAddrInfo (rdma_create_ep). An active ID can
// Connect: its route is resolved, and with init it has a QP, in pd or the default PD; init gets the type of res, the
// actual sizes and the CQs. A passive ID can Listen: its address is bound, and with init, which is copied, each ID of
// GetRequest has a QP, in pd or the default PD. Migrate makes it asynchronous. Close destroys it with QP and SRQ. If a
// step fails everything is destroyed.
//
// EINVAL without a result; otherwise the errors of CreateID and of BindAddr, or of ResolveAddr, ResolveRoute and
// CreateQP. Each of the two steps of resolving waits for 2 s at most, and no longer than ctx.
func (h *Host) CreateEP(ctx context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) (*ID, error) {
	return h.createEP(ctx, res, pd, init, func(*ID) error { return nil })
}

// createEP is CreateEP, which calls set on the new ID before anything depends on its options.
func (h *Host) createEP(
	ctx context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr, set func(*ID) error,
) (*ID, error) {
	if res == nil {
		return nil, &Error{Op: "create_ep", Errno: syscall.EINVAL, Detail: "no address: must be a result of GetAddrInfo"}
	}
	id, err := h.CreateID(nil, res.PortSpace, nil)
	if err != nil {
		return nil, err
	}
	id.qpType = res.QPType
	id.setEndpoint(res, pd, init)
	if err = set(id); err == nil && res.Flags&RAIPassive != 0 {
		err = id.bind(res)
	} else if err == nil {
		err = id.prepare(ctx, res, pd, init)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

// setEndpoint keeps what Connect and GetRequest need.
func (id *ID) setEndpoint(res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.ep = &endpoint{connect: bytes.Clone(res.Connect)}
	if res.Flags&RAIPassive == 0 {
		return
	}
	if id.ep.pd = pd; init != nil {
		copied := *init
		copied.Type = res.QPType
		id.ep.init = &copied
	}
}

// prepare resolves address and route and creates the QP, as Connect needs.
func (id *ID) prepare(ctx context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) error {
	if err := id.resolveTo(ctx, res); err != nil {
		return err
	}
	if len(res.Route) > 0 {
		if err := id.SetOption(OptionIB, OptionIBPath, res.Route); err != nil {
			return err
		}
		if err := id.complete(ctx, "resolve_route"); err != nil {
			return err
		}
	} else if err := id.ResolveRoute(ctx, epTimeout); err != nil {
		return err
	}
	if init == nil {
		return nil
	}
	init.Type = res.QPType
	return id.CreateQP(pd, init)
}
