package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
)

// Listener accepts the connections of Dial or any other client. It is safe for concurrent use.
type Listener struct {
	id   *ID
	opts Options

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	under atomic.Int32  // handshakes that have begun and whose connections Accept has not returned yet
	made  chan made     // results of handshakes; has room for all of them
	freed chan struct{} // has a token after a handshake has ended without a connection
	work  chan *ID      // requests for goroutines that have ended a handshake
	idle  atomic.Int32  // the number of these

	mu      sync.Mutex // held by begin; Close holds it to let no more handshakes begin
	shaking sync.WaitGroup
}

// made is the result of a handshake: a connection, or an error on this side.
type made struct {
	id  *ID
	err error
}

// maxHalfOpen is the limit of half-open handshakes of known clients, and of unknown ones. Connections that wait for
// Accept have their own limit, cm.MaxBacklog. maxHandshakes is the sum: a flood of requests that are never finished
// does not reach it.
const (
	maxHalfOpen   = 1024
	maxHandshakes = 2*maxHalfOpen + cm.MaxBacklog
)

// maxIdle is the limit of goroutines that wait for a request: a new goroutine would have to make its stack grow first.
const maxIdle = 128

// Listen listens at an address, ":port" or "host:port"; port 0 chooses a free port (getaddrinfo, create_ep and listen
// in one). As with package net, ":port" is all addresses of both families, and "0.0.0.0:port" those of IPv4. opts may
// be nil. ctx bounds the resolution of the address. Close ends listening. EINVAL for an address without port and for
// bad options; otherwise the errors of GetAddrInfo, ID.BindAddr and ID.Listen.
func Listen(ctx context.Context, address string, opts *Options) (*Listener, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.SrcAddr = netip.AddrPort{}
	if strings.HasPrefix(address, ":") {
		address = "[::]" + address
	}
	res, err := o.info(ctx, address, RAIPassive)
	if err != nil {
		return nil, err
	}
	id, err := o.host().createEP(ctx, res, nil, o.init(), o.set)
	if err != nil {
		return nil, err
	}
	err = id.SetHalfOpenLimit(maxHalfOpen)
	if err == nil {
		err = id.Listen(o.Backlog)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	l := &Listener{id: id, opts: o, made: make(chan made, maxHandshakes), freed: make(chan struct{}, 1),
		work: make(chan *ID)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Addr is the address that the listener listens on.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// Accept waits for a client that is connected (get_request and accept in one). The ID has a QP. While a goroutine is
// in Accept, all clients are answered concurrently: a client that does not finish the handshake delays no other, and
// clients that end their request are dropped. Handshakes that are unfinished when ctx ends are returned by the next
// Accept.
//
// Errors: ctx.Err() when ctx is done, ErrClosed when the listener is closed, ENODEV when its device is removed, EINVAL
// if its ID is asynchronous, and errors of this side: the sizes of the QP, the parameters, Options.Prepare.
func (l *Listener) Accept(ctx context.Context) (*ID, error) {
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
		case <-l.freed:
		case <-ch.done: // begin returns the error
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin answers the requests that wait, up to the limit of handshakes. It returns the channel of the next ones; full
// reports whether the limit is reached.
func (l *Listener) begin(op string) (ch *EventChannel, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id.mu.Lock()
	ch, ep, private := l.id.ch, l.id.ep, l.id.sync
	switch l.id.state {
	case stDestroying:
		err = l.id.errClosed(op)
	case stRemoved:
		ch.wake() // for the next call of Accept
		err = l.id.fail(op, syscall.ENODEV, deviceGone)
	}
	l.id.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	if !private {
		return nil, false, l.id.wrong(op, syscall.EINVAL,
			"the listener's ID is asynchronous: its requests are events of its channel")
	}
	for l.under.Load() < maxHandshakes && len(l.made) < cm.MaxBacklog {
		ev, _, err := ch.take(op, false)
		if ev == nil {
			return ch, false, err
		}
		if ev.Type.aside() {
			_ = ev.Ack()
			continue
		}
		id, err := l.id.adopt(op, ev, ep)
		if err != nil {
			ch.wake() // for the next call of Accept
			return nil, false, err
		}
		l.under.Add(1)
		select {
		case l.work <- id:
		default:
			l.shaking.Go(func() { l.shakeAll(id) })
		}
	}
	return ch, true, nil
}

// shakeAll answers a request, and others as they come. It ends if enough goroutines do that already.
func (l *Listener) shakeAll(id *ID) {
	for {
		l.shake(id)
		if l.idle.Add(1) > maxIdle {
			l.idle.Add(-1)
			return
		}
		select {
		case id = <-l.work:
			l.idle.Add(-1)
		case <-l.ctx.Done(): // begin sends no more
			return
		}
	}
}

// shake answers one request and passes the result to Accept.
func (l *Listener) shake(id *ID) {
	var unready error
	if l.opts.Prepare != nil {
		unready = l.opts.Prepare(id)
	}
	err := unready
	if err == nil {
		err = id.Accept(l.ctx, l.opts.Param)
	}
	if err == nil {
		l.made <- made{id: id}
		return
	}
	local := l.ctx.Err() == nil && !errors.Is(err, errNoRequest)
	if ev := id.Event(); unready == nil && ev != nil && ev.Type != EventConnectRequest {
		local = false // the peer has ended the request
	}
	_ = id.Close()
	if local {
		l.made <- made{err: err}
		return
	}
	l.under.Add(-1)
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// Request waits for a client and leaves Accept or Reject to the program, which may post receives first. The ID has a
// QP with CQs of its own, and the client's private data is in its Event. The errors are those of ID.GetRequest. For CQs
// that connections share, see CreateQP, on the requests of an ID that CreateID has made.
func (l *Listener) Request(ctx context.Context) (*ID, error) { return l.id.GetRequest(ctx) }

// ID is the listening ID.
func (l *Listener) ID() *ID { return l.id }

// Close ends listening. Connections that Accept has returned stay; the others are closed. It waits for calls of
// Options.Prepare that have begun. ErrClosed if the listener is closed.
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
