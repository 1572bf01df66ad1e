package cmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// cmtime makes and ends connections step by step, each step for all connections at once. The client reports
// the duration of each step. The server runs until it is interrupted.
type cmtime struct {
	env  *tool.Env
	host *rdmacm.Host
	ctx  context.Context

	server, bind, port string
	conns, retries     int
	timeout            time.Duration

	ch    *rdmacm.EventChannel
	info  *rdmacm.AddrInfo
	timed []*timedConn
	total [stepCount]time.Duration // of each step, for all connections

	mesh meshOptions // with a controller
}

// The steps, in order.
const (
	stepCreateID = iota
	stepBind
	stepResolveAddr
	stepResolveRoute
	stepCreateQP
	stepConnect
	stepDisconnect
	stepDestroy
	stepCount
)

var stepNames = [stepCount]string{"create id", "bind addr", "resolve addr", "resolve route", "create qp", "connect",
	"disconnect", "destroy"}

// timedConn is one connection of the client.
type timedConn struct {
	id      *rdmacm.ID
	err     error // why the connection failed
	retries int
	waits   bool // for the event that ends the step
	begin   [stepCount]time.Time
	took    [stepCount]time.Duration
	done    [stepCount]bool
}

func runCMTime(env *tool.Env, args []string) int {
	c := &cmtime{env: env, host: rdmacm.DefaultHost()}
	if status, ok := c.parse(args); !ok {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return c.start(ctx)
}

func (c *cmtime) parse(args []string) (status int, ok bool) {
	f := tool.NewFlags(c.env,
		"[-s server_address] [-b bind_address] [-c connections] [-p port_number] [-r retries] [-t timeout_ms]\n"+
			"-C controller_address {-b bind_address | -B interface} [-L] [-P peers] [-c connections] ...")
	f.StringVarP(&c.server, "server", "s", "", "server address; without it this is the server")
	f.StringVarP(&c.bind, "bind", "b", "", "bind address")
	f.IntVarP(&c.conns, "connections", "c", 100, "number of connections")
	f.StringVarP(&c.port, "port", "p", simplePort, "port number")
	f.IntVarP(&c.retries, "retries", "r", 2, "retries when resolving address or route")
	c.mesh.define(f)
	ms := f.IntP("timeout", "t", 2000, "time for resolving address or route, in ms")
	if status, ok = f.Parse(args); !ok {
		return status, false
	}
	switch {
	case len(f.Args()) > 0:
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	case c.conns < 1 || c.conns > maxConns:
		return f.Misused(fmt.Sprintf("connections %d: must be 1 to %d", c.conns, maxConns)), false
	case c.retries < 0 || *ms < 1:
		return f.Misused("timeout must be at least 1, retries at least 0"), false
	}
	given := slices.DeleteFunc([]string{"B", "L", "P", "n", "m", "q"},
		func(o string) bool { return !f.Changed(meshLong[o]) })
	if err := c.checkMesh(&c.mesh, given); err != nil {
		return f.Misused(err.Error()), false
	}
	c.timeout = time.Duration(*ms) * time.Millisecond
	return 0, true
}

func (c *cmtime) sayf(format string, args ...any) { fmt.Fprintf(c.env.Stdout, format+"\n", args...) }

func (c *cmtime) start(ctx context.Context) int {
	c.ctx = ctx
	var err error
	if c.ch, err = c.host.CreateEventChannel(); err != nil {
		return c.env.Failf("failed to create event channel: %v", err)
	}
	switch {
	case c.mesh.control != "":
		err = (&mesh{cmtime: c, meshOptions: c.mesh}).run()
	case c.server == "":
		err = c.serve()
	default:
		err = c.client()
	}
	if closed := c.ch.Close(); err == nil {
		err = closed
	}
	if why := inWords(err); why != nil {
		return c.env.Failf("%v: %v", err, why)
	}
	if err != nil {
		return c.env.Failf("%v", err)
	}
	return 0
}

// resolve resolves the addresses from the options.
func (c *cmtime) resolve(flags rdmacm.AIFlags) (err error) {
	h := &rdmacm.AddrInfo{Flags: flags, PortSpace: rdmacm.PSTCP}
	node := c.server
	if node == "" {
		node = c.bind
	} else if c.bind != "" {
		from, err := rdmacm.GetAddrInfo(c.ctx, c.bind, "",
			&rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSTCP})
		if err != nil {
			return err
		}
		h.SrcAddr = from.SrcAddr
	}
	c.info, err = rdmacm.GetAddrInfo(c.ctx, node, c.port, h)
	return err
}

var timedCaps = verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}

// serve accepts every request until the context ends.
func (c *cmtime) serve() error {
	if err := c.resolve(rdmacm.RAIPassive); err != nil {
		return err
	}
	l, err := c.host.CreateID(c.ch, rdmacm.PSTCP, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.BindAddr(c.info.SrcAddr); err != nil {
		return fmt.Errorf("bind address failed: %w", err)
	}
	if err := l.Listen(0); err != nil {
		return fmt.Errorf("failure trying to listen: %w", err)
	}
	for {
		ev, err := c.ch.GetEvent(c.ctx)
		if err != nil {
			return nil
		}
		id := ev.ID
		switch ev.Type {
		case rdmacm.EventConnectRequest:
			err = id.CreateQP(nil, &verbs.QPInitAttr{Cap: timedCaps})
			if err == nil {
				err = id.Accept(c.ctx, nil)
			}
			if err != nil {
				c.sayf("failing connection request: %v", err)
				_ = id.Reject(nil)
			}
		case rdmacm.EventDisconnected, rdmacm.EventUnreachable, rdmacm.EventRejected, rdmacm.EventConnectError:
			_ = id.Disconnect(c.ctx) // replies to a DREQ; for other IDs it does nothing
			err = errors.New("the connection has ended")
		}
		_ = ev.Ack()
		if err != nil {
			if id.QP() != nil {
				_ = id.DestroyQP()
			}
			_ = id.Close()
		}
	}
}

func (c *cmtime) client() error {
	if err := c.resolve(0); err != nil {
		return err
	}
	for range c.conns {
		c.timed = append(c.timed, &timedConn{retries: c.retries})
	}
	steps := []struct {
		what  string
		step  int
		start func(t *timedConn) error
		async bool // the step ends with an event
	}{
		{"creating id", stepCreateID, c.createID, false},
		{"binding source address", stepBind, func(t *timedConn) error { return t.id.BindAddr(c.info.SrcAddr) }, false},
		{"resolving address", stepResolveAddr, c.resolveAddr, true},
		{"resolving route", stepResolveRoute, c.resolveRoute, true},
		{"creating qp", stepCreateQP,
			func(t *timedConn) error { return t.id.CreateQP(nil, &verbs.QPInitAttr{Cap: timedCaps}) }, false},
		{"connecting", stepConnect, c.connect, true},
		{"disconnecting", stepDisconnect, c.disconnect, true},
		{"destroying id", stepDestroy, func(t *timedConn) error { return t.destroy() }, false},
	}
	for _, s := range steps {
		if s.step == stepBind && c.bind == "" {
			continue
		}
		c.sayf("%s", s.what)
		if err := c.all(s.step, s.start, s.async); err != nil {
			return err
		}
	}
	c.report()
	for _, t := range c.timed {
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// all performs a step for all connections. Failed connections are only destroyed.
func (c *cmtime) all(step int, start func(t *timedConn) error, async bool) error {
	begin := time.Now()
	waiting := 0
	for _, t := range c.timed {
		if t.err != nil && step != stepDestroy {
			continue
		}
		t.begin[step] = time.Now()
		if err := start(t); err != nil {
			c.sayf("failure: %v", err)
			t.err = err
			continue
		}
		if async {
			t.waits = true
			waiting++
		} else {
			t.end(step)
		}
	}
	for waiting > 0 {
		ev, err := c.ch.GetEvent(c.ctx)
		if err != nil {
			return err
		}
		if t := ev.ID.Context.(*timedConn); t.waits && c.handle(ev, t) {
			t.waits = false
			waiting--
			t.end(step)
		}
		_ = ev.Ack()
	}
	c.total[step] = time.Since(begin)
	return nil
}

func (t *timedConn) end(step int) {
	t.took[step], t.done[step] = time.Since(t.begin[step]), true
}

// handle reports whether an event ends the current step of its connection.
func (c *cmtime) handle(ev *rdmacm.Event, t *timedConn) bool {
	switch ev.Type {
	case rdmacm.EventAddrError, rdmacm.EventRouteError:
		again := c.resolveAddr
		if ev.Type == rdmacm.EventRouteError {
			again = c.resolveRoute
		}
		if t.retries--; t.retries >= 0 && again(t) == nil {
			return false
		}
		c.sayf("%v, error: %d", ev.Type, ev.Status)
		t.err = failed(ev)
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected:
		c.sayf("event: %v, error: %d", ev.Type, ev.Status)
		t.err = failed(ev)
	case rdmacm.EventTimewaitExit, rdmacm.EventAddrChange, rdmacm.EventDeviceRemoval:
		return false
	}
	return true
}

func (c *cmtime) createID(t *timedConn) (err error) {
	t.id, err = c.host.CreateID(c.ch, rdmacm.PSTCP, t)
	return err
}

func (c *cmtime) resolveAddr(t *timedConn) error {
	return t.id.ResolveAddr(c.ctx, c.info.SrcAddr, c.info.DstAddr, c.timeout)
}

func (c *cmtime) resolveRoute(t *timedConn) error { return t.id.ResolveRoute(c.ctx, c.timeout) }

func (c *cmtime) connect(t *timedConn) error {
	return t.id.Connect(c.ctx, &rdmacm.ConnParam{
		ResponderResources: 1, InitiatorDepth: 1, RetryCount: uint8(min(c.retries, 7)), PrivateData: c.info.Connect,
	})
}

func (c *cmtime) disconnect(t *timedConn) error {
	return errors.Join(t.id.Disconnect(c.ctx), t.id.DestroyQP())
}

// destroy releases the connection's resources.
func (t *timedConn) destroy() error {
	switch {
	case t.id == nil:
		return nil
	case t.id.QP() != nil: // the connection failed
		_ = t.id.DestroyQP()
	}
	return t.id.Close()
}

// report prints the table.
func (c *cmtime) report() {
	c.sayf("step              total ms     max ms     min us  us / conn")
	for step, name := range stepNames {
		if step == stepBind && c.bind == "" {
			continue
		}
		longest, shortest := time.Duration(0), time.Duration(-1)
		for _, t := range c.timed {
			if t.done[step] {
				longest = max(longest, t.took[step])
				if shortest < 0 || t.took[step] < shortest {
					shortest = t.took[step]
				}
			}
		}
		cell := func(d, unit time.Duration) string {
			return strconv.FormatFloat(float64(max(d, 0))/float64(unit), 'f', 2, 64)
		}
		c.sayf("%-13s: %11s%11s%11s%11s", name, cell(c.total[step], time.Millisecond), cell(longest, time.Millisecond),
			cell(shortest, time.Microsecond), cell(c.total[step]/time.Duration(c.conns), time.Microsecond))
	}
}
