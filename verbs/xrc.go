package verbs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// XRCD is an XRC domain: SRQs of type XRC, and XRC_RECV QPs that deliver to any of them; each send request names the
// SRQ (struct ibv_xrcd). One connection thus serves all programs of a machine that share the domain. It is safe for
// concurrent use.
//
// All contexts of the device that open a domain with the same file share it. With the software devices on Linux these
// may be contexts of up to 256 processes of one user; on other systems each process has its own domain for a file.
//
// An XRC_RECV QP ends with the process that created it. With the software devices it also ends (EventQPFatal) when the
// process of the SRQ that the peer has named last ends, because nobody knows then which of its requests were executed.
type XRCD struct {
	ctx      *Context
	drv      DriverXRCD
	lifetime lifetime
}

// XRCDInitAttr names the XRC domain to open (struct ibv_xrcd_init_attr, enum ibv_xrcd_init_attr_mask).
type XRCDInitAttr struct {
	File   *os.File // its inode identifies the domain; nil: a private domain
	OFlags int      // os.O_CREATE, os.O_EXCL
}

// OpenXRCD opens an XRC domain (ibv_open_xrcd). With os.O_CREATE it creates the domain if the file has none yet; with
// os.O_EXCL in addition it fails if there is one. A domain without a file needs os.O_CREATE. A nil attr asks for a
// new domain without a file. The file may be closed afterwards.
//
// Errors: EINVAL for unknown flags, or O_EXCL if the domain exists. EAGAIN if the file has no domain and O_CREATE is
// not set, or other processes keep opening the domain for 10 s. EBADF if File is closed. EOPNOTSUPP if the device has
// no XRC, or a process of another user has the domain. ENOMEM if 256 processes have it.
func (vctx *Context) OpenXRCD(attr *XRCDInitAttr) (*XRCD, error) {
	const op = "open_xrcd"
	if attr == nil {
		attr = &XRCDInitAttr{OFlags: os.O_CREATE}
	}
	if err := attr.check(); err != nil {
		return nil, badInput(op, vctx.obj(), err)
	}
	if err := vctx.use(op, kindXRCD); err != nil {
		return nil, err
	}
	d, err := attr.open(vctx.drv)
	if err != nil {
		vctx.lifetime.drop(kindXRCD)
		return nil, driverError(op, vctx.obj(), err)
	}
	return &XRCD{ctx: vctx, drv: d}, nil
}

func (a *XRCDInitAttr) check() error {
	const flags = os.O_CREATE | os.O_EXCL
	switch {
	case a.OFlags&^flags != 0:
		return fmt.Errorf("unknown OFlags %#x; must be of O_CREATE (%#x) and O_EXCL (%#x)", a.OFlags&^flags, os.O_CREATE,
			os.O_EXCL)
	case a.File == nil && a.OFlags&os.O_CREATE == 0:
		return errors.New("a domain without a file needs O_CREATE")
	}
	return nil
}

// open calls the driver with the descriptor of the file.
func (a *XRCDInitAttr) open(drv DriverContext) (d DriverXRCD, err error) {
	if a.File == nil {
		return drv.OpenXRCD(-1, a.OFlags)
	}
	conn, _ := a.File.SyscallConn() // fails for a nil file only
	if ctlErr := conn.Control(func(fd uintptr) { d, err = drv.OpenXRCD(int(fd), a.OFlags) }); ctlErr != nil {
		return nil, fmt.Errorf("%s: %w: %w", a.File.Name(), ctlErr, syscall.EBADF)
	}
	return d, err
}

// Context returns the context of the domain.
func (d *XRCD) Context() *Context { return d.ctx }

func (d *XRCD) obj() string { return "XRC domain of " + d.ctx.obj() }

// Close closes the domain (ibv_close_xrcd); it ends when its last opener has closed it. EBUSY while SRQs or QPs of
// this handle are open.
func (d *XRCD) Close() error {
	const op = "close_xrcd"
	if err := d.lifetime.close(op, d); err != nil {
		return err
	}
	if err := destroyed(d.drv.Close()); err != nil {
		d.lifetime.reopen()
		return driverError(op, d.obj(), err)
	}
	d.ctx.lifetime.drop(kindXRCD)
	return d.ctx.ended(op, d)
}

// CreateQP creates an XRC_RECV QP in the domain (ibv_create_qp_ex with an XRCD). It has no queues, CQs or PD:
// received messages go to the SRQ of the domain that the sender names. Only init.Type, which must be QPTypeXRCRecv,
// and init.Context are used. Other contexts may open the QP too; see Context.OpenQP. EINVAL for another type, ENOMEM
// without resources.
func (d *XRCD) CreateQP(init *QPInitAttr) (*QP, error) {
	const op = "create_qp_ex"
	if init == nil {
		return nil, newError(op, d.obj(), EINVAL, "the attributes are nil")
	}
	if init.Type != QPTypeXRCRecv {
		return nil, newError(op, d.obj(), EINVAL, "QP type %v: must be XRC_RECV; use PD.CreateQP", init.Type)
	}
	qp := &QP{ctx: d.ctx, xrcd: d}
	return qp.create(op, d, init, d.drv.CreateQP)
}

// QPOpenAttr names the QP to open (struct ibv_qp_open_attr, enum ibv_qp_open_attr_mask). All fields but Context are
// required.
type QPOpenAttr struct {
	QPNum   uint32
	XRCD    *XRCD
	Context any // returned by QP.QPContext
	Type    QPType
}

// OpenQP opens another handle of an XRC_RECV QP of an XRC domain (ibv_open_qp). Each handle gets the QP's events and
// can modify the QP. The QP is destroyed when its last handle is closed. EINVAL if fields are missing, the type is
// not QPTypeXRCRecv, or the domain has no such QP.
//
// The QP may belong to another process. It ends with the process that created it, or when that process closes the
// domain: then the handle gets EventQPFatal, Query shows ERR, and Modify fails with EIO. ETIMEDOUT if that process does
// not answer within 10 s, because it is stopped: the handle is of no use then.
func (vctx *Context) OpenQP(attr *QPOpenAttr) (*QP, error) {
	const op = "open_qp"
	if attr == nil {
		return nil, newError(op, vctx.obj(), EINVAL, "the attributes are nil")
	}
	if err := attr.check(vctx); err != nil {
		return nil, badInput(op, vctx.obj(), err)
	}
	qp := &QP{ctx: vctx, xrcd: attr.XRCD}
	init := QPInitAttr{Type: attr.Type, Context: attr.Context}
	open := func(_ *QPInitAttr, up DriverQPEvents) (DriverQP, error) { return attr.XRCD.drv.OpenQP(attr.QPNum, up) }
	qp, err := qp.create(op, attr.XRCD, &init, open)
	if err != nil {
		return nil, err
	}
	now, err := qp.drv.Query()
	if err != nil {
		_ = qp.Close()
		return nil, driverError(op, qp.obj(), err)
	}
	qp.setState(uint64(QPSReset), now.QPState)
	return qp, nil
}

func (a *QPOpenAttr) check(vctx *Context) error {
	switch {
	case a.XRCD == nil:
		return errors.New("the XRC domain is nil")
	case a.XRCD.ctx != vctx:
		return errors.New("the XRC domain was opened in another context")
	case a.Type != QPTypeXRCRecv:
		return fmt.Errorf("QP type %v: must be XRC_RECV", a.Type)
	case a.QPNum > 0xffffff:
		return fmt.Errorf("QP number %#x: must be 0 to 0xffffff", a.QPNum)
	}
	return nil
}

// XRCD returns the XRC domain of an XRC_RECV QP; nil for others.
func (qp *QP) XRCD() *XRCD { return qp.xrcd }

// hasRQ reports whether the QP has a receive queue of its own.
func (a *QPInitAttr) hasRQ() bool {
	return a.SRQ == nil && a.Type != QPTypeXRCSend && a.Type != QPTypeXRCRecv
}

// dropUnused clears the attributes that an XRC QP does not have.
func (a *QPInitAttr) dropUnused() {
	switch a.Type {
	case QPTypeXRCRecv:
		*a = QPInitAttr{Context: a.Context, Type: a.Type}
	case QPTypeXRCSend:
		a.RecvCQ, a.SRQ = nil, nil
		a.Cap.MaxRecvWR, a.Cap.MaxRecvSGE = 0, 0
	}
}

// currentPort returns the port of the QP, 0 before INIT. A shared QP may be modified through other handles, so the
// driver is asked.
//
// +checklocks:qp.mu
func (qp *QP) currentPort() (uint8, error) {
	if qp.xrcd == nil {
		return qp.port, nil
	}
	return qp.sharedPort()
}

// sharedPort asks the driver for the port. It is not inlined: the attributes would take stack of every Modify.
//
//go:noinline
func (qp *QP) sharedPort() (uint8, error) {
	now, err := qp.drv.Query()
	return now.PortNum, err
}

// peerType returns the type of the QPs that one of type t is connected to.
func (t QPType) peerType() QPType {
	switch t {
	case QPTypeXRCSend:
		return QPTypeXRCRecv
	case QPTypeXRCRecv:
		return QPTypeXRCSend
	}
	return t
}
