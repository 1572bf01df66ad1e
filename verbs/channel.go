package verbs

import "context"

// CompChannel is a completion channel: it delivers the completion events of its CQs (struct ibv_comp_channel). It is
// safe for concurrent use.
type CompChannel struct {
	ctx      *Context
	lifetime lifetime
	q        eventQueue[*CQ]
}

// CreateCompChannel creates a completion channel (ibv_create_comp_channel).
func (vctx *Context) CreateCompChannel() (*CompChannel, error) {
	if err := vctx.use("create_comp_channel", kindChannel); err != nil {
		return nil, err
	}
	ch := &CompChannel{ctx: vctx}
	vctx.channels.add(ch)
	if vctx.isRemoved() { // in between
		ch.q.remove()
	}
	return ch, nil
}

// Context returns the context of the channel.
func (ch *CompChannel) Context() *Context { return ch.ctx }

// Close destroys the channel (ibv_destroy_comp_channel). EBUSY while CQs use it. Pending calls of GetEvent return
// ErrClosed.
func (ch *CompChannel) Close() error {
	if err := ch.lifetime.close("destroy_comp_channel", ch); err != nil {
		return err
	}
	ch.ctx.channels.drop(ch)
	ch.q.close()
	ch.ctx.lifetime.drop(kindChannel)
	return nil
}

// GetEvent waits for the next completion event and returns its CQ (ibv_get_cq_event). CQ.CQContext is the second
// result of the C function. Each event is returned to one caller and must be acknowledged with CQ.AckEvents. The
// event does not remove completions from the CQ.
//
// No completion is missed in this order: call ReqNotify before the first completion can come. Then repeat GetEvent,
// AckEvents, ReqNotify, and Poll until the CQ is empty. The first Poll may find the CQ empty.
//
// Errors: ctx.Err() if ctx is done, ErrClosed if the channel is closed, EIO if the device was removed and there is no
// event left.
func (ch *CompChannel) GetEvent(ctx context.Context) (*CQ, error) {
	return ch.q.get(ctx, "get_cq_event", ch)
}

// TryGetEvent is GetEvent without waiting: EAGAIN if there is no event (ibv_get_cq_event with O_NONBLOCK).
func (ch *CompChannel) TryGetEvent() (*CQ, error) { return ch.q.try("get_cq_event", ch) }

// Ready returns a Go channel for select. It holds one token while there may be events: receive the token, then call
// TryGetEvent until EAGAIN. Each token goes to one receiver; GetEvent takes tokens too.
func (ch *CompChannel) Ready() <-chan struct{} {
	ready, _ := ch.q.waiting()
	return ready
}

// FD returns a file descriptor that is readable while there are events (fd of struct ibv_comp_channel). It is for
// poll, select and epoll only; the program must neither read nor close it. It is valid until the channel is closed.
// EOPNOTSUPP if the operating system has no such descriptors.
func (ch *CompChannel) FD() (int, error) { return ch.q.descriptor("comp_channel_fd", ch) }

func (ch *CompChannel) obj() string { return "completion channel of " + ch.ctx.obj() }
