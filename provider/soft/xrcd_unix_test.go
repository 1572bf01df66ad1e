//go:build unix

package soft_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// domainFile opens a new file for a domain.
func domainFile(tb testing.TB) verbs.XRCDInitAttr {
	tb.Helper()
	f := get(os.Create(filepath.Join(tb.TempDir(), "xrcd")))(tb)
	tb.Cleanup(func() { _ = f.Close() })
	return verbs.XRCDInitAttr{File: f, OFlags: os.O_CREATE}
}

// sameDomain reports whether a QP made in one domain can be opened in the other.
func sameDomain(t *testing.T, b *end, da, db *verbs.XRCD) bool {
	t.Helper()
	qp := get(da.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))(t)
	defer func() { must(t, qp.Close()) }()
	other, err := b.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: qp.QPN(), XRCD: db, Type: verbs.QPTypeXRCRecv})
	if err == nil {
		must(t, other.Close())
	}
	return err == nil
}

func TestV_XRCD_02_Create(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	other := newEnd(t, e.dev)
	path := filepath.Join(t.TempDir(), "xrcd")
	f := get(os.Create(path))(t)
	attr := verbs.XRCDInitAttr{File: f, OFlags: os.O_CREATE}
	d := e.openXRCD(&attr)
	must(t, f.Close()) // the domain does not need it any more
	f = get(os.Open(path))(t)
	defer f.Close()
	attr.File = f
	again := other.openXRCD(&attr) // O_CREAT has no effect
	if !sameDomain(t, other, d, again) {
		t.Error("two domains of one file")
	}
	attr.OFlags = 0
	if !sameDomain(t, other, d, other.openXRCD(&attr)) {
		t.Error("opened another domain")
	}
	if sameDomain(t, e, d, e.openXRCD(nil)) || sameDomain(t, e, e.openXRCD(nil), e.openXRCD(nil)) { // V_XRCD_04
		t.Error("a domain without a file is shared")
	}
}

func TestV_XRCD_03_Exclusive(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	attr := domainFile(t)
	attr.OFlags = os.O_CREATE | os.O_EXCL
	d := get(e.ctx.OpenXRCD(&attr))(t)
	if _, err := e.ctx.OpenXRCD(&attr); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("O_EXCL with a domain: %v", err)
	}
	must(t, d.Close())
	e.openXRCD(&attr)
}

func TestV_XRCD_05_LastReferenceEnds(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	attr := domainFile(t)
	d, again := get(e.ctx.OpenXRCD(&attr))(t), get(e.ctx.OpenXRCD(&attr))(t)
	must(t, d.Close())
	attr.OFlags = 0
	must(t, get(e.ctx.OpenXRCD(&attr))(t).Close())
	must(t, again.Close())
	if _, err := e.ctx.OpenXRCD(&attr); !errors.Is(err, verbs.EAGAIN) {
		t.Errorf("the domain still exists: %v", err)
	}
}

func TestX_XRCD_01_Errors(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	attr := domainFile(t)
	attr.OFlags = 0
	if _, err := e.ctx.OpenXRCD(&attr); !errors.Is(err, verbs.EAGAIN) {
		t.Errorf("no domain, no O_CREAT: %v", err)
	}
	must(t, attr.File.Close())
	if _, err := e.ctx.OpenXRCD(&attr); !errors.Is(err, syscall.EBADF) {
		t.Errorf("bad fd: %v", err)
	}
}

// TestX_XRCD_01_RemovedFile: a file with the name, and perhaps the inode number, of a removed one has its own domain.
func TestX_XRCD_01_RemovedFile(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	path := filepath.Join(t.TempDir(), "xrcd")
	for range 10 {
		f := get(os.Create(path))(t)
		attr := verbs.XRCDInitAttr{File: f, OFlags: os.O_CREATE | os.O_EXCL}
		e.openXRCD(&attr)
		must(t, os.Remove(path))
		must(t, f.Close())
	}
}

// TestX_XRCD_01_DomainsAreOfADevice: two devices have different domains of one file.
func TestX_XRCD_01_DomainsAreOfADevice(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	attr := domainFile(t)
	attr.OFlags = os.O_CREATE | os.O_EXCL
	for _, e := range ends {
		e.openXRCD(&attr)
	}
}
