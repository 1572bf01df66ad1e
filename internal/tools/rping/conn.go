package rping

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	sqDepth = 16
	rqDepth = 2
	infoLen = 16 // address 8, rkey 4, size 4

	// keepAlive finds a peer that has gone while this end waits for its message, which the C program never does.
	keepAlive = 5 * time.Second
)

var be = binary.BigEndian

// conn is one end of a connection with its objects.
type conn struct {
	*program
	id *rdmacm.ID

	pd   *verbs.PD
	ch   *verbs.CompChannel
	cq   *verbs.CQ
	qp   *verbs.QP
	mrs  []*verbs.MR
	recv *verbs.MR // receives an info of the peer
	send *verbs.MR // sends an info to the peer
	data *verbs.MR // the peer READs from it, or we READ into it
	sink *verbs.MR // client: the peer WRITEs to it

	events chan *rdmacm.Event // events for the steps of connecting
	ended  context.Context    // done when the connection has ended
	end    context.CancelCauseFunc
}

var errDisconnected = errors.New("disconnected")

// newConn returns a conn for an ID. Its events are sent to c.events; the end of the connection cancels
// c.ended.
func (p *program) newConn(id *rdmacm.ID) *conn {
	c := &conn{program: p, id: id, events: make(chan *rdmacm.Event, 4)}
	c.ended, c.end = context.WithCancelCause(p.ctx)
	return c
}

// setUp creates QP and buffers, and posts the receive.
func (c *conn) setUp() (err error) {
	dev := c.id.Verbs()
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if c.ch, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	if c.cq, err = dev.CreateCQ(2*sqDepth, &verbs.CQOptions{Channel: c.ch}); err != nil {
		return err
	}
	if err = c.cq.ReqNotify(false); err != nil {
		return err
	}
	if err = c.createQP(); err != nil {
		return err
	}
	const remote = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	for _, b := range []struct {
		mr     **verbs.MR
		size   int
		access verbs.AccessFlags
		skip   bool
	}{
		{&c.recv, infoLen, verbs.AccessLocalWrite, false}, {&c.send, infoLen, 0, false},
		{&c.data, c.opts.size, remote, false},
		{&c.sink, c.opts.size, remote, c.opts.server},
	} {
		if b.skip {
			continue
		}
		if *b.mr, err = c.pd.RegMR(make([]byte, b.size), b.access); err != nil {
			return err
		}
		c.mrs = append(c.mrs, *b.mr)
	}
	return c.postRecv()
}

func (c *conn) createQP() (err error) {
	init := &verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: c.cq, RecvCQ: c.cq,
		Cap: verbs.QPCap{MaxSendWR: sqDepth, MaxRecvWR: rqDepth, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if !c.opts.ownQP {
		if err = c.id.CreateQP(c.pd, init); err != nil {
			return err
		}
		c.qp = c.id.QP()
		return optional(c.id.SetKeepAlive(keepAlive))
	}
	if c.qp, err = c.pd.CreateQP(init); err != nil {
		return err
	}
	if err = optional(c.qp.SetKeepAlive(keepAlive)); err != nil {
		return err
	}
	return c.modify(verbs.QPSInit)
}

// optional is nil for what the device lacks: adapters have no keep-alive.
func optional(err error) error {
	if errors.Is(err, verbs.EOPNOTSUPP) {
		return nil
	}
	return err
}

// modify takes a QP of our own through the states.
func (c *conn) modify(states ...verbs.QPState) error {
	for _, s := range states {
		attr := verbs.QPAttr{QPState: s}
		mask, err := c.id.InitQPAttr(&attr)
		if err != nil {
			return err
		}
		if err := c.qp.Modify(&attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// param returns the parameters of the connection.
func (c *conn) param() *rdmacm.ConnParam {
	p := &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}
	if c.opts.ownQP {
		p.QPNum = c.qp.QPN()
	}
	return p
}

// tearDown ends the connection and destroys all objects.
func (c *conn) tearDown() {
	if c.qp != nil {
		if c.opts.ownQP {
			_ = c.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
			_ = c.qp.Close()
		} else {
			_ = c.id.DestroyQP()
		}
	}
	for _, mr := range c.mrs {
		_ = mr.Close()
	}
	if c.cq != nil {
		_ = c.cq.Close()
	}
	if c.ch != nil {
		_ = c.ch.Close()
	}
	if c.pd != nil {
		_ = c.pd.Close()
	}
	c.end(errDisconnected)
	_ = c.id.Close()
}

func (c *conn) postRecv() error {
	return c.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{c.recv.SGE(0, infoLen)}})
}

// post posts a signaled request.
func (c *conn) post(wr verbs.SendWR) error {
	wr.Flags = verbs.SendSignaled
	return c.qp.PostSend(wr)
}

// tell sends an info: the address of mr, or for nil the last info again.
func (c *conn) tell(mr *verbs.MR) error {
	if mr != nil {
		b := c.send.Bytes()
		be.PutUint64(b, mr.Addr())
		be.PutUint32(b[8:], mr.RKey())
		be.PutUint32(b[12:], uint32(mr.Length()))
		c.debugf("RDMA addr %x rkey %x len %d", mr.Addr(), mr.RKey(), mr.Length())
	}
	return c.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{c.send.SGE(0, infoLen)}})
}

// endsConnection reports whether a request was flushed because the connection ends, for which an event
// follows. A failed QP, including one whose peer process has died on this host, raises no event.
func endsConnection(wc *verbs.WC) bool {
	return wc.Status == verbs.WCWRFlushErr && (wc.Cause == nil || wc.Cause.First == nil)
}

// await waits for a completion of this kind. It skips completed sends before it.
func (c *conn) await(op verbs.WCOpcode) error {
	for {
		wc, err := c.completion()
		switch {
		case err != nil:
			return err
		case endsConnection(&wc):
			<-c.ended.Done()
			return context.Cause(c.ended)
		case wc.Status != verbs.WCSuccess:
			return fmt.Errorf("cq completion failed status %d: %w", wc.Status, wc.Err())
		case wc.Opcode == op && op == verbs.WCRecv:
			if wc.ByteLen != infoLen {
				return fmt.Errorf("received bogus data, size %d", wc.ByteLen)
			}
			return nil
		case wc.Opcode == op:
			return nil
		case wc.Opcode != verbs.WCSend:
			return fmt.Errorf("unexpected completion %v", wc.Opcode)
		}
	}
}

// completion returns the next completion.
func (c *conn) completion() (verbs.WC, error) {
	var wcs [1]verbs.WC
	for {
		if n, err := c.cq.Poll(wcs[:]); n > 0 || err != nil {
			return wcs[0], err
		}
		if _, err := c.ch.GetEvent(c.ended); err != nil {
			if context.Cause(c.ended) != nil {
				err = context.Cause(c.ended)
			}
			return wcs[0], err
		}
		c.cq.AckEvents(1)
		if err := c.cq.ReqNotify(false); err != nil {
			return wcs[0], err
		}
	}
}

// step waits for the event that ends a step of connecting.
func (c *conn) step(want rdmacm.EventType) error {
	select {
	case ev := <-c.events:
		if ev.Type != want {
			return fmt.Errorf("cma event %v, error %d: %w", ev.Type, ev.Status, ev.Err())
		}
		return nil
	case <-c.ended.Done():
		return context.Cause(c.ended)
	}
}

// text returns a buffer up to its first zero.
func text(b []byte) string {
	for i, x := range b {
		if x == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
