package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
)

// Listener takes the connections that Dial or any other client makes. It is safe for concurrent use.
type Listener struct {
	id   *ID
	opts Options

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	under atomic.Int32 // handshakes that have begun and whose connections nobody has got yet
	made  chan made    // has room for all of them

	mu      sync.Mutex // of begin; Close lets no more begin
	shaking sync.WaitGroup
}

// made is what a handshake has brought: a connection, or an error that all clients would meet with.
type made struct {
	id  *ID
	err error
}

// maxHandshakes bounds the handshakes that a Listener does at a time. A client that does not answer may hold one up for a minute.
const maxHandshakes = cm.MaxBacklog

// Listen listens at an address, ":port" or "host:port"; port 0 chooses a free one (getaddrinfo, create_ep and listen in one). opts may
// be nil.
func Listen(c context.Context, address string, opts *Options) (*Listener, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.SrcAddr = netip.AddrPort{}
	res, err := o.info(c, address, RAIPassive)
	if err != nil {
		return nil, err
	}
	id, err := o.host().CreateEP(c, res, nil, o.init())
	if err != nil {
		return nil, err
	}
	if err := id.Listen(o.Backlog); err != nil {
		_ = id.Close()
		return nil, err
	}
	l := &Listener{id: id, opts: o, made: make(chan made, maxHandshakes)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// Accept waits for a client that is connected (get_request and accept in one). The ID has a QP. Clients are answered while somebody is
// in Accept, many at a time, so that one which does not finish the handshake keeps nobody waiting; clients that go away meanwhile are
// forgotten. What Accept has begun when its context ends is for the next one to return.
//
// It fails when c is done or the listener is closed, and for what is wrong on this side: the sizes of the QP, the parameters.
func (l *Listener) Accept(c context.Context) (*ID, error) {
	const op = "accept"
	for {
		ch, full, err := l.begin(op)
		if err != nil {
			return nil, err
		}
		more := ch.ready
		if full {
			more = nil
		}
		select {
		case m := <-l.made:
			l.under.Add(-1)
			return m.id, m.err
		case <-more:
		case <-ch.done: // begin says so
		case <-c.Done():
			return nil, c.Err()
		}
	}
}

// begin answers the requests that wait, unless there are as many handshakes as there may be. It returns the channel of further ones.
func (l *Listener) begin(op string) (ch *EventChannel, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id.mu.Lock()
	ch, ep, private := l.id.ch, l.id.ep, l.id.sync
	l.id.mu.Unlock()
	if !private {
		return nil, false, l.id.wrong(op, syscall.EINVAL, "the listener's ID is asynchronous: its requests are events of its channel")
	}
	for l.under.Load() < maxHandshakes {
		ev, _, err := ch.take(op)
		if ev == nil {
			return ch, false, err
		}
		if ev.Type.aside() {
			_ = ev.Ack()
			continue
		}
		id, err := l.id.adopt(op, ev, ep)
		if err != nil {
			return nil, false, err
		}
		l.under.Add(1)
		l.shaking.Go(func() { l.shake(id) })
	}
	return ch, true, nil
}

// shake does a handshake.
func (l *Listener) shake(id *ID) {
	err := id.Accept(l.ctx, l.opts.Param)
	if err == nil {
		l.made <- made{id: id}
		return
	}
	local := l.ctx.Err() == nil && !errors.Is(err, errNoRequest)
	if ev := id.Event(); ev != nil && ev.Type != EventConnectRequest {
		local = false // that was the peer's answer
	}
	_ = id.Close()
	if local {
		l.made <- made{err: err}
		return
	}
	l.under.Add(-1)
}

// Request waits for a client and leaves Accept or Reject to the program, which may post receives first. The ID has a QP, and the
// client's private data is in its Event.
func (l *Listener) Request(c context.Context) (*ID, error) { return l.id.GetRequest(c) }

// ID is the listening ID.
func (l *Listener) ID() *ID { return l.id }

// Close ends listening. Connections stay, except those that nobody has got from Accept yet.
func (l *Listener) Close() error {
	l.mu.Lock()
	err := l.id.Close()
	l.mu.Unlock()
	l.stop()
	l.shaking.Wait()
	for {
		select {
		case m := <-l.made:
			if m.id != nil {
				_ = m.id.Close()
			}
		default:
			return err
		}
	}
}
