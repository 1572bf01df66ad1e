package umad

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// own is QP 1 of a software device: a QP of this process.
type own struct {
	share *share

	ctx    *verbs.Context
	pd     *verbs.PD
	ch     *verbs.CompChannel
	recvCQ *verbs.CQ
	qp     *verbs.QP
	mr     *verbs.MR
	buf    []byte
	sender sender

	waiting context.Context // of run
	end     context.CancelFunc

	closing sync.Once
	closed  error // of closing
}

func init() { gsi.PD = func(port any) *verbs.PD { return port.(*Port).share.way.(*own).pd } }

// Sizes of QP 1.
const (
	recvDepth = 1024
	recvSize  = wire.GRHLen + wire.MADLen
)

// openOwn opens QP 1 of a device, which may wait for another process of the host.
func openOwn(s *share, dev *verbs.Device) (way, error) {
	q := &own{share: s}
	q.waiting, q.end = context.WithCancel(context.Background())
	if err := q.open(dev); err != nil {
		_ = q.close()
		return nil, err
	}
	return q, nil
}

// open creates QP 1 and posts its receives.
func (q *own) open(dev *verbs.Device) (err error) {
	if q.ctx, err = dev.Open(); err != nil {
		return err
	}
	if q.pd, err = q.ctx.AllocPD(); err != nil {
		return err
	}
	if q.ch, err = q.ctx.CreateCompChannel(); err != nil {
		return err
	}
	if q.recvCQ, err = q.ctx.CreateCQ(recvDepth, &verbs.CQOptions{Channel: q.ch}); err != nil {
		return err
	}
	if err = q.sender.open(q.share, q.ctx, q.pd); err != nil {
		return err
	}
	q.qp, err = gsi.CreateQP(q.pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeUD, SendCQ: q.sender.cq, RecvCQ: q.recvCQ,
		Cap: verbs.QPCap{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInlineData: wire.MADLen},
	})
	if err != nil {
		return err
	}
	q.sender.qp = q.qp
	q.buf = make([]byte, recvDepth*recvSize)
	if q.mr, err = q.pd.RegMR(q.buf, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if err = q.qp.Connect(verbs.QPInfo{}, &verbs.ConnectOptions{QKey: QKey}); err != nil {
		return err
	}
	if err = q.recvCQ.ReqNotify(false); err != nil {
		return err
	}
	for i := range recvDepth {
		if err = q.postRecv(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// close destroys the objects of open, once.
func (q *own) close() error {
	q.closing.Do(func() { q.closed = q.destroy() })
	return q.closed
}

// destroy is close.
func (q *own) destroy() error {
	var first error
	note := func(err error) {
		if err = driver.Destroyed(err); err != nil && first == nil {
			first = err
		}
	}
	if q.qp != nil {
		note(q.qp.Close())
	}
	if q.mr != nil {
		note(q.mr.Close())
	}
	note(q.sender.close())
	if q.recvCQ != nil {
		note(q.recvCQ.Close())
	}
	if q.ch != nil {
		note(q.ch.Close())
	}
	if q.pd != nil {
		note(q.pd.Close())
	}
	if q.ctx != nil {
		note(q.ctx.Close())
	}
	return first
}

func (q *own) postRecv(slot uint64) error {
	return q.qp.PostRecv(verbs.RecvWR{WRID: slot, SGList: []verbs.SGE{q.mr.SGE(int(slot)*recvSize, recvSize)}})
}

// run dispatches datagrams until stop, or until the device is removed.
func (q *own) run() {
	wcs := make([]verbs.WC, 64)
	var r Received
	for {
		if _, err := q.ch.GetEvent(q.waiting); err != nil {
			if errors.Is(err, syscall.EIO) {
				q.share.end(fail(syscall.ENODEV, "%s was removed", q.ctx.Device().Name()))
				_ = q.close() // the device may come back, and then it has another QP 1
			}
			return
		}
		q.recvCQ.AckEvents(1)
		if err := q.recvCQ.ReqNotify(false); err != nil {
			return
		}
		for {
			n, err := q.recvCQ.Poll(wcs)
			if n == 0 || err != nil {
				break
			}
			for i := range wcs[:n] {
				q.take(&wcs[i], &r)
			}
		}
	}
}

// take dispatches one datagram and posts its buffer again.
func (q *own) take(wc *verbs.WC, r *Received) {
	if wc.Status != verbs.WCSuccess {
		return // the QP is being destroyed
	}
	q.share.received.Add(1)
	buf := q.buf[wc.WRID*recvSize:][:min(wc.ByteLen, recvSize)]
	if grh, mad, ok := split(buf); ok {
		*r = Received{MAD: mad, From: Address{
			Local: grh.DstIP(), Remote: grh.SrcIP(), QPN: wc.SrcQP, TClass: grh.TClass(), HopLimit: grh.HopLimit(),
			FlowLabel: grh.FlowLabel(), PKeyIndex: wc.PKeyIndex,
		}}
		q.share.dispatch(r, func() uint8 {
			local, _ := localEntry(q.ctx, &r.From)
			return local.Port
		})
	} else {
		q.share.malformed.Add(1)
	}
	_ = q.postRecv(wc.WRID) // fails only if the QP is being destroyed
}

// stop ends run.
func (q *own) stop() { q.end() }

// removed reports whether the device was removed: run ends by itself then.
func (q *own) removed() bool {
	_, err := q.ctx.QueryDevice()
	return errors.Is(err, syscall.EIO)
}

// register checks the port. dispatch knows the agents.
func (q *own) register(a *Agent) error {
	if a.reg.PortNum == 0 {
		return nil
	}
	attr, err := q.ctx.QueryDevice()
	if err != nil {
		return err
	}
	if a.reg.PortNum > attr.PhysPortCnt {
		return fail(syscall.EINVAL, "register: port %d: must be 1 to %d, or 0 for any", a.reg.PortNum, attr.PhysPortCnt)
	}
	return nil
}

// unregister does nothing.
func (*own) unregister(*Agent) {}

// send posts a datagram.
func (q *own) send(_ *Agent, to *Address, mad MAD) error { return q.sender.send(to, mad) }

// ask sends a request again and again until its answer arrives.
func (q *own) ask(ctx context.Context, a *Agent, to *Address, request MAD, r retry, answer <-chan *Received) (*Received,
	error) {
	for left := r.times; left >= 0; left-- {
		if err := a.Send(to, request); err != nil && !errors.Is(err, syscall.ENOBUFS) {
			return nil, err
		}
		timer := time.NewTimer(r.after)
		select {
		case r := <-answer:
			timer.Stop()
			return r, nil
		case <-timer.C:
		case <-a.done:
			timer.Stop()
			return nil, a.port.share.closed()
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
	return nil, ErrTimeout
}

// flush waits until the posted datagrams are sent. The query of a QP of package soft has processed what was posted
// before when it returns.
func (q *own) flush() { _, _, _ = q.qp.Query(verbs.QPAttrState) }
