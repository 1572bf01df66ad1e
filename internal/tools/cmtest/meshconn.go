package cmtest

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// meshConn is a connection.
type meshConn struct {
	id      *rdmacm.ID
	to      netip.AddrPort
	qp      *verbs.QP
	qpn     uint32
	retries int
	times   [meshSteps]span
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
