package rdmacm

import (
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// CreateSRQ makes a shared receive queue for the ID (rdma_create_srq, rdma_create_srq_ex) in pd, or in the default PD
// of the device if pd is nil. QPs that are made on the ID afterwards use it, and PostRecv posts to it. init gets the
// actual sizes. For an ID of XRC_RECV QPs, or if init.Type says so, it is of type XRC, in init.XRCD or the device's
// XRC domain; without init.CQ it has a CQ and channel of its own, which RecvCQ and RecvCQChannel return. EINVAL if
// the ID is not bound to a device, has an SRQ, or pd is of another device.
func (id *ID) CreateSRQ(pd *verbs.PD, init *verbs.SRQInitAttr) error {
	const op = "create_srq"
	id.mu.Lock()
	defer id.mu.Unlock()
	if init == nil {
		return id.fail(op, syscall.EINVAL, "no attributes")
	}
	pd, err := id.objectPD(op, pd)
	if err != nil {
		return err
	}
	if id.srq != nil {
		return id.fail(op, syscall.EINVAL, "the ID has an SRQ already")
	}
	want := *init
	if id.qpType == verbs.QPTypeXRCRecv && want.Type == verbs.SRQTypeBasic {
		want.Type = verbs.SRQTypeXRC
	}
	if want.Type == verbs.SRQTypeXRC {
		if want.XRCD == nil {
			if want.XRCD, err = id.defaultXRCD(); err != nil {
				return id.because(op, err)
			}
		}
		if want.CQ == nil {
			if err = id.createRecvCQ(want.Attr.MaxWR); err != nil {
				id.destroyCQs()
				return id.because(op, err)
			}
			want.CQ = id.recvCQ
		}
	}
	srq, err := pd.CreateSRQ(&want)
	if err != nil {
		id.destroyCQs() // those of the QP stay, as long as it uses them
		return id.because(op, err)
	}
	init.Attr, init.TMCap = want.Attr, want.TMCap
	id.srq = srq
	return nil
}

// DestroySRQ destroys the ID's SRQ (rdma_destroy_srq). EBUSY while QPs use it, EINVAL without one, ErrClosed
// after Close.
func (id *ID) DestroySRQ() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.srq == nil && id.state == stDestroying {
		return id.errClosed("destroy_srq")
	}
	if id.srq == nil {
		return id.fail("destroy_srq", syscall.EINVAL, "the ID has no SRQ")
	}
	return id.destroySRQ()
}

// destroySRQ destroys the SRQ, if there is one.
//
// +checklocks:id.mu
func (id *ID) destroySRQ() error {
	if id.srq == nil {
		return nil
	}
	if err := driver.Destroyed(id.srq.Close()); err != nil {
		return id.because("destroy_srq", err)
	}
	id.srq = nil
	id.destroyCQs() // those of the QP stay, as long as it uses them
	return nil
}
