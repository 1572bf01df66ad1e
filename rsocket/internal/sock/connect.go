package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// background is the context of calls on asynchronous IDs, which do not wait.
var background = context.Background()

// Address and route are resolved with increasing time-outs (R-SOCK-15).
const (
	firstResolve = time.Second
	resolveTries = 7
)

// +checklocks:st.mu
func (st *Stream) resolveTimeout() time.Duration { return firstResolve << st.tries }

// Connect starts to connect. Events end it.
func (st *Stream) Connect(id *rdmacm.ID, dst netip.AddrPort) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return syscall.EBADF
	}
	st.id = id
	id.Context = st
	st.state = streamConnecting
	err := SetPathMTU(id, st.opts)
	if err == nil {
		err = id.ResolveAddr(background, netip.AddrPort{}, dst, st.resolveTimeout())
	}
	if err != nil {
		st.fail(connectError(err))
		return st.err
	}
	return nil
}

// SetPathMTU fixes the path MTU of an ID, if the options do.
func SetPathMTU(id *rdmacm.ID, o Options) error {
	if o.PathMTU == 0 {
		return nil
	}
	return id.SetPathMTU(o.PathMTU)
}

// onResolved takes the step that follows an event of address or route resolution. mu is held.
//
// +checklocks:st.mu
func (st *Stream) onResolved(ev *cmEvent) {
	err := ev.Err
	again := errors.Is(err, syscall.ETIMEDOUT) && st.tries+1 < resolveTries
	switch {
	case again:
		st.tries++
	case err == nil:
		st.tries = 0
	}
	switch t := ev.Type; {
	case err != nil && !again:
	case t == rdmacm.EventAddrError:
		err = st.id.ResolveAddr(background, netip.AddrPort{}, st.id.PeerAddr(), st.resolveTimeout())
	case t == rdmacm.EventAddrResolved && st.route != nil:
		err = st.id.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, st.route)
	case t == rdmacm.EventAddrResolved, t == rdmacm.EventRouteError:
		err = st.id.ResolveRoute(background, st.resolveTimeout())
	default:
		if err = st.setUp(); err == nil {
			err = st.id.Connect(background, &rdmacm.ConnParam{FlowControl: true, RetryCount: 7, RNRRetryCount: 7,
				ResponderResources: rdmacm.Zero, InitiatorDepth: st.depth(), PrivateData: st.connData()})
		}
	}
	if err != nil {
		st.fail(connectError(err))
	}
}

// depth is the READs that a client asks for (W-RS-02).
func (st *Stream) depth() uint8 {
	if st.words {
		return 1
	}
	return rdmacm.Zero
}

// accept answers a request. Events end the handshake.
func (st *Stream) accept(peer rs.ConnData, asked *rdmacm.ConnParam) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.state != streamNew { // it was moved to the hub before, which had an event that ends it
		return st.err
	}
	st.state = streamConnecting
	if !st.acceptor.begin(st) {
		st.fail(net.ErrClosed)
		return st.err
	}
	err := st.setUp()
	if err == nil {
		st.m.Connect(peer)
		st.peerKnown = true
		err = st.id.Accept(background, &rdmacm.ConnParam{
			ResponderResources: asked.ResponderResources, InitiatorDepth: asked.InitiatorDepth, FlowControl: asked.FlowControl,
			RNRRetryCount: asked.RNRRetryCount, PrivateData: st.connData(),
		})
	}
	if err != nil {
		st.fail(connectError(err))
	}
	return err
}

// AwaitConnection waits until the connection is made or has failed, or ctx is done. It returns net.ErrClosed if the
// stream is closed meanwhile.
func (st *Stream) AwaitConnection(ctx context.Context) error {
	w := NewWaiter()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.others.add(&w)
	defer st.others.remove(&w)
	for st.state == streamConnecting && !st.closed {
		st.mu.Unlock()
		select {
		case <-w.C:
		case <-ctx.Done():
		}
		st.mu.Lock()
		if st.state == streamConnecting && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	switch {
	case st.established:
		return nil
	case st.err == nil:
		return net.ErrClosed
	}
	return st.err
}
