package verbs

type (
	// Context is an open device.
	Context struct{ drv ContextDriver }
	// PD is a protection domain.
	PD struct{ drv PDDriver }
	// MR is a memory region.
	MR struct{ drv MRDriver }
	// CQ is a completion queue.
	CQ struct{ drv CQDriver }
	// CompChannel is a completion channel.
	CompChannel struct{ ctx *Context }
	// QP is a queue pair.
	QP struct{ drv QPDriver }
	// SRQ is a shared receive queue.
	SRQ struct{ drv SRQDriver }
	// AH is an address handle.
	AH struct{ drv AHDriver }
)
