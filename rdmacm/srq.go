package rdmacm

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// CreateSRQ makes a shared receive queue for the ID (rdma_create_srq) in pd, or in the default PD of the device if pd is nil. QPs
// that are made on the ID afterwards use it, and PostRecv posts to it. init gets the actual sizes. For an ID of XRC_RECV QPs
// it is of type XRC, in the device's XRC domain, and has a CQ and channel of its own, which RecvCQ and RecvCQChannel return. EINVAL if
// the ID is not bound to a device, has an SRQ, or pd is of another device.
func (id *ID) CreateSRQ(pd *verbs.PD, init *verbs.SRQInitAttr) error {
	const op = "create_srq"
	if init == nil {
		return id.wrong(op, syscall.EINVAL, "there are no attributes")
	}
	ex := verbs.SRQInitAttrEx{Context: init.Context, Attr: init.Attr, CompMask: verbs.SRQInitType, Type: verbs.SRQTypeBasic}
	if id.qpType == verbs.QPTypeXRCRecv {
		ex.Type = verbs.SRQTypeXRC
	}
	if pd != nil {
		ex.CompMask, ex.PD = ex.CompMask|verbs.SRQInitPD, pd
	}
	err := id.createSRQ(op, &ex)
	if err == nil {
		init.Attr = ex.Attr
	}
	return err
}

// CreateSRQEx is CreateSRQ with extended attributes (rdma_create_srq_ex): init.CompMask names those that count, and the type has to
// be among them, else EINVAL. PD, XRC domain and CQ are those of CreateSRQ if they are not given.
func (id *ID) CreateSRQEx(init *verbs.SRQInitAttrEx) error {
	const op = "create_srq_ex"
	if init == nil || init.CompMask&verbs.SRQInitType == 0 {
		return id.wrong(op, syscall.EINVAL, "the type must be given, and CompMask must say so")
	}
	ex := *init
	err := id.createSRQ(op, &ex)
	if err == nil {
		init.Attr = ex.Attr
	}
	return err
}

// createSRQ fills in what is missing.
func (id *ID) createSRQ(op string, ex *verbs.SRQInitAttrEx) (err error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if ex.CompMask&verbs.SRQInitPD == 0 {
		ex.PD = nil
	}
	if ex.PD, err = id.objectPD(op, ex.PD); err != nil {
		return err
	}
	if id.srq != nil {
		return id.fail(op, syscall.EINVAL, "the ID has an SRQ already")
	}
	ex.CompMask |= verbs.SRQInitPD
	if ex.Type == verbs.SRQTypeXRC {
		if ex.CompMask&verbs.SRQInitXRCD == 0 {
			if ex.XRCD, err = id.defaultXRCD(); err != nil {
				return id.because(op, err)
			}
		}
		if ex.CompMask&verbs.SRQInitCQ == 0 {
			if err = id.createRecvCQ(ex.Attr.MaxWR); err != nil {
				id.destroyCQs()
				return id.because(op, err)
			}
			ex.CQ = id.recvCQ
		}
		ex.CompMask |= verbs.SRQInitXRCD | verbs.SRQInitCQ
	}
	srq, err := id.dev.ctx.CreateSRQEx(ex)
	if err != nil {
		if id.qp == nil {
			id.destroyCQs()
		}
		return id.because(op, err)
	}
	id.srq = srq
	return nil
}

// DestroySRQ destroys the ID's SRQ (rdma_destroy_srq). EBUSY while QPs use it, EINVAL without one.
func (id *ID) DestroySRQ() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.srq == nil {
		return id.fail("destroy_srq", syscall.EINVAL, "the ID has no SRQ")
	}
	return id.destroySRQ()
}

func (id *ID) destroySRQ() error {
	if id.srq == nil {
		return nil
	}
	if err := id.srq.Close(); err != nil {
		return id.because("destroy_srq", err)
	}
	id.srq = nil
	if id.qp == nil {
		id.destroyCQs()
	}
	return nil
}
