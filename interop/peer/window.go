package main

import (
	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/verbs"
)

// bind makes a memory window of type 2 over a part of the region, bound through qp, and returns its key.
func (s *session) bind(qp *verbs.QP, r *agent.Request) (uint32, error) {
	mw, err := s.pd.AllocMW(verbs.MWType2)
	if err != nil {
		return 0, err
	}
	s.mws = append(s.mws, mw)
	key := verbs.IncRKey(mw.RKey())
	if err := qp.PostSend(verbs.SendWR{
		Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: mw, RKey: key,
		BindInfo: &verbs.MWBindInfo{MR: s.mr, Addr: s.mr.Addr() + uint64(r.Off), Length: uint64(r.Len), Access: verbs.AccessFlags(r.Access)},
	}); err != nil {
		return 0, err
	}
	for wcs := make([]verbs.WC, 1); ; { // it needs no packet
		if n, err := s.scq.Poll(wcs); n > 0 || err != nil {
			return key, firstError(err, wcs[0].Err())
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
