package cmtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
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

type meshOptions struct {
	control, iface string
	listen         bool
	peers, threads int
	mimic, baseQPN int
}

// span is the time of a step.
type span struct{ begin, end time.Time }

func (s *span) start() { s.begin = time.Now() }
func (s *span) stop()  { s.end = time.Now() }

func (s *span) us() uint64 {
	if s.begin.IsZero() || s.end.IsZero() {
		return 0
	}
	return uint64(s.end.Sub(s.begin).Microseconds())
}

// meshConn is a connection.
type meshConn struct {
	id      *rdmacm.ID
	to      netip.AddrPort
	qp      *verbs.QP
	qpn     uint32
	retries int
	times   [meshSteps]span
}

// The steps; instances synchronize at some of them by their numbers.
const (
	meshWhole = iota
	meshCreateID
	meshBind
	meshResolveAddr
	meshResolveRoute
	meshCreateQP
	meshInitAttr
	meshInit
	meshRTRAttr
	meshRTR
	meshRTSAttr
	meshRTS
	meshConnect
	meshEstablish
	meshDisconnect
	meshDestroyID
	meshDestroyQP
	meshSteps
)

var meshNames = [meshSteps]string{"full connect", "create id", "bind addr", "resolve addr", "resolve route",
	"create qp", "init qp attr", "init qp", "rtr qp attr", "rtr qp", "rts qp attr", "rts qp", "cm connect", "establish",
	"disconnect", "destroy id", "destroy qp"}

// meshLong has the long names of the options of the controller's mode.
var meshLong = map[string]string{
	"B": "interface", "L": "listen", "P": "peers", "n": "threads", "m": "mimic", "q": "base-qpn",
}

// define adds the options of the controller's mode.
func (o *meshOptions) define(f *tool.Flags) {
	f.StringVarP(&o.control, "controller", "C", "", "address of the controller, the same for all instances; with -b or -B")
	f.StringVarP(&o.iface, "interface", "B", "", "bind to the address of this interface; with -C")
	f.BoolVarP(&o.listen, "listen", "L", false, "run as a listening server; with -C")
	f.IntVarP(&o.peers, "peers", "P", 2, "number of instances, servers and clients together; with -C")
	f.IntVarP(&o.threads, "threads", "n", 1, "create and modify this many QPs at once; with -C")
	f.IntVarP(&o.mimic, "mimic", "m", -1, "wait for this many us instead of creating and modifying QPs; with -C")
	f.IntVarP(&o.baseQPN, "base-qpn", "q", 1000, "first QP number of connections without QPs; with -C")
}

// check rejects invalid combinations. given lists the options of the mode that were given.
func (c *cmtime) checkMesh(o *meshOptions, given []string) error {
	switch {
	case o.control == "" && len(given) > 0:
		return fmt.Errorf("-%s needs -C", given[0])
	case o.control == "":
		return nil
	case c.server != "":
		return errors.New("-s cannot be combined with -C: clients learn of the servers from the controller")
	case (c.bind == "") == (o.iface == ""):
		return errors.New("-C needs -b or -B, not both")
	case o.peers < 2 || o.peers > 1000:
		return fmt.Errorf("peers %d: must be 2 to 1000", o.peers)
	case o.threads < 1 || o.threads > 1000:
		return fmt.Errorf("threads %d: must be 1 to 1000", o.threads)
	case o.baseQPN < 2 || o.baseQPN > 0xffffff:
		return fmt.Errorf("base QP number %d: must be 2 to %d", o.baseQPN, 0xffffff)
	}
	return nil
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

// addressOf returns the first address of an interface, an IPv4 one if there is one.
func addressOf(iface string) (string, error) {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", iface, err)
	}
	list, err := i.Addrs()
	found := ""
	for _, a := range list {
		p, e := netip.ParsePrefix(a.String())
		switch {
		case e != nil:
		case p.Addr().Is4():
			return p.Addr().String(), nil
		case found == "" && !p.Addr().IsLinkLocalUnicast():
			found = p.Addr().String()
		}
	}
	if err != nil || found == "" {
		return "", errors.Join(fmt.Errorf("interface %s has no address", iface), err)
	}
	return found, nil
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

// release destroys what the steps have not.
func (c *meshConn) release() error {
	if c.qp != nil {
		_ = c.qp.Close()
	}
	if c.id != nil {
		return c.id.Close()
	}
	return nil
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

func (m *mesh) createID(c *meshConn) (err error) {
	c.times[meshWhole].start()
	c.id, err = m.host.CreateID(m.ch, rdmacm.PSTCP, c)
	return err
}

func (m *mesh) resolveAddr(c *meshConn) error {
	return c.id.ResolveAddr(m.ctx, netip.AddrPort{}, c.to, m.timeout)
}

func (m *mesh) resolveRoute(c *meshConn) error { return c.id.ResolveRoute(m.ctx, m.timeout) }

// createQP creates a QP, or waits as long as that is said to take.
func (m *mesh) createQP(c *meshConn) (err error) {
	m.objects.Lock()
	made := m.madeQ != 0
	if made {
		c.qpn = m.madeQ
		m.madeQ++
	} else if m.pd == nil {
		err = m.openVerbs(c.id.Verbs())
	}
	m.objects.Unlock()
	if made {
		time.Sleep(m.delay)
	}
	if err != nil || made {
		return err
	}
	c.qp, err = m.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: m.cq, RecvCQ: m.cq, Cap: timedCaps,
		SigAll: true})
	if err == nil {
		c.qpn = c.qp.QPN()
	}
	return err
}

// openVerbs creates what all QPs share.
func (m *mesh) openVerbs(ctx *verbs.Context) (err error) {
	m.sayf("\tAllocating verbs resources")
	if m.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	m.cq, err = ctx.CreateCQ(1, nil)
	return err
}

func (m *mesh) closeVerbs() {
	if m.cq != nil {
		_ = m.cq.Close()
	}
	if m.pd != nil {
		_ = m.pd.Close()
	}
}

// modify takes a QP to a state. step is that of asking for the attributes; the next one is the change.
func (m *mesh) modify(c *meshConn, to verbs.QPState, step int) error {
	attr := verbs.QPAttr{QPState: to}
	c.times[step].start()
	mask, err := c.id.InitQPAttr(&attr)
	c.times[step].stop()
	c.times[step+1].start()
	switch {
	case err != nil:
	case c.qp != nil:
		err = c.qp.Modify(&attr, mask)
	default:
		time.Sleep(m.delay)
	}
	c.times[step+1].stop()
	return err
}

func (m *mesh) param(c *meshConn) *rdmacm.ConnParam {
	return &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, QPNum: c.qpn}
}

func (m *mesh) connect(c *meshConn) error { return c.id.Connect(m.ctx, m.param(c)) }

// answer completes a client's connection.
func (m *mesh) answer(c *meshConn) error {
	if err := m.modify(c, verbs.QPSRTR, meshRTRAttr); err != nil {
		return err
	}
	if err := m.modify(c, verbs.QPSRTS, meshRTSAttr); err != nil {
		return err
	}
	c.times[meshEstablish].start()
	err := c.id.Establish()
	c.times[meshEstablish].stop()
	return err
}

// accept accepts a request.
func (m *mesh) accept(id *rdmacm.ID) error {
	if m.next == len(m.conns) {
		_ = id.Reject(nil)
		return id.Close()
	}
	if m.next == 0 {
		m.sayf("\tAccepting")
		m.total[meshConnect].start()
	}
	c := m.conns[m.next]
	m.next++
	c.id, id.Context = id, c
	c.times[meshCreateQP].start()
	err := m.createQP(c)
	c.times[meshCreateQP].stop()
	if err != nil {
		return err
	}
	for _, s := range []struct {
		to   verbs.QPState
		step int
	}{{verbs.QPSInit, meshInitAttr}, {verbs.QPSRTR, meshRTRAttr}, {verbs.QPSRTS, meshRTSAttr}} {
		if err := m.modify(c, s.to, s.step); err != nil {
			return err
		}
	}
	return id.Accept(m.ctx, m.param(c))
}

// report prints the table, in microseconds.
func (m *mesh) report() {
	kind := map[bool]string{true: "qp_conn", false: "cm_conn"}[m.madeQ == 0]
	m.sayf("%s        %10d\nthreads        %10d", kind, len(m.conns), m.threads)
	m.sayf("step             avg/conn  total(us)    us/conn    sum(us)    max(us)    min(us)")
	n := uint64(len(m.conns))
	for step, name := range meshNames {
		var sum, most, least uint64
		first := true
		for _, c := range m.conns {
			s := &c.times[step]
			if s.begin.IsZero() || s.end.IsZero() {
				continue
			}
			t := s.us()
			sum, most = sum+t, max(most, t)
			if first || t < least {
				least, first = t, false
			}
		}
		if step == meshWhole { // the connections' times overlap
			sum = 0
		}
		all := m.total[step].us()
		m.sayf("%-13s  %10d %10d %10d %10d %10d %10d", name, all/n, all, sum/n, sum, most, least)
	}
}
