//go:build linux && (amd64 || arm64)

package hw

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// soname is the library's name for the dynamic loader.
const soname = "libibverbs.so.1"

// ownLibrary is text that only Verbena's libibverbs.so.1 contains: the name of its engine.
const ownLibrary = "libverbena-engine.so"

// library is a loaded libibverbs. Each field from getDeviceList on is the address of the function of its name.
type library struct {
	path          string
	errnoLocation uintptr

	mutexInit, condInit uintptr // of the C library; 0 if it has none

	getDeviceList, freeDeviceList, getDeviceGUID, openDevice, closeDevice uintptr
	queryDevice, queryPort, queryGID, queryPKey                           uintptr
	allocPD, deallocPD, regMR, deregMR                                    uintptr
	createCompChannel, destroyCompChannel, getCQEvent, ackCQEvents        uintptr
	createCQ, resizeCQ, destroyCQ                                         uintptr
	createSRQ, modifySRQ, querySRQ, destroySRQ                            uintptr
	createQP, modifyQP, queryQP, destroyQP                                uintptr
	createAH, destroyAH, attachMcast, detachMcast                         uintptr
	getAsyncEvent, ackAsyncEvent                                          uintptr

	// Optional: 0 in an old library.
	queryGIDTable, regMRIOVA2, regDMABuf, reregMR, qpToQPEx, queryECE, setECE uintptr
}

// symbols lists the functions of the library. Those with optional set may be missing.
func (l *library) symbols() []struct {
	name     string
	fn       *uintptr
	optional bool
} {
	return []struct {
		name     string
		fn       *uintptr
		optional bool
	}{
		{"ibv_get_device_list", &l.getDeviceList, false}, {"ibv_free_device_list", &l.freeDeviceList, false},
		{"ibv_get_device_guid", &l.getDeviceGUID, false}, {"ibv_open_device", &l.openDevice, false},
		{"ibv_close_device", &l.closeDevice, false}, {"ibv_query_device", &l.queryDevice, false},
		{"ibv_query_port", &l.queryPort, false}, {"ibv_query_gid", &l.queryGID, false},
		{"ibv_query_pkey", &l.queryPKey, false}, {"ibv_alloc_pd", &l.allocPD, false},
		{"ibv_dealloc_pd", &l.deallocPD, false}, {"ibv_reg_mr", &l.regMR, false}, {"ibv_dereg_mr", &l.deregMR, false},
		{"ibv_create_comp_channel", &l.createCompChannel, false},
		{"ibv_destroy_comp_channel", &l.destroyCompChannel, false}, {"ibv_get_cq_event", &l.getCQEvent, false},
		{"ibv_ack_cq_events", &l.ackCQEvents, false}, {"ibv_create_cq", &l.createCQ, false},
		{"ibv_resize_cq", &l.resizeCQ, false}, {"ibv_destroy_cq", &l.destroyCQ, false},
		{"ibv_create_srq", &l.createSRQ, false}, {"ibv_modify_srq", &l.modifySRQ, false},
		{"ibv_query_srq", &l.querySRQ, false}, {"ibv_destroy_srq", &l.destroySRQ, false},
		{"ibv_create_qp", &l.createQP, false}, {"ibv_modify_qp", &l.modifyQP, false},
		{"ibv_query_qp", &l.queryQP, false}, {"ibv_destroy_qp", &l.destroyQP, false},
		{"ibv_create_ah", &l.createAH, false}, {"ibv_destroy_ah", &l.destroyAH, false},
		{"ibv_attach_mcast", &l.attachMcast, false}, {"ibv_detach_mcast", &l.detachMcast, false},
		{"ibv_get_async_event", &l.getAsyncEvent, false}, {"ibv_ack_async_event", &l.ackAsyncEvent, false},
		{"_ibv_query_gid_table", &l.queryGIDTable, true}, {"ibv_reg_mr_iova2", &l.regMRIOVA2, true},
		{"ibv_reg_dmabuf_mr", &l.regDMABuf, true}, {"ibv_rereg_mr", &l.reregMR, true},
		{"ibv_qp_to_qp_ex", &l.qpToQPEx, true}, {"ibv_query_ece", &l.queryECE, true}, {"ibv_set_ece", &l.setECE, true},
	}
}

// loaded returns the machine's library, which it loads the first time.
var loaded = sync.OnceValues(func() (*library, error) { return load(soname) })

// load loads a library by its name or path. It stays in its thread, to which the text of the loader's error belongs.
func load(name string) (*library, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		if strings.Contains(err.Error(), "No such file") {
			return nil, absent("the dynamic loader does not find %s; install rdma-core (on Debian and Ubuntu: "+
				"libibverbs1 and ibverbs-providers)", name)
		}
		return nil, absent("the dynamic loader: %v", err)
	}
	l := &library{path: name}
	for _, s := range l.symbols() {
		*s.fn, err = purego.Dlsym(handle, s.name)
		if err != nil && !s.optional {
			return nil, fail(syscall.ENOSYS, "%s has no function %s: must be libibverbs of rdma-core", l.file(), s.name)
		}
	}
	if l.errnoLocation, err = purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location"); err != nil {
		return nil, fail(syscall.ENOSYS, "the C library has no __errno_location: must be glibc or musl")
	}
	l.mutexInit, _ = purego.Dlsym(purego.RTLD_DEFAULT, "pthread_mutex_init")
	l.condInit, _ = purego.Dlsym(purego.RTLD_DEFAULT, "pthread_cond_init")
	return l, l.refuseOwn()
}

// file returns the library's file, or its name if the loader does not tell.
func (l *library) file() string {
	dladdr, err := purego.Dlsym(purego.RTLD_DEFAULT, "dladdr")
	if err != nil || l.getDeviceList == 0 {
		return l.path
	}
	var info struct { // Dl_info
		file, base, name, addr uintptr
	}
	if call(dladdr, l.getDeviceList, uintptr(unsafe.Pointer(&info))) == 0 || info.file == 0 {
		return l.path
	}
	return text(info.file, 4096)
}

// allowOwn permits Verbena's own library; tests of the C libraries through this package set it.
var allowOwn bool

// refuseOwn returns an error if the library is Verbena's own.
func (l *library) refuseOwn() error {
	l.path = l.file()
	if allowOwn {
		return nil
	}
	b, err := os.ReadFile(l.path)
	if err == nil && bytes.Contains(b, []byte(ownLibrary)) {
		return absent("%s is Verbena's own libibverbs.so.1, which has no adapters; remove its folder from LD_LIBRARY_PATH",
			l.path)
	}
	return nil
}

// call calls a C function. Arguments that are conversions of pointers stay where they are during the call.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// caller calls C functions without allocating: arguments of call and its kind are moved to the heap. Its owner is on
// the heap and keeps what the arguments point to reachable. It is not safe for concurrent use.
type caller struct {
	fn     uintptr
	args   [3]uintptr
	result uintptr
}

// status is library.status for a function that returns -1 with errno set.
func (c *caller) status(l *library, fn, a, b, d uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if int32(c.do(fn, a, b, d)) == 0 {
		return nil
	}
	return l.errno()
}

// status calls a C function that returns 0 or an errno; some devices return -errno, or -1 with errno set.
//
//go:uintptrescapes
func (l *library) status(fn uintptr, args ...uintptr) error {
	if fn == 0 {
		return syscall.EOPNOTSUPP
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(fn, args...)
	switch n := int32(r); {
	case n == 0:
		return nil
	case n == -1:
		return l.errno()
	case n < 0:
		return syscall.Errno(-n)
	default:
		return syscall.Errno(n)
	}
}

// object calls a C function that returns a pointer, or NULL with errno set.
//
//go:uintptrescapes
func (l *library) object(fn uintptr, args ...uintptr) (uintptr, error) {
	if fn == 0 {
		return 0, syscall.EOPNOTSUPP
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(fn, args...)
	if r == 0 {
		return 0, l.errno()
	}
	return r, nil
}

// errno reads the C library's errno of this thread, to which the goroutine is locked. It is EIO if the function did not
// set it.
func (l *library) errno() error {
	if n := *at[int32](call(l.errnoLocation)); n > 0 {
		return syscall.Errno(n)
	}
	return syscall.EIO
}

// at returns a pointer to memory of C.
func at[T any](addr uintptr) *T { return *(**T)(unsafe.Pointer(&addr)) }

// text returns a C string of at most limit bytes.
func text(addr uintptr, limit int) string {
	var b strings.Builder
	for i := range uintptr(limit) {
		c := *at[byte](addr + i)
		if c == 0 {
			break
		}
		b.WriteByte(c)
	}
	return b.String()
}

// failure is an error with an errno.
type failure struct {
	text  string
	errno syscall.Errno
}

func (e *failure) Error() string { return e.text }

func (e *failure) Unwrap() error { return e.errno }

func fail(errno syscall.Errno, format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), errno}
}

// absent returns the reason why there are no devices.
func absent(format string, args ...any) error { return fail(syscall.ENODEV, format, args...) }

// explain adds what the user can do to the errno of a call.
func explain(err error, doing string) error {
	if err == nil {
		return nil
	}
	errno := syscall.EIO
	errors.As(err, &errno)
	switch errno {
	case syscall.ENOMEM:
		if limit, ok := memlock(); ok {
			return fail(errno, "%s: no memory, or too much locked memory: RLIMIT_MEMLOCK is %d bytes; raise it with "+
				"ulimit -l, LimitMEMLOCK= of systemd, or the capability IPC_LOCK", doing, limit)
		}
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT:
		return fail(syscall.EOPNOTSUPP, "%s: the device does not support it", doing)
	case syscall.EPERM, syscall.EACCES:
		return fail(errno, "%s: the process lacks the right", doing)
	case syscall.EIO, syscall.ENODEV:
		return fail(syscall.EIO, "%s: the device is gone or has failed", doing)
	}
	return fail(errno, "%s: %v", doing, errno)
}

// memlock returns the limit of locked memory in bytes; false if there is none.
func memlock() (uint64, bool) {
	var limit syscall.Rlimit
	const rlimitMemlock = 8
	if err := syscall.Getrlimit(rlimitMemlock, &limit); err != nil || limit.Cur == ^uint64(0) {
		return 0, false
	}
	return limit.Cur, true
}
