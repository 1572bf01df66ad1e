package cmtest

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// cmatose connects, sends messages from the server to the client and back, and disconnects.
type cmatose struct {
	test
	migrate bool
}

func runCmatose(env *tool.Env, args []string) int {
	c := &cmatose{}
	if status, ok := c.parse(env, args); !ok {
		return status
	}
	return c.start()
}

func (c *cmatose) start() int {
	if c.server != "" {
		return c.run(c.client)
	}
	return c.run(c.serve)
}

func (c *cmatose) parse(env *tool.Env, args []string) (status int, ok bool) {
	c.test = test{name: "cmatose", typ: verbs.QPTypeRC, hints: rdmacm.AddrInfo{PortSpace: rdmacm.PSTCP},
		silence: maxSilence, meanwhile: c.peek}
	f := c.flags(env)
	format, _ := c.flagsOfPeer(f)
	space := f.StringP("port-space", "P", "tcp", "port space: tcp or ib")
	f.StringVarP(&c.port, "port", "p", "7471", "port number")
	f.IntVarP(&c.ack, "ack-timeout", "a", -1, "ACK timeout, a code: 4.096 us * 2^n")
	f.BoolVarP(&c.migrate, "migrate", "m", false, "migrate to a new event channel")
	if status, ok := f.Parse(args); !ok {
		return status, false
	}
	c.format(*format)
	switch s := strings.ToLower(*space); {
	case strings.HasPrefix(s, "ib"):
		c.hints.PortSpace, c.hints.QPType = rdmacm.PSIB, verbs.QPTypeRC
	case !strings.HasPrefix(s, "tcp"):
		fmt.Fprintln(env.Stderr, "Warning: unknown port space format")
	}
	return c.check(f)
}

// handle reacts to an event.
func (c *cmatose) handle(ev *rdmacm.Event) error {
	n, _ := ev.ID.Context.(*node)
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		if err := c.options(ev.ID); err != nil {
			return err
		}
		return ev.ID.ResolveRoute(c.ctx, resolveTimeout)
	case rdmacm.EventRouteResolved:
		if err := n.setUp(); err != nil {
			return err
		}
		if err := n.postRecvs(); err != nil {
			return err
		}
		return ev.ID.Connect(c.ctx, &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5,
			PrivateData: c.info.Connect})
	case rdmacm.EventConnectRequest:
		return c.request(ev.ID, func(n *node) error {
			if err := n.postRecvs(); err != nil {
				return err
			}
			if c.ack >= 0 {
				if err := n.id.SetAckTimeout(uint8(c.ack)); err != nil {
					return err
				}
			}
			return n.id.Accept(c.ctx, nil)
		})
	case rdmacm.EventEstablished:
		n.connected = true
		c.left--
		c.open++
	case rdmacm.EventAddrError, rdmacm.EventRouteError, rdmacm.EventConnectError, rdmacm.EventUnreachable,
		rdmacm.EventRejected:
		c.left--
		return failed(ev)
	case rdmacm.EventDisconnected:
		_ = ev.ID.Disconnect(c.ctx)
		c.open--
	}
	return nil
}

// peek handles an event that has arrived during the transfers. After a disconnection, receives that wait
// for the peer complete with a flush error.
func (c *cmatose) peek() error {
	ev, err := c.ch.TryGetEvent()
	if errors.Is(err, syscall.EAGAIN) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ev.Ack()
	if n, ok := ev.ID.Context.(*node); ok && ev.Type == rdmacm.EventDisconnected {
		n.gone = true
	}
	return c.handle(ev)
}

// options applies the command line's options to an ID.
func (c *cmatose) options(id *rdmacm.ID) error {
	if c.ack >= 0 {
		if err := id.SetAckTimeout(uint8(c.ack)); err != nil {
			return err
		}
	}
	if c.tos >= 0 {
		return id.SetTOS(uint8(c.tos))
	}
	return nil
}

func (c *cmatose) serve() error {
	l, err := c.listen()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := c.events(&c.left, c.handle); err != nil {
		return err
	}
	if c.count > 0 {
		c.sayf("initiating data transfers")
		if err := c.each(func(n *node) error { return n.postSends(0) }); err != nil {
			return err
		}
		c.sayf("completing sends")
		if err := c.each(func(n *node) error { return n.poll(n.sendCQ, nil) }); err != nil {
			return err
		}
		c.sayf("receiving data transfers")
		if err := c.each(func(n *node) error { return n.poll(n.recvCQ, nil) }); err != nil {
			return err
		}
		c.sayf("data transfers complete")
	}
	if err := c.move(l); err != nil {
		return err
	}
	c.sayf("cmatose: disconnecting")
	for _, n := range c.nodes {
		if n.connected {
			n.connected = false
			_ = n.id.Disconnect(c.ctx)
		}
	}
	err = c.events(&c.open, c.handle)
	c.sayf("disconnected")
	return err
}

func (c *cmatose) client() error {
	if err := c.dial(); err != nil {
		return err
	}
	err := c.events(&c.left, c.handle)
	if err == nil && c.count > 0 {
		err = c.talk()
	}
	if err == nil {
		err = c.move(nil)
	}
	if err != nil {
		return err // the server may have ended; otherwise closing our IDs notifies it
	}
	return c.events(&c.open, c.handle)
}

// talk is the client's side of the exchange.
func (c *cmatose) talk() error {
	c.sayf("receiving data transfers")
	if err := c.each(func(n *node) error { return n.poll(n.recvCQ, nil) }); err != nil {
		return err
	}
	c.sayf("sending replies")
	if err := c.each(func(n *node) error { return n.postSends(0) }); err != nil {
		return err
	}
	c.sayf("data transfers complete")
	return nil
}

// move migrates the IDs to a new event channel (-m).
func (c *cmatose) move(listener *rdmacm.ID) error {
	if !c.migrate {
		return nil
	}
	c.sayf("migrating to new event channel")
	ch, err := c.host.CreateEventChannel()
	if err != nil {
		return err
	}
	if listener != nil {
		err = listener.Migrate(ch)
	}
	for _, n := range c.nodes {
		if err == nil {
			err = n.id.Migrate(ch)
		}
	}
	if err != nil {
		return err
	}
	_ = c.ch.Close()
	c.ch = ch
	return nil
}
