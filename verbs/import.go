package verbs

import (
	"os"
	"sync"
)

// Several parts of a program, each with a context of its own, may work with the same PDs and MRs: one exports them as a
// descriptor and handles, the other imports those. The C library lets processes do this too. Here memory of another process cannot be
// reached, so that what another process has exported is refused with EOPNOTSUPP.

// exports is what this process has exported.
var exports = struct {
	mu    sync.Mutex
	files map[inode]*Context
	last  uint32
	pds   map[uint32]*PD
	mrs   map[uint32]*MR
}{files: map[inode]*Context{}, pds: map[uint32]*PD{}, mrs: map[uint32]*MR{}}

// exportFile is the descriptor of a context; its other end keeps it from being readable.
type exportFile struct {
	once sync.Once
	r, w *os.File
	id   inode
	err  error
}

// CmdFD is a descriptor that stands for the context, for ImportDevice (cmd_fd of struct ibv_context). It can be duplicated. It
// is valid until the context is closed, and for nothing but that. EOPNOTSUPP where the system has no such thing.
func (ctx *Context) CmdFD() (int, error) {
	const op = "cmd_fd"
	if err := ctx.enter(op); err != nil {
		return -1, err
	}
	defer ctx.leave()
	f := &ctx.export
	f.once.Do(func() {
		if f.r, f.w, f.err = os.Pipe(); f.err != nil {
			return
		}
		if f.id, f.err = inodeOf(int(f.r.Fd())); f.err != nil {
			f.close()
			return
		}
		exports.mu.Lock()
		defer exports.mu.Unlock()
		exports.files[f.id] = ctx
	})
	if f.err != nil {
		return -1, driverError(op, ctx.obj(), f.err)
	}
	return int(f.r.Fd()), nil
}

func (f *exportFile) close() {
	_ = f.r.Close()
	_ = f.w.Close()
}

// unexport ends what CmdFD began.
func (ctx *Context) unexport() {
	f := &ctx.export
	if f.r == nil || f.err != nil {
		return
	}
	exports.mu.Lock()
	delete(exports.files, f.id)
	exports.mu.Unlock()
	f.close()
}

// ImportDevice opens the device of the context that a descriptor of Context.CmdFD stands for once more (ibv_import_device). PDs of
// that context can then be imported. The descriptor remains the caller's. EBADF for no descriptor, EOPNOTSUPP for one that is
// no context's of this process.
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
			"descriptor %d is no open context of this process; contexts of other processes cannot be imported, since their memory cannot be reached", cmdFD)
	}
	return from.dev.Open()
}

// Handle is the number by which other contexts of the device import the PD (handle of struct ibv_pd). It is valid
// until the PD is closed.
func (pd *PD) Handle() uint32 { return export(&pd.handle, exports.pds, pd) }

// Handle is the number by which other contexts of the device import the region (handle of struct ibv_mr). It is valid until the
// region is closed.
func (mr *MR) Handle() uint32 { return export(&mr.handle, exports.mrs, mr) }

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

// ImportPD gives a PD of another context of the same device a place in this one (ibv_import_pd). It is one domain with the PD it comes
// from: their members work together. That PD stays open (EBUSY) until Close, which is ibv_unimport_pd, was called. ENOENT if no
// context of the device has a PD of that handle.
func (ctx *Context) ImportPD(handle uint32) (*PD, error) {
	const op = "import_pd"
	from := exported(handle, exports.pds)
	if from == nil || from.ctx.dev.drv != ctx.dev.drv {
		return nil, newError(op, ctx.obj(), ENOENT, "no open context of the device has a PD of handle %d", handle)
	}
	if err := use(op, kindImport, []parent{{&from.life, from.obj()}}); err != nil {
		return nil, err
	}
	if !ctx.life.use(kindPD) {
		from.life.drop(kindImport)
		return nil, errClosed(op, ctx.obj())
	}
	return &PD{ctx: ctx, drv: from.drv, base: from.base, from: from}, nil
}

// unimport is Close of an imported PD (ibv_unimport_pd).
func (pd *PD) unimport() error {
	if err := pd.life.end("unimport_pd", pd.obj()); err != nil {
		return err
	}
	unexport(&pd.handle, exports.pds)
	pd.from.life.drop(kindImport)
	pd.ctx.life.drop(kindPD)
	return nil
}

// ImportMR gives a region of the same domain, registered through another context, a place in this PD (ibv_import_mr). Its address, length,
// rights and keys are those of the region it comes from, which stays registered (EBUSY) until Close, which is ibv_unimport_mr, was
// called. It cannot be changed by Rereg (EINVAL), and does not follow a Rereg of the other. ENOENT if there is no such region, EINVAL if it
// belongs to another domain.
func (pd *PD) ImportMR(handle uint32) (*MR, error) {
	const op = "import_mr"
	from := exported(handle, exports.mrs)
	if from == nil || from.Context().dev.drv != pd.ctx.dev.drv {
		return nil, newError(op, pd.obj(), ENOENT, "no open context of the device has an MR of handle %d", handle)
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.pd.domain() != pd.domain() {
		return nil, newError(op, pd.obj(), EINVAL, "the MR of handle %d belongs to another PD", handle)
	}
	if err := use(op, kindImport, []parent{{&from.life, from.obj()}}); err != nil {
		return nil, err
	}
	if !pd.life.use(kindMR) {
		from.life.drop(kindImport)
		return nil, errClosed(op, pd.obj())
	}
	mr := &MR{pd: pd, drv: from.drv, null: from.null, dm: from.dm, length: from.length, buf: from.buf, access: from.access, from: from}
	mr.publish(from.addr.Load())
	return mr, nil
}

// unimport is Close of an imported region (ibv_unimport_mr). mr.mu is held.
func (mr *MR) unimport() error {
	if err := mr.life.end("unimport_mr", mr.obj()); err != nil {
		return err
	}
	unexport(&mr.handle, exports.mrs)
	mr.from.life.drop(kindImport)
	mr.pd.life.drop(kindMR)
	return nil
}
