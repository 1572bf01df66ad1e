package cmtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// mesh is cmtime with a controller (-C), as rdma-core has it since version 60: clients and servers, each client with
// connections to each server. All instances go through the steps together.
type mesh struct {
	*cmtime
	meshOptions
	group    *oob
	all      []peerInfo
	listener *rdmacm.ID
	from     netip.AddrPort // of the clients' connections
	objects  sync.Mutex     // guards pd and cq until there are some
	pd       *verbs.PD
	cq       *verbs.CQ

	conns []*meshConn // of this round
	next  int         // of conns: for the next request; servers only
	madeQ uint32      // next made-up QP number; 0: real QPs
	delay time.Duration
	total [meshSteps]span
	count [meshSteps]int
}

// run plays all rounds.
func (m *mesh) run() (err error) {
	if m.iface != "" {
		if m.bind, err = addressOf(m.iface); err != nil {
			return err
		}
		m.sayf("Picking source address %s for interface %s", m.bind, m.iface)
	}
	info, err := rdmacm.GetAddrInfo(m.ctx, m.bind, "", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSTCP})
	if err != nil {
		return err
	}
	m.from = info.SrcAddr
	me := peerInfo{listen: m.listen}
	if m.listen {
		if err := m.makeListener(); err != nil {
			return err
		}
		defer m.listener.Close()
		me.addr = m.listener.LocalAddr()
	}
	m.group, err = meetAt(m.ctx, m.control, m.port, m.peers-1, func() { m.sayf("Running as OOB root") })
	if err != nil {
		return err
	}
	defer m.group.close()
	stop := context.AfterFunc(m.ctx, func() { _ = m.group.close() })
	defer stop()
	if m.all, err = m.group.exchange(me, m.peers); err != nil {
		return err
	}
	defer m.closeVerbs()
	return m.rounds()
}

func (m *mesh) makeListener() (err error) {
	if m.listener, err = m.host.CreateID(m.ch, rdmacm.PSTCP, nil); err != nil {
		return err
	}
	if err = m.listener.BindAddr(m.from); err == nil {
		err = m.listener.Listen(0)
	}
	if err != nil {
		_ = m.listener.Close()
	}
	return err
}

// rounds plays one round to warm up, one to measure, and for two instances one without QPs.
func (m *mesh) rounds() error {
	listeners := 0
	for _, p := range m.all {
		if p.listen {
			listeners++
		}
	}
	if listeners == 0 || listeners == m.peers {
		return fmt.Errorf("%d of %d instances listen: -L must be given to at least one, and not to all", listeners, m.peers)
	}
	side, verb, others := "Client", "Connect", listeners
	if m.listen {
		side, verb, others = "Server", "Accept", m.peers-listeners
	}
	n := m.cmtime.conns * others
	m.sayf("%s warmup", side)
	if err := m.round(others); err != nil {
		return err
	}
	if m.mimic < 0 {
		m.sayf("%s (%d) QPs test", verb, n)
	} else {
		m.sayf("%s (%d) simulated QPs test (delay %d us)", verb, n, m.mimic)
		m.madeQ, m.delay = uint32(m.baseQPN), time.Duration(m.mimic)*time.Microsecond
	}
	if err := m.round(n); err != nil {
		return err
	}
	m.report()
	if m.peers > 2 {
		return nil
	}
	m.sayf("%s (%d) test - no QPs", verb, n)
	m.madeQ, m.delay = max(m.madeQ, uint32(m.baseQPN)), 0
	if err := m.round(n); err != nil {
		return err
	}
	m.report()
	return nil
}

// round makes and ends n connections.
func (m *mesh) round(n int) error {
	m.conns, m.next = make([]*meshConn, n), 0
	m.total, m.count = [meshSteps]span{}, [meshSteps]int{}
	at := 0
	for i := range m.conns {
		m.conns[i] = &meshConn{retries: m.retries}
		for !m.listen && !m.all[at%m.peers].listen {
			at++
		}
		m.conns[i].to = m.all[at%m.peers].addr
		at++
	}
	if err := m.group.sync(meshWhole); err != nil {
		return err
	}
	play := m.connectAll
	if m.listen {
		play = m.acceptAll
	}
	err := play()
	for _, c := range m.conns {
		err = errors.Join(err, c.release())
	}
	return err
}

// inSteps calls the steps of a round.
func inSteps(steps ...func() error) error {
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

func (m *mesh) connectAll() error {
	m.total[meshWhole].start()
	return inSteps(
		func() error { return m.each("Creating IDs", meshCreateID, 1, m.createID) },
		func() error {
			return m.each("Binding addresses", meshBind, 1, func(c *meshConn) error { return c.id.BindAddr(m.from) })
		},
		func() error { return m.async("Resolving addresses", meshResolveAddr, m.resolveAddr) },
		func() error { return m.async("Resolving routes", meshResolveRoute, m.resolveRoute) },
		func() error { return m.each("Creating QPs", meshCreateQP, m.threads, m.createQP) },
		func() error {
			return m.each("Modify QPs to INIT", meshInit, m.threads, func(c *meshConn) error {
				return m.modify(c, verbs.QPSInit, meshInitAttr)
			})
		},
		func() error { return m.group.sync(meshInit) },
		func() error { return m.async("Connecting", meshConnect, m.connect) },
		func() error { m.total[meshWhole].stop(); return m.group.sync(meshConnect) },
		func() error {
			return m.async("Disconnecting", meshDisconnect, func(c *meshConn) error { return c.id.Disconnect(m.ctx) })
		},
		func() error { return m.group.sync(meshDisconnect) },
		m.destroy,
	)
}

func (m *mesh) acceptAll() error {
	return inSteps(
		func() error { return m.group.sync(meshInit) },
		func() error { return m.await(meshConnect) },
		func() error { return m.group.sync(meshConnect) },
		func() error { return m.await(meshDisconnect) },
		func() error { return m.group.sync(meshDisconnect) },
		m.destroy,
	)
}

func (m *mesh) destroy() error {
	if !m.listen {
		m.sayf("\tDestroying QPs")
	}
	destroyQP := func(c *meshConn) error {
		if c.qp == nil {
			return nil
		}
		err := c.qp.Close()
		c.qp = nil
		return err
	}
	destroyID := func(c *meshConn) error {
		err := c.id.Close()
		c.id = nil
		return err
	}
	if err := m.each("", meshDestroyQP, 1, destroyQP); err != nil {
		return err
	}
	if !m.listen {
		m.sayf("\tDestroying IDs")
	}
	return m.each("", meshDestroyID, 1, destroyID)
}

// each performs a step for all connections, some at once.
func (m *mesh) each(what string, step, threads int, do func(c *meshConn) error) error {
	if what != "" {
		m.sayf("\t%s", what)
	}
	m.total[step].start()
	var all sync.WaitGroup
	errs := make([]error, threads)
	for worker := range threads {
		all.Go(func() {
			for i := worker; i < len(m.conns) && errs[worker] == nil; i += threads {
				c := m.conns[i]
				if step != meshInit { // which has parts with times of their own
					c.times[step].start()
				}
				errs[worker] = do(c)
				c.times[step].stop()
			}
		})
	}
	all.Wait()
	m.total[step].stop()
	return errors.Join(errs...)
}

// async performs a step that ends with an event for all connections.
func (m *mesh) async(what string, step int, do func(c *meshConn) error) error {
	m.sayf("\t%s", what)
	m.total[step].start()
	for _, c := range m.conns {
		c.times[step].start()
		if err := do(c); err != nil {
			return err
		}
	}
	return m.await(step)
}

// await handles events until all connections have ended a step.
func (m *mesh) await(step int) error {
	for m.count[step] < len(m.conns) {
		ev, err := m.ch.GetEvent(m.ctx)
		if err != nil {
			return err
		}
		err = m.handle(ev)
		_ = ev.Ack()
		if err != nil {
			return err
		}
	}
	m.total[step].stop()
	return nil
}

// ended notes the end of a connection's step.
func (m *mesh) ended(c *meshConn, step int) {
	c.times[step].stop()
	m.count[step]++
}

func (m *mesh) handle(ev *rdmacm.Event) (err error) {
	c, _ := ev.ID.Context.(*meshConn)
	if c == nil && ev.Type != rdmacm.EventConnectRequest {
		return nil
	}
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		m.ended(c, meshResolveAddr)
	case rdmacm.EventRouteResolved:
		m.ended(c, meshResolveRoute)
	case rdmacm.EventConnectRequest:
		return m.accept(ev.ID)
	case rdmacm.EventConnectResponse:
		if err = m.answer(c); err == nil {
			m.ended(c, meshConnect)
			c.times[meshWhole].stop()
		}
	case rdmacm.EventEstablished:
		m.count[meshConnect]++
	case rdmacm.EventAddrError, rdmacm.EventRouteError:
		again := m.resolveAddr
		if ev.Type == rdmacm.EventRouteError {
			again = m.resolveRoute
		}
		if c.retries--; c.retries < 0 {
			return failed(ev)
		}
		return again(c)
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected:
		m.sayf("event: %v, error: %d", ev.Type, ev.Status)
		return failed(ev)
	case rdmacm.EventDisconnected:
		if m.listen {
			m.disconnected(c)
			return nil
		}
		m.ended(c, meshDisconnect)
	}
	return err
}

// disconnected answers a client's request to disconnect.
func (m *mesh) disconnected(c *meshConn) {
	if m.count[meshDisconnect] == 0 {
		m.sayf("\tDisconnecting")
		m.total[meshDisconnect].start()
	}
	c.times[meshDisconnect].start()
	_ = c.id.Disconnect(m.ctx)
	m.ended(c, meshDisconnect)
}
