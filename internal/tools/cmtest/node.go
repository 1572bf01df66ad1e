package cmtest

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const grhLen = 40

// After eagerPolls empty polls, a poller sleeps pollPause between two polls.
const (
	eagerPolls = 1000
	pollPause  = 100 * time.Microsecond
)

// node is one connection of a test.
type node struct {
	*test
	id        *rdmacm.ID
	connected bool
	gone      bool // the peer has disconnected

	pd     *verbs.PD
	sendCQ *verbs.CQ // for datagrams the same CQ as recvCQ
	recvCQ *verbs.CQ
	mr     *verbs.MR
	ah     *verbs.AH
	qpn    uint32 // destination of datagrams
	qkey   uint32
}

// setUp creates the node's objects and posts its receives.
func (n *node) setUp() (err error) {
	ud := n.typ == verbs.QPTypeUD
	if ud {
		if err := n.checkSize(); err != nil {
			return err
		}
	}
	dev := n.id.Verbs()
	if n.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	messages := uint32(max(1, n.count))
	if n.sendCQ, err = dev.CreateCQ(2*int(messages), nil); err != nil {
		return err
	}
	if n.recvCQ = n.sendCQ; !ud {
		if n.recvCQ, err = dev.CreateCQ(int(messages), nil); err != nil {
			return err
		}
	}
	err = n.id.CreateQP(n.pd, &verbs.QPInitAttr{
		Type: n.typ, SendCQ: n.sendCQ, RecvCQ: n.recvCQ, SigAll: !ud, Context: n,
		Cap: verbs.QPCap{MaxSendWR: messages, MaxRecvWR: messages, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil || n.count == 0 {
		return err
	}
	if n.mr, err = n.pd.RegMR(make([]byte, n.size+grhLen), verbs.AccessLocalWrite); err != nil {
		return err
	}
	return nil
}

// checkSize rejects messages that exceed a packet.
func (n *node) checkSize() error {
	port, err := n.id.Verbs().QueryPort(n.id.PortNum())
	if err == nil && n.count > 0 && n.size > port.ActiveMTU.Bytes() {
		err = fmt.Errorf("message_size %d is larger than active mtu %v: %w", n.size, port.ActiveMTU, verbs.EINVAL)
	}
	return err
}

func (n *node) postRecvs() error {
	size := n.size
	if n.typ == verbs.QPTypeUD {
		size += grhLen
	}
	for range n.count {
		if err := n.id.QP().PostRecv(verbs.RecvWR{SGList: []verbs.SGE{n.mr.SGE(0, size)}}); err != nil {
			return fmt.Errorf("failed to post receives: %w", err)
		}
	}
	return nil
}

func (n *node) postSends(flags verbs.SendFlags) error {
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: flags}
	if n.typ == verbs.QPTypeUD {
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, n.id.QP().QPN()
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = n.ah, n.qpn, n.qkey
	}
	for range n.count {
		wr.SGList = []verbs.SGE{n.mr.SGE(0, n.size)}
		if err := n.id.QP().PostSend(wr); err != nil {
			return fmt.Errorf("failed to post sends: %w", err)
		}
	}
	return nil
}

// poll waits for the completions of all messages in one direction. It calls first, if set, with the first
// one.
func (n *node) poll(cq *verbs.CQ, first func(wc *verbs.WC) error) error {
	var wcs [8]verbs.WC
	idle, last := 0, time.Now()
	for done := 0; done < n.count; {
		got, err := cq.Poll(wcs[:])
		if err != nil {
			return fmt.Errorf("failed polling CQ: %w", err)
		}
		for i := range wcs[:got] {
			if err := wcs[i].Err(); err != nil && n.gone {
				return fmt.Errorf("the peer has disconnected after %d of %d messages: do both ends have the same -C? %w", done+i,
					n.count, err)
			} else if err != nil {
				return err
			}
		}
		if got > 0 && done == 0 && first != nil {
			if err := first(&wcs[0]); err != nil {
				return err
			}
		}
		if done += got; got > 0 {
			idle, last = 0, time.Now()
			continue
		}
		if idle++; idle <= eagerPolls {
			continue
		}
		if err := n.idle(); err != nil {
			return err
		}
		if n.silence > 0 && time.Since(last) > n.silence {
			return fmt.Errorf("no message for %v, after %d of %d: do both ends have the same -C%s?", n.silence, done, n.count,
				n.lossy())
		}
		time.Sleep(pollPause)
	}
	return nil
}

// idle handles the causes other than completions that may end the wait.
func (n *node) idle() error {
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	if n.meanwhile != nil {
		return n.meanwhile()
	}
	return nil
}

func (n *node) lossy() string {
	if n.typ == verbs.QPTypeUD {
		return ", or was one lost"
	}
	return ""
}

// destroy closes all objects and ignores errors.
func (n *node) destroy() {
	if n.id == nil {
		return
	}
	if n.ah != nil {
		_ = n.ah.Close()
	}
	if n.id.QP() != nil {
		_ = n.id.DestroyQP()
	}
	if n.sendCQ != nil {
		_ = n.sendCQ.Close()
	}
	if n.recvCQ != nil && n.recvCQ != n.sendCQ {
		_ = n.recvCQ.Close()
	}
	if n.mr != nil {
		_ = n.mr.Close()
	}
	if n.pd != nil {
		_ = n.pd.Close()
	}
	_ = n.id.Close()
}
