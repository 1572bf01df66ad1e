package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// resources are the objects of one end.
type resources struct {
	config
	conn net.Conn
	json *json.Decoder

	vctx *verbs.Context
	pd   *verbs.PD
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP
	gid  int

	remote connData
}

// connData is the message that each end sends over TCP.
type connData struct {
	Addr uint64 // of the buffer
	RKey uint32
	QPN  uint32
	GID  verbs.GID
}

// create creates the objects in the manual's order: device, PD, CQ, memory region, QP.
func (r *resources) create() (err error) {
	if r.vctx, err = verbs.Open(r.device); err != nil {
		return err
	}
	if _, err = r.vctx.QueryPort(r.port); err != nil {
		return err
	}
	if r.gid = r.gidIndex; r.gid < 0 {
		choice, err := r.vctx.SelectGID(r.port, peerAddr(r.conn))
		if err != nil {
			return err
		}
		r.gid = choice.Index
	}
	if r.pd, err = r.vctx.AllocPD(); err != nil {
		return err
	}
	if r.cq, err = r.vctx.CreateCQ(1, nil); err != nil {
		return err
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if r.mr, err = r.pd.RegMR(make([]byte, size), access); err != nil {
		return err
	}
	r.qp, err = r.pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SigAll: true, SendCQ: r.cq, RecvCQ: r.cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// connect exchanges connData with the peer and moves the QP to RTS, step by step as in the manual. QP.LocalInfo and
// QP.Connect do the same in two calls.
func (r *resources) connect() error {
	gid, err := r.vctx.QueryGID(r.port, r.gid)
	if err != nil {
		return err
	}
	err = r.exchange(connData{Addr: r.mr.Addr(), RKey: r.mr.RKey(), QPN: r.qp.QPN(), GID: gid}, &r.remote)
	if err != nil {
		return err
	}
	if err := r.modifyToInit(); err != nil {
		return err
	}
	if r.server != "" {
		if err := r.postReceive(); err != nil {
			return err
		}
	}
	if err := r.modifyToRTR(); err != nil {
		return err
	}
	if err := r.modifyToRTS(); err != nil {
		return err
	}
	return r.sync() // both ends are ready
}

func (r *resources) modifyToInit() error {
	return r.qp.Modify(&verbs.QPAttr{
		QPState: verbs.QPSInit, PortNum: r.port, PKeyIndex: 0,
		QPAccessFlags: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
}

func (r *resources) modifyToRTR() error {
	return r.qp.Modify(&verbs.QPAttr{
		QPState: verbs.QPSRTR, PathMTU: verbs.MTU256, DestQPNum: r.remote.QPN, RQPSN: 0, MaxDestRdAtomic: 1,
		MinRNRTimer: 0x12,
		AHAttr: verbs.AHAttr{
			PortNum: r.port, IsGlobal: true,
			GRH: verbs.GlobalRoute{DGID: r.remote.GID, SGIDIndex: r.gid, HopLimit: 64},
		},
	}, verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|
		verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer)
}

func (r *resources) modifyToRTS() error {
	return r.qp.Modify(&verbs.QPAttr{
		QPState: verbs.QPSRTS, Timeout: 0x12, RetryCnt: 6, RNRRetry: 0, SQPSN: 0, MaxRdAtomic: 1,
	}, verbs.QPAttrState|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry|verbs.QPAttrSQPSN|
		verbs.QPAttrMaxQPRdAtomic)
}

func (r *resources) postReceive() error {
	return r.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{r.mr.SGE(0, size)}})
}

// postSend posts one request; READ and WRITE name the peer's memory.
func (r *resources) postSend(op verbs.WROpcode) error {
	wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{r.mr.SGE(0, size)}}
	if op != verbs.WRSend {
		wr.RemoteAddr, wr.RKey = r.remote.Addr, r.remote.RKey
	}
	return r.qp.PostSend(wr)
}

// wait waits for one completion, for at most 10 seconds. The manual's program polls instead.
func (r *resources) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wcs [1]verbs.WC
	if _, err := r.cq.Wait(ctx, wcs[:]); err != nil {
		return err
	}
	return wcs[0].Err()
}

// exchange sends a value to the peer and receives one from it.
func (r *resources) exchange(mine, theirs any) error {
	if err := json.NewEncoder(r.conn).Encode(mine); err != nil {
		return err
	}
	return r.json.Decode(theirs)
}

// sync returns when both ends have called it.
func (r *resources) sync() error {
	var theirs string
	return r.exchange("R", &theirs)
}

func (r *resources) setText(s string) { copy(r.mr.Bytes(), append([]byte(s), 0)) }

// text returns the buffer up to the first zero byte.
func (r *resources) text() string {
	s, _, _ := bytes.Cut(r.mr.Bytes(), []byte{0})
	return string(s)
}

// destroy closes the objects that exist, in the reverse order: QP, memory region, CQ, PD, device.
func (r *resources) destroy() {
	if r.qp != nil {
		_ = r.qp.Close()
	}
	if r.mr != nil {
		_ = r.mr.Close()
	}
	if r.cq != nil {
		_ = r.cq.Close()
	}
	if r.pd != nil {
		_ = r.pd.Close()
	}
	if r.vctx != nil {
		_ = r.vctx.Close()
	}
}
