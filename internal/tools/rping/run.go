package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tools returns the program.
func Tools() []tool.Tool {
	return []tool.Tool{{Name: "rping", Short: "RDMA ping-pong with READ and WRITE, connected by rdmacm", Run: run}}
}

// program is one run.
type program struct {
	opts *options
	env  *tool.Env
	ctx  context.Context
	ch   *rdmacm.EventChannel

	out      sync.Mutex
	requests chan *conn
	gone     chan struct{} // closed when the listener's device was removed
}

func run(env *tool.Env, args []string) int {
	o, status, ok := parse(env, args)
	if !ok {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, env, o, rdmacm.DefaultHost()); err != nil {
		return env.Failf("%v", err)
	}
	return 0
}

// start runs client or server until it ends.
func start(ctx context.Context, env *tool.Env, o *options, h *rdmacm.Host) error {
	ctx, stop := context.WithCancel(ctx)
	p := &program{opts: o, env: env, ctx: ctx, requests: make(chan *conn), gone: make(chan struct{})}
	var err error
	if p.ch, err = h.CreateEventChannel(); err != nil {
		stop()
		return err
	}
	id, err := h.CreateID(p.ch, rdmacm.PSTCP, nil)
	if err != nil {
		stop()
		return err
	}
	if o.tos >= 0 {
		_ = id.SetTOS(uint8(o.tos))
	}
	var events sync.WaitGroup
	events.Go(p.events)
	if o.server {
		err = p.serve(id)
	} else {
		err = p.ping(id)
	}
	stop()
	events.Wait()
	return errors.Join(err, p.ch.Close())
}

func (p *program) printf(format string, args ...any) {
	p.out.Lock()
	defer p.out.Unlock()
	fmt.Fprintf(p.env.Stdout, format+"\n", args...)
}

func (p *program) errorf(format string, args ...any) {
	p.out.Lock()
	defer p.out.Unlock()
	fmt.Fprintf(p.env.Stderr, format+"\n", args...)
}

func (p *program) debugf(format string, args ...any) {
	if p.opts.debug {
		p.printf(format, args...)
	}
}

// events dispatches the channel's events to their connections.
func (p *program) events() {
	for ev := range p.ch.Events(p.ctx) {
		whose := "parent"
		if ev.ListenID != nil {
			whose = "child"
		}
		p.debugf("cma_event type %v cma_id %p (%s)", ev.Type, ev.ID, whose)
		if ev.Type == rdmacm.EventConnectRequest {
			c := p.newConn(ev.ID)
			ev.ID.Context = c
			select {
			case p.requests <- c:
			case <-p.ctx.Done():
			}
			continue
		}
		c, ok := ev.ID.Context.(*conn)
		if !ok { // the listener
			if ev.Type == rdmacm.EventDeviceRemoval {
				p.errorf(removal)
				close(p.gone)
			}
			continue
		}
		switch ev.Type {
		case rdmacm.EventDisconnected:
			p.errorf("%s DISCONNECT EVENT...", p.side())
			c.end(errDisconnected)
		case rdmacm.EventDeviceRemoval:
			p.errorf(removal)
			c.end(errGone)
		case rdmacm.EventTimewaitExit, rdmacm.EventAddrChange:
		default:
			select {
			case c.events <- ev:
			default:
			}
		}
	}
}

const removal = "cma detected device removal!!!!"

var errGone = errors.New("the device was removed")

func (p *program) side() string {
	if p.opts.server {
		return "server"
	}
	return "client"
}

const resolveTimeout = 2 * time.Second

// ping is the client.
func (p *program) ping(id *rdmacm.ID) error {
	c := p.newConn(id)
	id.Context = c
	defer c.tearDown()
	var src netip.AddrPort
	if p.opts.from.IsValid() {
		src = netip.AddrPortFrom(p.opts.from, 0)
	}
	if err := id.ResolveAddr(p.ctx, src, netip.AddrPortFrom(p.opts.bind, p.opts.port), resolveTimeout); err != nil {
		return err
	}
	if err := c.step(rdmacm.EventAddrResolved); err != nil {
		return err
	}
	if err := id.ResolveRoute(p.ctx, resolveTimeout); err != nil {
		return err
	}
	if err := c.step(rdmacm.EventRouteResolved); err != nil {
		return err
	}
	p.debugf("rdma_resolve_addr - rdma_resolve_route successful")
	if err := c.setUp(); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return fmt.Errorf("connect error: %w", err)
	}
	err := c.rounds()
	if err != nil && !errors.Is(err, errDisconnected) {
		p.errorf("rping client failed: %v", err)
	}
	wait := disconnectTimeout
	if err != nil && !errors.Is(err, errDisconnected) {
		wait = failedTimeout
	}
	c.disconnect(wait)
	return err
}

func (c *conn) connect() error {
	if err := c.id.Connect(c.ctx, c.param()); err != nil {
		return err
	}
	if !c.opts.ownQP {
		return c.step(rdmacm.EventEstablished)
	}
	if err := c.step(rdmacm.EventConnectResponse); err != nil {
		return err
	}
	if err := c.modify(verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS); err != nil {
		return err
	}
	return c.id.Establish()
}

// disconnectTimeout bounds the wait for the peer's DREP: two retransmissions of the DREQ. After a failure the peer has
// probably not answered for seconds, and one DREQ must do.
const (
	disconnectTimeout = 10 * time.Second
	failedTimeout     = time.Second
)

// disconnect ends the connection and waits for the peer's answer.
func (c *conn) disconnect(wait time.Duration) {
	if err := c.id.Disconnect(c.ctx); err != nil {
		return
	}
	select {
	case <-c.ended.Done():
	case <-time.After(wait):
	}
}

// rounds runs the pings.
func (c *conn) rounds() error {
	for n := 0; c.opts.count == 0 || n < c.opts.count; n++ {
		fill(c.data.Bytes(), n)
		for _, mr := range []*verbs.MR{c.data, c.sink} {
			if err := c.tell(mr); err != nil {
				return err
			}
			if err := c.await(verbs.WCRecv); err != nil {
				return c.refused(err, n)
			}
			if err := c.postRecv(); err != nil {
				return err
			}
		}
		if c.opts.validate && !bytes.Equal(c.data.Bytes(), c.sink.Bytes()) {
			return errors.New("data mismatch")
		}
		if c.opts.verbose {
			c.printf("ping data: %s", text(c.sink.Bytes()))
		}
	}
	return nil
}

// refused adds to the end of the connection before the first answer the usual reason: the server has a shorter buffer.
func (c *conn) refused(err error, round int) error {
	if round > 0 || !errors.Is(err, errDisconnected) {
		return err
	}
	return fmt.Errorf("%w before the first answer: a server refuses more bytes than its -S, here %d; its output has "+
		"the reason", err, c.opts.size)
}

// fill writes the text of round n: letters from A to z, starting one letter further in each round, with a
// zero at the end.
func fill(b []byte, n int) {
	const first, last = 'A', 'z'
	at := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	c := byte(first + n%(last-first+1))
	for i := at; i < len(b); i++ {
		b[i] = c
		if c++; c > last {
			c = first
		}
	}
	b[len(b)-1] = 0
}
