package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/verbs"
)

const port = 1

// session has the objects of one case; nil fields were not created.
type session struct {
	ctx      *verbs.Context
	pd       *verbs.PD
	mr       *verbs.MR
	channel  *verbs.CompChannel
	scq, rcq *verbs.CQ
	srq      *verbs.SRQ
	qps      []*verbs.QP
	ahs      map[string]*verbs.AH
	mws      []*verbs.MW
	joined   []func() error // functions that leave multicast groups

	typ      verbs.QPType
	gidIndex int
	access   verbs.AccessFlags // of the QPs
}

// close destroys all objects in the order that their lifetimes require. A nil session has none.
func (s *session) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, ah := range s.ahs {
		errs = append(errs, ah.Close())
	}
	for _, mw := range s.mws {
		errs = append(errs, mw.Close())
	}
	for _, leave := range s.joined {
		errs = append(errs, leave())
	}
	for _, qp := range s.qps {
		errs = append(errs, qp.Close())
	}
	if s.srq != nil {
		errs = append(errs, s.srq.Close())
	}
	for _, cq := range []*verbs.CQ{s.scq, s.rcq} {
		if cq != nil {
			errs = append(errs, cq.Close())
		}
	}
	if s.channel != nil {
		errs = append(errs, s.channel.Close())
	}
	if s.mr != nil {
		errs = append(errs, s.mr.Close())
	}
	if s.pd != nil {
		errs = append(errs, s.pd.Close())
	}
	if s.ctx != nil {
		errs = append(errs, s.ctx.Close())
	}
	return errors.Join(errs...)
}

// open creates the objects of a case.
func (s *session) open(r *agent.Request) (resp agent.Response, err error) {
	s.ahs = map[string]*verbs.AH{}
	types := map[string]verbs.QPType{"RC": verbs.QPTypeRC, "UC": verbs.QPTypeUC, "UD": verbs.QPTypeUD}
	s.typ, s.access = types[r.Type], verbs.AccessFlags(r.QPAccess)
	if s.ctx, err = verbs.Open(""); err != nil {
		return resp, err
	}
	gid, err := s.chooseGID(r.Family)
	if err != nil {
		return resp, err
	}
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		return resp, err
	}
	if s.mr, err = s.pd.RegMR(make([]byte, r.Size), verbs.AccessFlags(r.Access)); err != nil {
		return resp, err
	}
	if s.channel, err = s.ctx.CreateCompChannel(); err != nil {
		return resp, err
	}
	if s.scq, err = s.ctx.CreateCQ(r.MaxSend*r.QPs+1, nil); err != nil {
		return resp, err
	}
	if s.rcq, err = s.ctx.CreateCQ(r.MaxRecv*r.QPs+1, &verbs.CQOptions{Channel: s.channel}); err != nil {
		return resp, err
	}
	resp = agent.Response{Addr: s.mr.Addr(), RKey: s.mr.RKey(), GID: gid.Hex()}
	if resp.QPNs, err = s.createQPs(r); err != nil {
		return agent.Response{}, err
	}
	return resp, nil
}

// chooseGID finds the GID of an address family in the table: 0 selects the link-local one.
func (s *session) chooseGID(family int) (verbs.GID, error) {
	table, err := s.ctx.QueryGIDTable()
	if err != nil {
		return verbs.GID{}, err
	}
	for _, e := range table {
		a := e.GID.Addr()
		has := 6
		switch {
		case a.IsLinkLocalUnicast():
			has = 0
		case a.Is4():
			has = 4
		}
		if has == family {
			s.gidIndex = e.Index
			return e.GID, nil
		}
	}
	return verbs.GID{}, fmt.Errorf("no GID of family %d in %v", family, table)
}

func (s *session) createQPs(r *agent.Request) (qpns []uint32, err error) {
	limits := verbs.QPCap{
		MaxSendWR: uint32(r.MaxSend), MaxRecvWR: uint32(r.MaxRecv), MaxSendSGE: uint32(r.MaxSGE),
		MaxRecvSGE:    uint32(r.MaxSGE),
		MaxInlineData: uint32(r.Inline),
	}
	if r.SRQ {
		s.srq, err = s.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: uint32(r.MaxRecv),
			MaxSGE: uint32(r.MaxSGE)}})
		if err != nil {
			return nil, err
		}
	}
	for range r.QPs {
		qp, err := s.pd.CreateQP(&verbs.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, SRQ: s.srq, Cap: limits, Type: s.typ})
		if err != nil {
			return nil, err
		}
		s.qps = append(s.qps, qp)
		qpns = append(qpns, qp.QPN())
	}
	return qpns, nil
}

// handle executes a request of an open session.
func (s *session) handle(r *agent.Request) (resp agent.Response, err error) {
	if r.QP < 0 || r.QP >= len(s.qps) || r.Off < 0 || r.Len < 0 || r.Off+max(r.Len, len(r.Data)) > s.mr.Length() {
		return resp, fmt.Errorf("%s: no such QP or memory", r.Op)
	}
	mem, qp := s.mr.Bytes(), s.qps[r.QP]
	switch r.Op {
	case agent.Connect:
		return resp, s.connect(qp, &r.Path)
	case agent.Put:
		copy(mem[r.Off:], r.Data)
	case agent.Get:
		resp.Data = mem[r.Off : r.Off+r.Len]
	case agent.Sum:
		sum := sha256.Sum256(mem[r.Off : r.Off+r.Len])
		resp.Sum = hex.EncodeToString(sum[:])
	case agent.Recv:
		return resp, s.recv(qp, r.WRs)
	case agent.Send:
		return resp, s.send(qp, r.WRs)
	case agent.Poll:
		resp.WCs, err = s.poll(r)
	case agent.Arm:
		return resp, s.rcq.ReqNotify(r.Solicited)
	case agent.Event:
		resp.Got, err = s.event(time.Duration(r.MS) * time.Millisecond)
	case agent.Attach:
		var gid verbs.GID
		if gid, err = verbs.ParseGID(r.GID); err == nil {
			err = qp.AttachMcast(gid, 0)
		}
		if err == nil {
			s.joined = append(s.joined, func() error { return qp.DetachMcast(gid, 0) })
		}
	case agent.Bind:
		resp.RKey, err = s.bind(qp, r)
	case agent.State:
		attr, _, e := qp.Query(verbs.QPAttrState)
		resp.State, err = int(attr.QPState), e
	default:
		err = fmt.Errorf("%s is not supported", r.Op)
	}
	return resp, err
}

// event waits for the receive CQ's event. After the time-out got is false.
func (s *session) event(limit time.Duration) (got bool, err error) {
	c, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cq, err := s.channel.GetEvent(c)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	cq.AckEvents(1)
	return true, nil
}

func (s *session) poll(r *agent.Request) ([]agent.WC, error) {
	cq := s.rcq
	if r.CQ == "send" {
		cq = s.scq
	}
	list := []agent.WC{}
	buf := make([]verbs.WC, 16)
	for end := time.Now().Add(time.Duration(r.MS) * time.Millisecond); len(list) < r.N; {
		n, err := cq.Poll(buf[:min(len(buf), r.N-len(list))])
		if err != nil {
			return nil, err
		}
		for i := range buf[:n] {
			list = append(list, completion(&buf[i]))
		}
		if n == 0 {
			if time.Now().After(end) {
				break
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	return list, nil
}

func completion(wc *verbs.WC) agent.WC {
	w := agent.WC{
		ID: wc.WRID, Status: int(wc.Status), Opcode: int(wc.Opcode), Len: wc.ByteLen, QPN: wc.QPNum, SrcQP: wc.SrcQP,
		Flags: int(wc.WCFlags), Imm: wc.ImmData,
	}
	if wc.WCFlags&verbs.WCWithInv != 0 {
		w.Imm = wc.InvalidatedRKey
	}
	if wc.Cause != nil {
		w.Cause = wc.Cause.Error()
	}
	return w
}
