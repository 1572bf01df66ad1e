package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	resolveTime = 2 * time.Second
	goodbye     = 2 * time.Second
	// The server listens again for each QP of the test, so a first request may be rejected.
	tries   = 10
	between = 100 * time.Millisecond
)

func (o *options) portSpace() rdmacm.PortSpace {
	if o.typ == verbs.QPTypeUD {
		return rdmacm.PSUDP
	}
	return rdmacm.PSTCP
}

// cmConnect establishes the connection over which the ends exchange addresses.
func (r *run) cmConnect() (*cmChannel, error) {
	if r.server != "" {
		var ch *cmChannel
		_, err := r.cmDial(rdmacm.PSTCP, func(id *rdmacm.ID) (err error) {
			r.cmID = id
			ch, err = newCMChannel(r.stop, id)
			return err
		}, &rdmacm.ConnParam{RetryCount: 7, RNRRetryCount: 7})
		return ch, err
	}
	l, err := r.cmListen(rdmacm.PSTCP)
	if err != nil {
		return nil, err
	}
	r.listener = l
	r.opened(l.Close)
	id, err := l.GetRequest(r.stop)
	if err != nil {
		return nil, err
	}
	r.cmID = id
	ch, err := newCMChannel(r.stop, id)
	if err != nil {
		return nil, err
	}
	return ch, id.Accept(r.stop, &rdmacm.ConnParam{RetryCount: 7, RNRRetryCount: 7})
}

func (r *run) cmListen(ps rdmacm.PortSpace) (*rdmacm.ID, error) {
	id, err := rdmacm.CreateID(nil, ps, nil)
	if err != nil {
		return nil, err
	}
	err = id.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), r.tcpPort))
	if err == nil {
		err = id.Listen(r.numQP + 1)
	}
	if err != nil {
		_ = id.Close()
		return nil, fmt.Errorf("couldn't listen to port %d: %w; choose another one with -p", r.tcpPort, err)
	}
	return id, nil
}

// cmDial connects an ID to the server. prepare creates its QP.
func (r *run) cmDial(ps rdmacm.PortSpace, prepare func(*rdmacm.ID) error, param *rdmacm.ConnParam) (*rdmacm.ID, error) {
	host, err := lookup.Addrs(r.stop, "ip4", r.server)
	if err != nil {
		return nil, fmt.Errorf("%w; with rdma_cm (-R, -z) the server must have an IPv4 address", err)
	}
	id, err := rdmacm.CreateID(nil, ps, nil)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error {
			return id.ResolveAddr(r.stop, netip.AddrPort{}, netip.AddrPortFrom(host[0], r.tcpPort), resolveTime)
		},
		func() error {
			if r.tos < 0 {
				return nil
			}
			return id.SetTOS(uint8(r.tos))
		},
		func() error { return id.ResolveRoute(r.stop, resolveTime) },
		func() error { return prepare(id) },
		func() error { return id.Connect(r.stop, param) },
	} {
		if err := step(); err != nil {
			if id.QP() != nil {
				_ = id.DestroyQP()
			}
			_ = id.Close()
			err = fmt.Errorf("couldn't connect to %s:%d with rdma_cm: %w", r.server, r.tcpPort, err)
			if errors.Is(err, syscall.ECONNREFUSED) {
				err = fmt.Errorf("%w; -R must be given at both ends or at neither", err)
			}
			return nil, err
		}
	}
	return id, nil
}

// cmQPs creates and connects the QPs of the test.
func (r *run) cmQPs() error {
	var none dest
	connect := r.cmAcceptQPs
	if r.server != "" {
		connect = r.cmDialQPs
	} else if r.typ == verbs.QPTypeUD { // the port in the other port space
		l, err := r.cmListen(rdmacm.PSUDP)
		if err != nil {
			return err
		}
		r.listener = l
		r.opened(l.Close)
	}
	if _, err := r.peer.shake(&none); err != nil {
		return err
	}
	if err := connect(); err != nil {
		return err
	}
	_, err := r.peer.shake(&none)
	return err
}

func (r *run) cmParam() *rdmacm.ConnParam {
	p := &rdmacm.ConnParam{RetryCount: 7, RNRRetryCount: 7}
	if r.verb.waits() {
		p.ResponderResources, p.InitiatorDepth = uint8(r.outs), uint8(r.outs)
	}
	return p
}

// adopt creates an ID's QP and adds it to the test's.
func (r *run) adopt(id *rdmacm.ID) (*end, error) {
	if err := id.CreateQP(r.pd, r.initAttr()); err != nil {
		return nil, err
	}
	return &end{qp: id.QP(), id: id}, nil
}

func (r *run) keep(e *end) {
	r.qps = append(r.qps, e)
	r.opened(func() error {
		if r.typ != verbs.QPTypeUD {
			c, cancel := context.WithTimeout(r.stop, goodbye)
			_ = e.id.Disconnect(c)
			cancel()
		}
		return errors.Join(e.id.DestroyQP(), e.id.Close())
	})
}

func (r *run) cmDialQPs() error {
	for range r.numQP {
		var e *end
		for try := 1; ; try++ {
			id, err := r.cmDial(r.portSpace(), func(id *rdmacm.ID) (err error) {
				e, err = r.adopt(id)
				return err
			}, r.cmParam())
			if err == nil {
				e.id = id
				break
			}
			if try == tries || r.stop.Err() != nil {
				return err
			}
			time.Sleep(between)
		}
		r.keep(e)
		if r.typ == verbs.QPTypeUD {
			ud := e.id.Event().UD
			if err := r.addressOf(e, &ud.AHAttr, ud.QPNum, ud.QKey); err != nil {
				return err
			}
			if err := r.introduce(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) cmAcceptQPs() error {
	for i := range r.numQP {
		id, err := r.listener.GetRequest(r.stop)
		if err != nil {
			return err
		}
		e, err := r.adopt(id)
		if err != nil {
			return err
		}
		r.keep(e)
		p := r.cmParam()
		if r.answersUD() {
			e.rsge[0] = verbs.SGE{Addr: r.mr.Addr() + uint64(i*r.slot), Length: grhLen + 4, LKey: r.mr.LKey()}
			if err := e.qp.PostRecv(verbs.RecvWR{SGList: e.rsge[:]}); err != nil {
				return err
			}
			p.QPNum = e.qp.QPN()
		}
		if err := id.Accept(r.stop, p); err != nil {
			return err
		}
		if r.answersUD() {
			if err := r.meet(e, i*r.slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// answersUD reports whether the server needs the client's address, which rdma_cm does not carry for
// datagrams.
func (r *run) answersUD() bool { return r.typ == verbs.QPTypeUD && (r.duplex || r.lat) }

// introduce sends our QP number to the server, in a datagram.
func (r *run) introduce(e *end) error {
	if !r.answersUD() {
		return nil
	}
	err := e.qp.PostSend(verbs.SendWR{
		Opcode: verbs.WRSendWithImm, Flags: verbs.SendSignaled, SGList: []verbs.SGE{r.mr.SGE(0, 4)}, ImmData: e.qp.QPN(),
		AH: e.ah, RemoteQPN: e.rqpn, RemoteQKey: e.rqkey,
	})
	if err != nil {
		return err
	}
	_, err = r.one(r.sendCQ)
	return err
}

// meet waits for the client's introduction.
func (r *run) meet(e *end, at int) error {
	wc, err := r.one(r.recvCQ)
	if err != nil {
		return err
	}
	av, err := r.ctx.InitAHFromWC(e.id.PortNum(), &wc, r.mr.Bytes()[at:at+grhLen])
	if err != nil {
		return err
	}
	return r.addressOf(e, &av, wc.ImmData, rdmacm.UDPQKey)
}

// one waits for one completion.
func (r *run) one(cq *verbs.CQ) (verbs.WC, error) {
	var wcs [1]verbs.WC
	w := r.newWaiter("a datagram")
	for {
		n, err := cq.Poll(wcs[:])
		if err == nil && n == 1 {
			err = wcs[0].Err()
		}
		if err != nil || n == 1 {
			return wcs[0], err
		}
		if err := w.check(); err != nil {
			return wcs[0], err
		}
	}
}
