package verbs

import "context"

// CompChannel is a completion channel: where the CQs that were made with it announce new completions (struct
// ibv_comp_channel). It is safe for concurrent use.
type CompChannel struct {
	ctx  *Context
	life life
	q    *eventQueue[*CQ]
}

// CreateCompChannel makes a completion channel (ibv_create_comp_channel).
func (ctx *Context) CreateCompChannel() (*CompChannel, error) {
	if !ctx.life.use(kindChannel) {
		return nil, errClosed("create_comp_channel", ctx.obj())
	}
	return &CompChannel{ctx: ctx, q: newEventQueue[*CQ]()}, nil
}

// Context is the context that the channel belongs to.
func (ch *CompChannel) Context() *Context { return ch.ctx }

// Close destroys the channel (ibv_destroy_comp_channel). EBUSY while CQs use it. Goroutines in GetEvent get
// ErrClosed.
func (ch *CompChannel) Close() error {
	if err := ch.life.end("destroy_comp_channel", ch.obj()); err != nil {
		return err
	}
	ch.q.close()
	ch.ctx.life.drop(kindChannel)
	return nil
}

// GetEvent waits for the next completion event and returns its CQ (ibv_get_cq_event); CQContext is what the C
// function returns beside it. Each event goes to one caller, and must be acknowledged with CQ.AckEvents. An event
// takes no completion from the CQ: poll for them. It returns c's error when c is done, ErrClosed when the channel is
// closed.
//
// No completion is missed in this order: ReqNotify before the first completion can come; then in a
// loop GetEvent, AckEvents, ReqNotify, and Poll until the CQ is empty. It may find the CQ empty.
func (ch *CompChannel) GetEvent(c context.Context) (*CQ, error) {
	return ch.q.get(c, "get_cq_event", ch)
}

// TryGetEvent is GetEvent without waiting: EAGAIN if there is no event (ibv_get_cq_event with O_NONBLOCK).
func (ch *CompChannel) TryGetEvent() (*CQ, error) { return ch.q.try("get_cq_event", ch) }

// Ready has a token when there may be events, for select: receive from it, then call TryGetEvent until EAGAIN. A token is
// taken by one receiver, as events are; GetEvent takes tokens too.
func (ch *CompChannel) Ready() <-chan struct{} { return ch.q.ready }

// FD is a file descriptor that is readable while there are events (fd of struct ibv_comp_channel). It is for poll,
// select and epoll only: neither read nor close it. EOPNOTSUPP where the system has no such thing. It is valid until
// the channel is closed.
func (ch *CompChannel) FD() (int, error) { return ch.q.descriptor("comp_channel_fd", ch) }

func (ch *CompChannel) obj() string { return "completion channel of " + ch.ctx.obj() }
