//go:build unix

package verbs

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// One part of a program imports the objects that another part exported.
func TestImportDevicePDAndMR(t *testing.T) {
	dev := newFakeDevice()
	vctx, _ := openDevice(t, dev)
	fd := must(vctx.CmdFD())(t)
	if again := must(vctx.CmdFD())(t); again != fd {
		t.Errorf("descriptor %d, then %d", fd, again)
	}
	other := must(ImportDevice(fd))(t)
	if other == vctx || other.Device() != vctx.Device() {
		t.Errorf("%v of %v", other, other.Device())
	}
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 64), AccessLocalWrite|AccessRemoteRead))(t)
	handle := mr.Handle()
	if again := mr.Handle(); again != handle || pd.Handle() == newPD(t, vctx).Handle() {
		t.Error("handles")
	}
	theirs := must(other.ImportPD(pd.Handle()))(t)
	region := must(theirs.ImportMR(mr.Handle()))(t)
	if theirs.Context() != other || theirs.drv != pd.drv || region.PD() != theirs || region.LKey() != mr.LKey() ||
		region.RKey() != mr.RKey() ||
		region.Addr() != mr.Addr() || region.Length() != 64 || region.Access() != mr.Access() || region.SGE(1,
		2) != mr.SGE(1, 2) {
		t.Errorf("%+v", region)
	}

	// Both PDs are one domain: a QP of one can use an SRQ of the other.
	cq, _ := newCQ(t, other, nil)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	qp := must(theirs.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(t)
	refused(t, theirs.Close(), EBUSY, "unimport_pd", "1 QP", "1 MR")
	refused(t, pd.Close(), EBUSY, "1 import")
	refused(t, mr.Close(), EBUSY, "1 import")
	_, err := other.CreateCQ(1, &CQOptions{ParentDomain: theirs})
	refused(t, err, EINVAL, "not a parent domain")
	_, err = other.AllocParentDomain(&ParentDomainInitAttr{PD: theirs})
	refused(t, err, EINVAL, "imported")
	rereg(t, region.Rereg(ReregChangeAccess, nil, nil, 0), ReregErrInput, EINVAL, "imported")

	// Objects that cannot be imported.
	_, err = other.ImportPD(mr.Handle())
	refused(t, err, ENOENT, "import_pd")
	_, err = theirs.ImportMR(pd.Handle())
	refused(t, err, ENOENT, "import_mr")
	_, err = newPD(t, other).ImportMR(mr.Handle())
	refused(t, err, EINVAL, "another PD")
	stranger, _ := openFake(t)
	_, err = stranger.ImportPD(pd.Handle())
	refused(t, err, ENOENT)
	_, err = newPD(t, stranger).ImportMR(mr.Handle())
	refused(t, err, ENOENT)

	for _, c := range []interface{ Close() error }{qp, srq, region} {
		ok(t, c.Close())
	}
	refused(t, region.Close(), EINVAL, "unimport_mr", "closed")
	ok(t, mr.Close())
	_, err = theirs.ImportMR(handle)
	refused(t, err, ENOENT)
	ok(t, theirs.Close())
	refused(t, theirs.Close(), EINVAL, "closed")
	_, err = theirs.ImportMR(handle)
	refused(t, err, ENOENT)
	ok(t, pd.Close())
	if !dev.opened[0].called("Dealloc") || dev.opened[1].called("Dereg") {
		t.Error("closing the imported objects destroyed the driver's")
	}
}

// The handle of a parent domain ends with it, as that of its PD does.
func TestImportOfAClosedParentDomain(t *testing.T) {
	vctx, _ := openFake(t)
	other := must(ImportDevice(must(vctx.CmdFD())(t)))(t)
	domain := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: newPD(t, vctx)}))(t)
	handle := domain.Handle()
	theirs := must(other.ImportPD(handle))(t)
	refused(t, domain.Close(), EBUSY, "1 import")
	ok(t, theirs.Close())
	ok(t, domain.Close())
	_, err := other.ImportPD(handle)
	refused(t, err, ENOENT, "import_pd")
	if exported(handle, exports.pds) != nil {
		t.Error("the table of exports keeps the domain")
	}
}

// An import of a region of the whole address space has its length.
func TestImportTheWholeAddressSpace(t *testing.T) {
	vctx, _ := openFake(t)
	vctx.attr.ODPCaps.General |= ODPSupportImplicit
	other := must(ImportDevice(must(vctx.CmdFD())(t)))(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(nil, AccessLocalWrite|AccessOnDemand))(t)
	theirs := must(other.ImportPD(pd.Handle()))(t)
	region := must(theirs.ImportMR(mr.Handle()))(t)
	if region.Length() != mr.Length() || region.Bytes() != nil {
		t.Errorf("%d bytes, the original has %d", region.Length(), mr.Length())
	}
	for _, c := range []interface{ Close() error }{region, theirs, mr, other} {
		ok(t, c.Close())
	}
}

func TestImportDeviceRefusals(t *testing.T) {
	vctx, _ := openFake(t)
	fd := must(vctx.CmdFD())(t)
	dup := must(syscall.Dup(fd))(t)
	ok(t, must(ImportDevice(dup))(t).Close())
	file := must(os.Open(os.DevNull))(t)
	_, err := ImportDevice(int(file.Fd()))
	refused(t, err, EOPNOTSUPP, "import_device", "of this process")
	ok(t, file.Close())
	_, err = ImportDevice(-1)
	refused(t, err, syscall.EBADF)
	ok(t, vctx.Close())
	_, err = ImportDevice(dup)
	refused(t, err, EOPNOTSUPP)
	ok(t, syscall.Close(dup))
	_, err = vctx.CmdFD()
	refused(t, err, EINVAL, "closed")
}

// Device memory is one, whichever context it is reached by.
func TestImportDM(t *testing.T) {
	dev := newFakeDevice()
	vctx, _ := openDevice(t, dev)
	other := must(ImportDevice(must(vctx.CmdFD())(t)))(t)
	dm := must(vctx.AllocDM(AllocDMAttr{Length: 100}))(t)
	handle := dm.Handle()
	theirs := must(other.ImportDM(handle))(t)
	if theirs.Context() != other || theirs.drv != dm.drv || theirs.Length() != 100 {
		t.Errorf("%+v", theirs)
	}
	mr := must(newPD(t, other).RegDMMR(theirs, 0, 100, AccessZeroBased))(t)
	refused(t, theirs.Close(), EBUSY, "unimport_dm", "1 MR")
	refused(t, dm.Close(), EBUSY, "1 import")
	ok(t, mr.Close())

	_, err := other.ImportDM(handle + 1000)
	refused(t, err, ENOENT, "import_dm")
	stranger, _ := openFake(t)
	_, err = stranger.ImportDM(handle)
	refused(t, err, ENOENT)

	ok(t, theirs.Close())
	refused(t, theirs.Close(), EINVAL, "closed")
	ok(t, dm.Close())
	_, err = other.ImportDM(handle)
	refused(t, err, ENOENT)
}

// A context that is closed, or memory that is being closed, imports nothing and is used by nobody afterwards.
func TestImportDMOfClosedObjects(t *testing.T) {
	dev := newFakeDevice()
	vctx, _ := openDevice(t, dev)
	other := must(ImportDevice(must(vctx.CmdFD())(t)))(t)
	dm := must(vctx.AllocDM(AllocDMAttr{Length: 100}))(t)
	handle := dm.Handle()
	ok(t, other.Close())
	_, err := other.ImportDM(handle)
	refused(t, err, EINVAL, "import_dm", "closed")
	third := must(ImportDevice(must(vctx.CmdFD())(t)))(t)
	ok(t, dm.lifetime.close("free_dm", dm)) // Close has begun, and the handle still stands
	_, err = third.ImportDM(handle)
	refused(t, err, EINVAL, "import_dm", "closed")
	ok(t, third.Close())
	dm.lifetime.reopen()
	ok(t, dm.Close())
	ok(t, vctx.Close())
}

// Nothing is imported once the device was removed from one of the two contexts.
func TestV_ENV_02_ImportAfterRemoval(t *testing.T) {
	for i, from := range []string{"the exporter", "the importer"} {
		dev := newFakeDevice()
		vctx, _ := openDevice(t, dev)
		other := must(ImportDevice(must(vctx.CmdFD())(t)))(t)
		pd := newPD(t, vctx)
		mr := must(pd.RegMR(make([]byte, 8), 0))(t)
		dm := must(vctx.AllocDM(AllocDMAttr{Length: 100}))(t)
		theirs := must(other.ImportPD(pd.Handle()))(t)
		dev.opened[i].up.DeviceEvent(EventDeviceFatal)
		for name, call := range map[string]func() error{
			"import_pd": func() error { _, err := other.ImportPD(pd.Handle()); return err },
			"import_mr": func() error { _, err := theirs.ImportMR(mr.Handle()); return err },
			"import_dm": func() error { _, err := other.ImportDM(dm.Handle()); return err },
		} {
			if err := call(); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s, removed from %s: %v", name, from, err)
			}
		}
	}
}
