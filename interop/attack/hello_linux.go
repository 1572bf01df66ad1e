package main

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// hello sends a message from one queue pair to another one of the first device, and prints its QPN.
func hello() error {
	dev, err := verbs.Open("")
	if err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(4, nil)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	attr := verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	var qps [2]*verbs.QP
	var infos [2]verbs.QPInfo
	for i := range qps {
		if qps[i], err = pd.CreateQP(&attr); err != nil {
			return err
		}
		if infos[i], err = qps[i].LocalInfo(); err != nil {
			return err
		}
	}
	for i := range qps {
		if err := qps[i].Connect(infos[1-i], nil); err != nil {
			return err
		}
	}
	err = errors.Join(
		qps[1].PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 32)}}),
		qps[0].PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{mr.SGE(32, 5)}}))
	for done := 0; done < 2 && err == nil; {
		var wcs [2]verbs.WC
		n, e := cq.Poll(wcs[:])
		err = e
		for _, wc := range wcs[:n] {
			err = errors.Join(err, wc.Err())
			done++
		}
	}
	if err == nil {
		fmt.Printf("QPN %#x\nhello\n", infos[0].QPN)
	}
	return err
}
