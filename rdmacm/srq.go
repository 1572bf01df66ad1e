package rdmacm

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// CreateSRQ makes a shared receive queue for the ID (rdma_create_srq) in pd, or in the default PD of the device if pd is nil. QPs
// that are made on the ID afterwards use it, and PostRecv posts to it. init gets the actual sizes. EINVAL if the ID is
// not bound to a device, has an SRQ, or pd is of another device.
func (id *ID) CreateSRQ(pd *verbs.PD, init *verbs.SRQInitAttr) error {
	const op = "create_srq"
	id.mu.Lock()
	defer id.mu.Unlock()
	pd, err := id.objectPD(op, pd)
	if err != nil {
		return err
	}
	if id.srq != nil {
		return id.fail(op, syscall.EINVAL, "the ID has an SRQ already")
	}
	id.srq, err = pd.CreateSRQ(init)
	if err != nil {
		id.srq = nil
	}
	return id.because(op, err)
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
	return nil
}
