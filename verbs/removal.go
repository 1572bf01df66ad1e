package verbs

import (
	"maps"
	"slices"
	"sync"
	"syscall"
)

// allowDisassocDestroy is the environment variable that makes the destruction of an object of a removed device succeed.
const allowDisassocDestroy = "RDMAV_ALLOW_DISASSOC_DESTROY"

// isRemoved reports whether the device was removed while the context was open: EventDeviceFatal was raised. The context
// stays removed, even if the device comes back.
func (vctx *Context) isRemoved() bool {
	select {
	case <-vctx.fatal:
		return true
	default:
		return false
	}
}

// remove notes that the device was removed.
func (vctx *Context) remove() {
	close(vctx.fatal)
	vctx.async.remove()
	for _, ch := range vctx.channels.list() {
		ch.q.remove()
	}
}

// channelSet holds the completion channels of a context.
type channelSet struct {
	mu sync.Mutex
	// +checklocks:mu
	set map[*CompChannel]struct{}
}

func (s *channelSet) add(ch *CompChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[*CompChannel]struct{}{}
	}
	s.set[ch] = struct{}{}
}

func (s *channelSet) drop(ch *CompChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, ch)
}

func (s *channelSet) list() []*CompChannel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.set))
}

// checkRemoved returns EIO once the device was removed. It is for the calls that a kernel would answer. Calls that only
// touch queues of the process, such as posting and polling, do not need it.
func (vctx *Context) checkRemoved(op string, o named) error {
	if !vctx.isRemoved() {
		return nil
	}
	return errRemoved(op, o)
}

// use adds an object that a call is about to create as a user of the context. EIO once the device was removed,
// ErrClosed if the context is closed.
func (vctx *Context) use(op string, k kind) error { return vctx.admit(op, k, vctx, &vctx.lifetime) }

// use is Context.use for objects of a PD.
func (pd *PD) use(op string, k kind) error { return pd.ctx.admit(op, k, pd, &pd.lifetime) }

// admit adds a user of kind k to owner, an object of the context, whose lifetime is l.
func (vctx *Context) admit(op string, k kind, owner named, l *lifetime) error {
	if err := vctx.checkRemoved(op, owner); err != nil {
		return err
	}
	if !l.use(k) {
		return errClosed(op, owner.obj())
	}
	return nil
}

func errRemoved(op string, o named) error {
	return newError(op, o.obj(), syscall.EIO, "the device was removed (EventDeviceFatal); open it again when it is back")
}

// ended is the result of a call that has destroyed an object: EIO once the device was removed, unless the environment
// variable allowDisassocDestroy is set.
func (vctx *Context) ended(op string, o named) error {
	if !vctx.isRemoved() || isSet(allowDisassocDestroy) {
		return nil
	}
	return newError(op, o.obj(), syscall.EIO,
		"the object is destroyed, but the device was removed before; "+allowDisassocDestroy+" makes this a success")
}
