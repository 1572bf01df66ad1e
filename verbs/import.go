package verbs

import (
	"os"
	"sync"
)

// Parts of a program, each with a context of its own, can share PDs, MRs and device memory: one part exports a
// descriptor and handles, the other imports them. The C library supports this between processes too. Here the memory
// of another process cannot be reached, so that the exports of another process are refused with EOPNOTSUPP.

// exports holds the exports of this process.
var exports = struct {
	mu sync.Mutex
	// +checklocks:mu
	files map[inode]*Context
	// +checklocks:mu
	last uint32
	pds  map[uint32]*PD
	mrs  map[uint32]*MR
	dms  map[uint32]*DM
}{files: map[inode]*Context{}, pds: map[uint32]*PD{}, mrs: map[uint32]*MR{}, dms: map[uint32]*DM{}}

// exportFile is the exported descriptor of a context: one end of a pipe. The other end keeps it from being readable.
type exportFile struct {
	mu sync.Mutex
	// +checklocks:mu
	r, w *os.File // nil without an export
	// +checklocks:mu
	id inode
}

// CmdFD returns a descriptor for the context, for ImportDevice only (cmd_fd of struct ibv_context). It may be
// duplicated. It is valid until the context is closed. EOPNOTSUPP if the operating system has no such descriptors.
func (vctx *Context) CmdFD() (int, error) {
	const op = "cmd_fd"
	if err := vctx.enter(op); err != nil {
		return -1, err
	}
	defer vctx.leave()
	f := &vctx.export
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r == nil {
		if err := f.open(vctx); err != nil {
			return -1, driverError(op, vctx.obj(), err)
		}
	}
	return int(f.r.Fd()), nil
}

// open makes the pipe and exports vctx. After an error there is no pipe. mu is held.
//
// +checklocks:f.mu
func (f *exportFile) open(vctx *Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	id, err := inodeOf(int(r.Fd()))
	if err != nil {
		_ = r.Close()
		_ = w.Close()
		return err
	}
	f.r, f.w, f.id = r, w, id
	exports.mu.Lock()
	defer exports.mu.Unlock()
	exports.files[id] = vctx
	return nil
}

// unexport closes the descriptor of CmdFD.
func (vctx *Context) unexport() {
	f := &vctx.export
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r == nil {
		return
	}
	exports.mu.Lock()
	delete(exports.files, f.id)
	exports.mu.Unlock()
	_ = f.r.Close()
	_ = f.w.Close()
}

// ImportDevice opens the device of an exported context again (ibv_import_device). cmdFD comes from Context.CmdFD; it
// stays with the caller. PDs of the exported context can then be imported with Context.ImportPD.
//
// Errors: EBADF if cmdFD is not open, EOPNOTSUPP if it is not from an open context of this process. EIO once the device
// was removed from the exported context.
func ImportDevice(cmdFD int) (*Context, error) {
	const op = "import_device"
	id, err := inodeOf(cmdFD)
	if err != nil {
		return nil, driverError(op, "", err)
	}
	exports.mu.Lock()
	from := exports.files[id]
	exports.mu.Unlock()
	if from == nil {
		return nil, newError(op, "", EOPNOTSUPP,
			"descriptor %d: must be from Context.CmdFD of an open context of this process", cmdFD)
	}
	if err := from.checkRemoved(op, from); err != nil {
		return nil, err
	}
	return from.dev.Open()
}

// Handle returns the number by which other contexts of the device import the PD (handle of struct ibv_pd). It is
// valid until the PD is closed.
func (pd *PD) Handle() uint32 { return export(&pd.handle, exports.pds, pd) }

// Handle returns the number by which other contexts of the device import the region (handle of struct ibv_mr). It is
// valid until the region is closed.
func (mr *MR) Handle() uint32 { return export(&mr.handle, exports.mrs, mr) }

// Handle returns the number by which other contexts of the device import the memory (handle of struct ibv_dm). It is
// valid until the memory is freed.
func (dm *DM) Handle() uint32 { return export(&dm.handle, exports.dms, dm) }

func export[T any](handle *uint32, table map[uint32]*T, v *T) uint32 {
	exports.mu.Lock()
	defer exports.mu.Unlock()
	if *handle == 0 {
		exports.last++
		*handle = exports.last
		table[*handle] = v
	}
	return *handle
}

func unexport[T any](handle *uint32, table map[uint32]*T) {
	exports.mu.Lock()
	defer exports.mu.Unlock()
	delete(table, *handle)
}

func exported[T any](handle uint32, table map[uint32]*T) *T {
	exports.mu.Lock()
	defer exports.mu.Unlock()
	return table[handle]
}

// checkImport returns EIO if the device was removed from the context, or from the one that exports.
func (vctx *Context) checkImport(op string, exporter *Context) error {
	if err := vctx.checkRemoved(op, vctx); err != nil {
		return err
	}
	return exporter.checkRemoved(op, exporter)
}

// ImportPD imports a PD of another context of the same device (ibv_import_pd). The result and the original PD are one
// protection domain: their members work together. The original cannot be closed (EBUSY) before Close of the result,
// which is ibv_unimport_pd. ENOENT if no open context of the device has a PD with the handle. EIO once the device was
// removed from one of the contexts.
func (vctx *Context) ImportPD(handle uint32) (*PD, error) {
	const op = "import_pd"
	from := exported(handle, exports.pds)
	if from == nil || from.ctx.dev.drv != vctx.dev.drv {
		return nil, newError(op, vctx.obj(), ENOENT,
			"unknown PD handle %d; must be from PD.Handle of an open context of the device", handle)
	}
	if err := vctx.checkImport(op, from.ctx); err != nil {
		return nil, err
	}
	if err := use(op, kindImport, []parent{{&from.lifetime, from}}); err != nil {
		return nil, err
	}
	if !vctx.lifetime.use(kindPD) {
		from.lifetime.drop(kindImport)
		return nil, errClosed(op, vctx.obj())
	}
	return &PD{ctx: vctx, drv: from.drv, base: from.base, from: from}, nil
}

// unimport closes an imported PD (ibv_unimport_pd).
func (pd *PD) unimport() error {
	if err := pd.lifetime.close("unimport_pd", pd); err != nil {
		return err
	}
	unexport(&pd.handle, exports.pds)
	pd.from.lifetime.drop(kindImport)
	pd.ctx.lifetime.drop(kindPD)
	return nil
}

// ImportMR imports a region of the same protection domain that was registered through another context
// (ibv_import_mr). Address, length, access flags and keys are those of the original region. The original stays
// registered, and its Close returns EBUSY, until Close of the result, which is ibv_unimport_mr. The result cannot be
// changed by Rereg (EINVAL) and does not follow a Rereg of the original. ENOENT for an unknown handle, EINVAL if the
// original is in another protection domain. EIO once the device was removed from one of the contexts.
func (pd *PD) ImportMR(handle uint32) (*MR, error) {
	const op = "import_mr"
	from := exported(handle, exports.mrs)
	if from == nil || from.Context().dev.drv != pd.ctx.dev.drv {
		return nil, newError(op, pd.obj(), ENOENT,
			"unknown MR handle %d; must be from MR.Handle of an open context of the device", handle)
	}
	if err := pd.ctx.checkImport(op, from.Context()); err != nil {
		return nil, err
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.pd.domain() != pd.domain() {
		return nil, newError(op, pd.obj(), EINVAL, "MR handle %d: the region belongs to another PD", handle)
	}
	if err := use(op, kindImport, []parent{{&from.lifetime, from}}); err != nil {
		return nil, err
	}
	if !pd.lifetime.use(kindMR) {
		from.lifetime.drop(kindImport)
		return nil, errClosed(op, pd.obj())
	}
	mr := &MR{pd: pd, drv: from.drv, null: from.null, dm: from.dm, dmaBuf: from.dmaBuf, length: from.length, buf: from.buf,
		access: from.access, from: from}
	mr.publish(from.addr.Load())
	return mr, nil
}

// unimport closes an imported region (ibv_unimport_mr).
func (mr *MR) unimport() error {
	if err := mr.lifetime.close("unimport_mr", mr); err != nil {
		return err
	}
	unexport(&mr.handle, exports.mrs)
	mr.from.lifetime.drop(kindImport)
	mr.pd.lifetime.drop(kindMR)
	return nil
}

// ImportDM imports device memory of another context of the same device (ibv_import_dm). The original cannot be closed
// (EBUSY) before Close of the result, which is ibv_unimport_dm. ENOENT if no open context of the device has memory
// with the handle. EIO once the device was removed from one of the contexts.
func (vctx *Context) ImportDM(handle uint32) (*DM, error) {
	const op = "import_dm"
	from := exported(handle, exports.dms)
	if from == nil || from.ctx.dev.drv != vctx.dev.drv {
		return nil, newError(op, vctx.obj(), ENOENT,
			"unknown DM handle %d; must be from DM.Handle of an open context of the device", handle)
	}
	if err := vctx.checkImport(op, from.ctx); err != nil {
		return nil, err
	}
	if err := use(op, kindImport, []parent{{&from.lifetime, from}}); err != nil {
		return nil, err
	}
	if !vctx.lifetime.use(kindDM) {
		from.lifetime.drop(kindImport)
		return nil, errClosed(op, vctx.obj())
	}
	return &DM{ctx: vctx, drv: from.drv, length: from.length, from: from}, nil
}

// unimport closes imported memory (ibv_unimport_dm). mu is held.
func (dm *DM) unimport() error {
	if err := dm.lifetime.close("unimport_dm", dm); err != nil {
		return err
	}
	unexport(&dm.handle, exports.dms)
	dm.from.lifetime.drop(kindImport)
	dm.ctx.lifetime.drop(kindDM)
	return nil
}
