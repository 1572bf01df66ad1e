package verbs

// XRCDriver is a ContextDriver whose device has XRC (DeviceXRC).
type XRCDriver interface {
	// OpenXRCD finds or makes the domain of the file behind fd, or makes one without a file if fd is -1. flags are
	// os.O_CREATE and os.O_EXCL, and O_CREATE is there if fd is -1. EAGAIN without a domain and O_CREATE, EINVAL with a
	// domain and O_EXCL, EBADF for a bad fd. fd is the program's: it may be closed when OpenXRCD has returned.
	OpenXRCD(fd, flags int) (XRCDDriver, error)
}

// XRCDDriver is an XRC domain, as one context has opened it.
type XRCDDriver interface {
	// CreateSRQ makes an SRQ of the domain in a PD, whose completions go to cq. It puts actual sizes in init.
	CreateSRQ(pd PDDriver, cq CQDriver, init *SRQAttr, up SRQUpcalls) (XRCSRQDriver, error)
	// CreateQP makes an XRC_RECV QP, which has neither queues nor CQs.
	CreateQP(init *QPDriverInit, up QPUpcalls) (QPDriver, error)
	// OpenQP gives another handle of an XRC_RECV QP of the domain; EINVAL without such a QP. Each handle hears of all
	// events and, through StateChanged, of the moves that others make. Destroying the last one destroys the QP.
	OpenQP(qpn uint32, up QPUpcalls) (QPDriver, error)
	// Close gives the domain up. The last one to do so ends it.
	Close() error
}

// XRCSRQDriver is an SRQ of an XRC domain.
type XRCSRQDriver interface {
	SRQDriver
	// SRQN is the number by which peers name it, 24 bits.
	SRQN() uint32
}
