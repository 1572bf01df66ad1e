package verbs

import (
	"errors"
	"fmt"
	"os"
)

// XRCD is an XRC domain (struct ibv_xrcd): SRQs of type XRC, and XRC_RECV QPs that deliver to any of them, as the sender
// chooses with each request. So one connection serves all programs of a machine that share the domain. It is safe for
// concurrent use.
//
// A domain that was opened by a file is one for all contexts of the device that open the same file.
type XRCD struct {
	ctx  *Context
	drv  XRCDDriver
	life life
}

// XRCDInitAttr says which XRC domain to open (struct ibv_xrcd_init_attr). CompMask must name both fields.
type XRCDInitAttr struct {
	CompMask XRCDInitAttrMask
	FD       int // of any file, whose inode stands for the domain; -1: a domain without a file, which nobody else can open
	OFlags   int // os.O_CREATE, os.O_EXCL
}

// OpenXRCD opens an XRC domain (ibv_open_xrcd). With os.O_CREATE it makes one if there is none for the file yet, with os.O_EXCL
// besides it fails if there is one. A domain without a file needs os.O_CREATE. A nil attr asks for a new domain
// without a file. The file may be closed afterwards.
//
// EINVAL: fields are missing, unknown flags, O_EXCL and the domain exists. EAGAIN: there is no domain for the file and O_CREATE was
// not given. EBADF: FD is not open. EOPNOTSUPP: the device has no XRC.
func (ctx *Context) OpenXRCD(attr *XRCDInitAttr) (*XRCD, error) {
	const op = "open_xrcd"
	if attr == nil {
		attr = &XRCDInitAttr{CompMask: xrcdInitAll, FD: -1, OFlags: os.O_CREATE}
	}
	if err := attr.check(); err != nil {
		return nil, badInput(op, ctx.obj(), err)
	}
	drv, ok := ctx.drv.(XRCDriver)
	if !ok {
		return nil, driverError(op, ctx.obj(), ErrNotSupported)
	}
	if !ctx.life.use(kindXRCD) {
		return nil, errClosed(op, ctx.obj())
	}
	d, err := drv.OpenXRCD(attr.FD, attr.OFlags)
	if err != nil {
		ctx.life.drop(kindXRCD)
		return nil, driverError(op, ctx.obj(), err)
	}
	return &XRCD{ctx: ctx, drv: d}, nil
}

func (a *XRCDInitAttr) check() error {
	const flags = os.O_CREATE | os.O_EXCL
	switch missing, unknown := xrcdInitAll&^a.CompMask, a.CompMask&^xrcdInitAll; {
	case unknown != 0:
		return fmt.Errorf("unknown fields %v", unknown)
	case missing != 0:
		return fmt.Errorf("missing %v", missing)
	case a.OFlags&^flags != 0:
		return fmt.Errorf("OFlags %#x are not possible; O_CREATE (%#x) and O_EXCL (%#x) are", a.OFlags&^flags, os.O_CREATE, os.O_EXCL)
	case a.FD < -1:
		return fmt.Errorf("FD %d is not possible; -1 stands for no file", a.FD)
	case a.FD == -1 && a.OFlags&os.O_CREATE == 0:
		return errors.New("a domain without a file cannot exist yet; O_CREATE makes one")
	}
	return nil
}

// Context is the context that the domain was opened in.
func (d *XRCD) Context() *Context { return d.ctx }

// Driver gives providers the driver object of the domain.
func (d *XRCD) Driver() XRCDDriver { return d.drv }

func (d *XRCD) obj() string { return "XRC domain of " + d.ctx.obj() }

// Close gives the domain up (ibv_close_xrcd); it ends when the last of those who opened it has done so. EBUSY while it has SRQs
// or QPs that were made or opened through it.
func (d *XRCD) Close() error {
	const op = "close_xrcd"
	if err := d.life.end(op, d.obj()); err != nil {
		return err
	}
	if err := destroyed(d.drv.Close()); err != nil {
		d.life.revive()
		return driverError(op, d.obj(), err)
	}
	d.ctx.life.drop(kindXRCD)
	return nil
}
