package main

import (
	"cmp"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/verbs"
)

// connect takes a QP from RESET to RTS.
func (s *session) connect(qp *verbs.QP, p *agent.Path) error {
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: port, QPAccessFlags: s.access, QKey: p.QKey}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if s.typ == verbs.QPTypeUD {
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	if err := qp.Modify(&attr, mask); err != nil {
		return err
	}
	attr, mask = verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState
	if s.typ != verbs.QPTypeUD {
		gid, err := verbs.ParseGID(p.GID)
		if err != nil {
			return err
		}
		attr.AHAttr, attr.PathMTU, attr.DestQPNum, attr.RQPSN = s.ahAttr(gid), verbs.MTUOf(p.MTU), p.QPN, p.RQPSN
		mask |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	}
	if s.typ == verbs.QPTypeRC {
		attr.MaxDestRdAtomic, attr.MinRNRTimer = uint8(p.DestRdAtomic), uint8(p.RNRTimer)
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	if err := qp.Modify(&attr, mask); err != nil {
		return err
	}
	attr, mask = verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: p.SQPSN}, verbs.QPAttrState|verbs.QPAttrSQPSN
	if s.typ == verbs.QPTypeRC {
		attr.MaxRdAtomic, attr.Timeout, attr.RetryCnt, attr.RNRRetry = uint8(p.RdAtomic), uint8(p.Timeout), uint8(p.Retry),
			uint8(p.RNRRetry)
		mask |= verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry
	}
	return qp.Modify(&attr, mask)
}

func (s *session) ahAttr(gid verbs.GID) verbs.AHAttr {
	return verbs.AHAttr{IsGlobal: true, PortNum: port, GRH: verbs.GlobalRoute{DGID: gid, SGIDIndex: s.gidIndex,
		HopLimit: 64}}
}

func (s *session) sges(wr *agent.WR) []verbs.SGE {
	var list []verbs.SGE
	for _, e := range wr.SGE {
		list = append(list, s.mr.SGE(e[0], e[1]))
	}
	return list
}

func (s *session) recv(qp *verbs.QP, wrs []agent.WR) error {
	var list []verbs.RecvWR
	for i := range wrs {
		list = append(list, verbs.RecvWR{WRID: wrs[i].ID, SGList: s.sges(&wrs[i])})
	}
	if s.srq != nil {
		return s.srq.PostRecv(list...)
	}
	return qp.PostRecv(list...)
}

func (s *session) send(qp *verbs.QP, wrs []agent.WR) error {
	var list []verbs.SendWR
	for i := range wrs {
		wr := &wrs[i]
		out := verbs.SendWR{
			WRID: wr.ID, Opcode: verbs.WROpcode(wr.Opcode), Flags: verbs.SendFlags(wr.Flags), SGList: s.sges(wr),
			ImmData:        wr.Imm,
			InvalidateRKey: wr.Inv, RemoteAddr: wr.RAddr, RKey: wr.RKey, CompareAdd: wr.CompareAdd, Swap: wr.Swap,
		}
		if s.typ == verbs.QPTypeUD {
			ah, err := s.ah(wr.GID)
			if err != nil {
				return err
			}
			out.AH, out.RemoteQPN, out.RemoteQKey = ah, wr.QPN, wr.QKey
		}
		list = append(list, out)
	}
	return qp.PostSend(list...)
}

// ah returns the address handle for a GID, created at its first use.
func (s *session) ah(text string) (*verbs.AH, error) {
	if ah := s.ahs[text]; ah != nil {
		return ah, nil
	}
	gid, err := verbs.ParseGID(text)
	if err != nil {
		return nil, err
	}
	attr := s.ahAttr(gid)
	ah, err := s.pd.CreateAH(&attr)
	if err == nil {
		s.ahs[text] = ah
	}
	return ah, err
}

// bind binds a new memory window of type 2 to a part of the region through qp, and returns its key.
func (s *session) bind(qp *verbs.QP, r *agent.Request) (uint32, error) {
	mw, err := s.pd.AllocMW(verbs.MWType2)
	if err != nil {
		return 0, err
	}
	s.mws = append(s.mws, mw)
	key := verbs.IncRKey(mw.RKey())
	if err := qp.PostSend(verbs.SendWR{
		Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: mw, RKey: key,
		BindInfo: &verbs.MWBindInfo{MR: s.mr, Addr: s.mr.Addr() + uint64(r.Off), Length: uint64(r.Len),
			Access: verbs.AccessFlags(r.Access)},
	}); err != nil {
		return 0, err
	}
	for wcs := make([]verbs.WC, 1); ; { // the bind sends no packet
		if n, err := s.scq.Poll(wcs); n > 0 || err != nil {
			return key, cmp.Or(err, wcs[0].Err())
		}
	}
}
