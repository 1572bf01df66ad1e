package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// meeting bounds the time that two processes take to connect.
const meeting = time.Minute

// ConnectIWARP is Connect for one QP of an iWARP device, which rdmacm connects. Both processes must have
// VERBENA_TRANSPORT=iwarp.
func (p *Pair) ConnectIWARP(o Options) error {
	var to netip.AddrPort
	if err := p.Call("ListenIWARP", p.There, &to); err != nil {
		return err
	}
	accepted := make(chan error, 1)
	go func() { accepted <- p.Call("AcceptIWARP", o, &p.Peer) }()
	ctx, cancel := context.WithTimeout(context.Background(), meeting)
	defer cancel()
	id, err := rdmacm.CreateID(nil, rdmacm.PSTCP, nil)
	if err != nil {
		return err
	}
	p.End = &End{}
	p.End.opened(id.Close)
	err = id.ResolveAddr(ctx, netip.AddrPort{}, to, meeting)
	if err == nil {
		err = id.ResolveRoute(ctx, meeting)
	}
	if err == nil {
		err = p.End.use(id, o)
	}
	if err == nil {
		err = id.Connect(ctx, nil)
	}
	if err != nil {
		return err
	}
	return <-accepted
}

// ListenIWARP begins to listen, and returns the address.
func (s *Second) ListenIWARP(at netip.Addr, reply *netip.AddrPort) error {
	id, err := rdmacm.CreateID(nil, rdmacm.PSTCP, nil)
	if err != nil {
		return err
	}
	err = id.BindAddr(netip.AddrPortFrom(at, 0))
	if err == nil {
		err = isIWARP(id)
	}
	if err == nil {
		err = id.Listen(1)
	}
	if err != nil {
		return errors.Join(err, id.Close())
	}
	s.asks, *reply = id, id.LocalAddr()
	return nil
}

// AcceptIWARP is Open and Connect for the next connection. It ends listening.
func (s *Second) AcceptIWARP(o Options, reply *Hello) (err error) {
	defer func() { err = errors.Join(err, s.asks.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), meeting)
	defer cancel()
	id, err := s.asks.GetRequest(ctx)
	if err != nil {
		return err
	}
	if s.end != nil {
		err = s.end.Close()
	}
	s.end = &End{}
	s.end.opened(id.Close)
	if err == nil {
		err = s.end.use(id, o)
	}
	if err != nil {
		return err
	}
	*reply = Hello{Addr: s.end.MR.Addr(), RKey: s.end.MR.RKey()}
	return id.Accept(ctx, nil)
}

// use makes the End with an ID that has a device.
func (e *End) use(id *rdmacm.ID, o Options) error {
	e.ctx, e.pd = id.Verbs(), id.PD()
	err := isIWARP(id)
	if err == nil {
		err = e.equip(o)
	}
	if err != nil {
		return err
	}
	if err := id.CreateQP(nil, e.init(o)); err != nil {
		return err
	}
	e.opened(id.DestroyQP)
	e.QPs = append(e.QPs, id.QP())
	return nil
}

// isIWARP returns an error unless the ID has an iWARP device.
func isIWARP(id *rdmacm.ID) error {
	if d := id.Verbs().Device(); d.TransportType() != verbs.TransportIWARP {
		return fmt.Errorf("device %s is not an iWARP device: both processes need VERBENA_TRANSPORT=iwarp", d.Name())
	}
	return nil
}
