package verbs

import (
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func start(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func TestV_MR_01_D_43_Length(t *testing.T) { // D-43: max_mr_size itself is allowed
	dev := newFakeDevice()
	dev.attr.MaxMRSize = 4096
	vctx, _ := openDevice(t, dev)
	pd := newPD(t, vctx)
	for _, n := range []int{1, 4095, 4096} {
		mr := must(pd.RegMR(make([]byte, n), 0))(t)
		if mr.Length() != n || len(mr.Bytes()) != n {
			t.Errorf("length %d; want %d", mr.Length(), n)
		}
		ok(t, mr.Close())
	}
	for _, buf := range [][]byte{nil, {}, make([]byte, 4097)} {
		_, err := pd.RegMR(buf, 0)
		refused(t, err, EINVAL, "reg_mr", "1 to 4096")
	}
	ok(t, pd.Close())
}

// The offset of an SGE is an address if the region is the whole address space, in a 32-bit program above 2 GiB, too.
func TestOffsetsOfSGEsAreUnsigned(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	if got, want := mr.SGE(math.MinInt, 1).Addr, mr.Addr()+1<<(strconv.IntSize-1); got != want {
		t.Errorf("offset %#x: address %#x, want %#x", uint(1)<<(strconv.IntSize-1), got, want)
	}
}

// Lengths that do not fit in an SGE become one that no region has.
func TestLengthsOfSGEs(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	for n, want := range map[int]uint32{0: 0, 1: 1, 8: 8, 9: 9, math.MaxInt32: math.MaxInt32, -1: math.MaxUint32} {
		if got := mr.SGE(0, n).Length; got != want {
			t.Errorf("%d bytes: length %d, want %d", n, got, want)
		}
	}
	ok(t, mr.Close())
	ok(t, pd.Close())
}

func TestV_MR_02_Members(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	buf := make([]byte, 100)
	mr := must(pd.RegMR(buf, AccessLocalWrite))(t)
	drv := mr.drv.(*fakeMR)
	if mr.PD() != pd || mr.Context() != vctx || mr.Addr() != start(buf) || mr.LKey() != drv.key ||
		mr.RKey() != drv.key+1 ||
		mr.Access() != AccessLocalWrite || drv.iova != mr.Addr() || start(drv.buf) != start(buf) {
		t.Errorf("%+v", drv)
	}
	if sge := mr.SGE(10, 20); sge != (SGE{Addr: start(buf) + 10, Length: 20, LKey: mr.LKey()}) {
		t.Errorf("%+v", sge)
	}
	for _, long := range []int64{-1, math.MaxUint32 + 1, math.MaxInt64} { // must not be truncated to a short SGE
		n := int(long)
		if int64(n) != long {
			continue // an int has 32 bits here
		}
		if sge := mr.SGE(0, n); sge.Length != math.MaxUint32 {
			t.Errorf("length %d gives an SGE of %d", n, sge.Length)
		}
	}
}

func TestV_MR_04_SeveralRegistrations(t *testing.T) { // V-KC-06
	vctx, _ := openFake(t)
	buf := make([]byte, 64)
	a, b := newPD(t, vctx), newPD(t, vctx)
	x, y := must(a.RegMR(buf, 0))(t), must(b.RegMR(buf[8:16], AccessLocalWrite|AccessRemoteWrite))(t)
	if x.LKey() == y.LKey() || x.RKey() == y.RKey() {
		t.Error("the keys are equal")
	}
	ok(t, x.Close())
	ok(t, y.Close())
}

// readOnly is memory that this process may not write: the bytes of a string constant.
func readOnly() []byte {
	s := "these bytes lie in the read-only data of the test program"
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

func TestV_MR_05_V_KC_05_RightsOfTheProcess(t *testing.T) { // V-KC-05
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports the protection of memory")
	}
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	ok(t, must(pd.RegMR(readOnly(), AccessRemoteRead))(t).Close())
	_, err := pd.RegMR(readOnly(), AccessLocalWrite)
	refused(t, err, syscall.EFAULT, "LOCAL_WRITE is not possible", "may not write")
	mr := must(pd.RegMR(make([]byte, 64), AccessLocalWrite))(t)
	refused(t, mr.Rereg(ReregChangeTranslation, nil, readOnly(), 0), syscall.EFAULT, "may not write")
	ro := must(pd.RegMR(readOnly(), 0))(t)
	refused(t, ro.Rereg(ReregChangeAccess, nil, nil, AccessLocalWrite), syscall.EFAULT, "may not write")
}

func TestV_MR_06_RemoteWriteNeedsLocalWrite(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	for access := AccessFlags(0); access < 1<<4; access++ {
		bad := access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0
		mr, err := pd.RegMR(make([]byte, 8), access)
		if bad {
			refused(t, err, EINVAL, "needs LOCAL_WRITE too")
			continue
		}
		ok(t, err)
		ok(t, mr.Close())
	}
	ok(t, pd.Close())
}

func TestX_MR_01_UnknownAccessFlags(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	for bit := range 32 {
		access := AccessFlags(1)<<bit | AccessLocalWrite
		mr, err := pd.RegMR(make([]byte, 8), access)
		switch optional := bit >= 20 && bit < 30; {
		case bit == 7:
			refused(t, err, EINVAL, "HUGETLB needs ON_DEMAND") // V-MR-13
		case bit < 10 || optional:
			ok(t, err)
			if drv := mr.drv.(*fakeMR); optional && bit != 20 && drv.access != AccessLocalWrite {
				t.Errorf("the driver got %v", drv.access)
			}
		default:
			refused(t, err, EINVAL, "unknown access flags")
		}
	}
	must(pd.RegMR(make([]byte, 8), AccessHugeTLB|AccessOnDemand))(t)
}

func TestV_MR_13_ZeroBased(t *testing.T) { // V-GEN-09: SGEs of it are offsets
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 64), AccessZeroBased))(t)
	if mr.Addr() != 0 || mr.SGE(5, 6).Addr != 5 || mr.drv.(*fakeMR).iova != 0 {
		t.Errorf("address %#x", mr.Addr())
	}
	_, err := pd.RegMRIOVA(make([]byte, 8), 4096, AccessZeroBased)
	refused(t, err, EINVAL, "must be 0 with ZERO_BASED")
	must(pd.RegMRIOVA(make([]byte, 8), 0, AccessZeroBased))(t)
}

func TestRegMRIOVA(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMRIOVA(make([]byte, 64), 0x1000, 0))(t)
	if mr.Addr() != 0x1000 || mr.SGE(1, 2).Addr != 0x1001 {
		t.Errorf("address %#x", mr.Addr())
	}
	must(pd.RegMRIOVA(make([]byte, 64), math.MaxUint64-63, 0))(t)
	_, err := pd.RegMRIOVA(make([]byte, 64), math.MaxUint64-62, 0)
	refused(t, err, EINVAL, "reg_mr_iova", "must not exceed 2^64")
}

func TestRegMRFailure(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	drv.fail["RegMR"] = ENOMEM
	_, err := pd.RegMR(make([]byte, 8), 0)
	refused(t, err, ENOMEM, "reg_mr")
	ok(t, pd.Close())
}

func rereg(t *testing.T, err error, code ReregMRErrCode, errno Errno, parts ...string) {
	t.Helper()
	refused(t, err, errno, append(parts, code.String())...)
	var e *ReregError
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v: want code %v", err, code)
	}
}

func TestX_MR_02_V_MR_16_D_26_ReregInputErrors(t *testing.T) { // V-MR-16, D-26
	vctx, _ := openFake(t)
	other, _ := openFake(t)
	pd, foreign := newPD(t, vctx), newPD(t, other)
	buf := make([]byte, 64)
	mr := must(pd.RegMR(buf, AccessLocalWrite))(t)
	before := *mr.drv.(*fakeMR)
	tests := map[string]struct {
		flags  ReregFlags
		pd     *PD
		buf    []byte
		access AccessFlags
	}{
		"unknown flags":                  {flags: 1 << 3},
		"unknown flags 0x10":             {flags: 1 << 4, access: 0},
		"flags are 0":                    {},
		"needs memory":                   {flags: ReregChangeTranslation, buf: []byte{}},
		"without CHANGE_TRANSLATION":     {flags: ReregChangeAccess, buf: buf},
		"needs a PD":                     {flags: ReregChangePD},
		"a PD of the same context":       {flags: ReregChangePD, pd: foreign},
		"without CHANGE_PD":              {flags: ReregChangeAccess, pd: pd},
		"without CHANGE_ACCESS":          {flags: ReregChangeTranslation, buf: buf, access: AccessLocalWrite},
		"needs LOCAL_WRITE too":          {flags: ReregChangeAccess, access: AccessRemoteAtomic},
		"unknown access flags 0x800":     {flags: ReregChangeAccess, access: 1 << 11},
		"HUGETLB needs ON_DEMAND":        {flags: ReregChangeAccess, access: AccessHugeTLB},
		"unknown flags 0x8; must be of ": {flags: 1<<3 | ReregChangeAccess},
	}
	for text, tt := range tests {
		rereg(t, mr.Rereg(tt.flags, tt.pd, tt.buf, tt.access), ReregErrInput, EINVAL, text)
	}
	if after := *mr.drv.(*fakeMR); after.key != before.key || after.access != before.access || after.calls != nil &&
		after.called("Rereg") {
		t.Error("the region changed")
	}
	ok(t, mr.Close())
}

func TestV_MR_17_Rereg(t *testing.T) {
	vctx, _ := openFake(t)
	a, b := newPD(t, vctx), newPD(t, vctx)
	old, fresh := make([]byte, 64), make([]byte, 128)
	mr := must(a.RegMR(old, AccessLocalWrite))(t)
	drv := mr.drv.(*fakeMR)

	ok(t, mr.Rereg(ReregChangeTranslation, nil, fresh, 0))
	if mr.Addr() != start(fresh) || mr.Length() != 128 || mr.Access() != AccessLocalWrite || drv.iova != start(fresh) ||
		mr.LKey() != drv.key {
		t.Errorf("translation: %+v", drv)
	}
	ok(t, mr.Rereg(ReregChangeAccess, nil, nil, AccessLocalWrite|AccessZeroBased))
	if mr.Addr() != 0 || drv.access != AccessLocalWrite|AccessZeroBased || mr.Length() != 128 {
		t.Errorf("access: %+v", drv)
	}
	ok(t, mr.Rereg(ReregChangeAccess, nil, nil, AccessRemoteRead))
	if mr.Addr() != start(fresh) {
		t.Errorf("not zero-based any more: starts at %#x", mr.Addr())
	}
	ok(t, mr.Rereg(ReregChangePD, b, nil, 0))
	if mr.PD() != b || drv.pd != b.drv {
		t.Error("the PD is not changed")
	}
	ok(t, a.Close())
	refused(t, b.Close(), EBUSY, "1 MR")
	ok(t, mr.Rereg(ReregChangePD|ReregChangeTranslation|ReregChangeAccess, b, old, 0))
	if drv.access != 0 || mr.Addr() != start(old) {
		t.Errorf("all: %+v", drv)
	}
	ok(t, mr.Close())
	ok(t, b.Close())
}

// A closed PD gets no region.
func TestReregWithAClosedPD(t *testing.T) {
	vctx, drv := openFake(t)
	pd, closed := newPD(t, vctx), newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	ok(t, closed.Close())
	rereg(t, mr.Rereg(ReregChangePD, closed, nil, 0), ReregErrInput, EINVAL, "rereg_mr", "closed")
	if mr.PD() != pd || drv.called("Rereg") {
		t.Error("the region has changed")
	}
	ok(t, mr.Close())
	ok(t, pd.Close())
}

func TestRereg_KeepsIOVA(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMRIOVA(make([]byte, 64), 0x1000, 0))(t)
	ok(t, mr.Rereg(ReregChangeAccess, nil, nil, AccessLocalWrite))
	if mr.Addr() != 0x1000 {
		t.Errorf("at %#x", mr.Addr())
	}
}

func TestV_MR_19_FailedRereg(t *testing.T) {
	vctx, drv := openFake(t)
	a, b := newPD(t, vctx), newPD(t, vctx)
	buf := make([]byte, 64)
	mr := must(a.RegMR(buf, 0))(t)
	drv.fail["Rereg"] = ENOMEM
	rereg(t, mr.Rereg(ReregChangePD|ReregChangeTranslation, b, make([]byte, 8), 0), ReregErrInput, ENOMEM, "rereg_mr")
	if mr.PD() != a || mr.Addr() != start(buf) || mr.Length() != 64 {
		t.Error("the region changed")
	}
	ok(t, b.Close())
	drv.fail["Rereg"] = &ReregError{Code: ReregErrCmd, Err: syscall.EIO}
	rereg(t, mr.Rereg(ReregChangeAccess, nil, nil, 0), ReregErrCmd, syscall.EIO)
	ok(t, mr.Close())
	ok(t, a.Close())
}

func TestV_MR_20_Dereg(t *testing.T) { // E-14
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	drv.fail["Dereg"] = syscall.EIO
	refused(t, mr.Close(), syscall.EIO, "dereg_mr", "MR lkey 0x")
	drv.fail["Dereg"] = nil
	ok(t, mr.Close())
}

func TestAllocBuffer(t *testing.T) {
	for _, n := range []int{0, -1} {
		_, err := AllocBuffer(n)
		refused(t, err, EINVAL)
	}
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	bufs := make([][]byte, 5)
	for i := range bufs {
		bufs[i] = must(AllocBuffer(1 + i*5000))(t)
		if start(bufs[i])%4096 != 0 || len(bufs[i]) != 1+i*5000 || bufs[i][i*5000] != 0 {
			t.Errorf("%d bytes at %#x", len(bufs[i]), start(bufs[i]))
		}
		bufs[i][i*5000] = 1
	}
	mr := must(pd.RegMR(bufs[3][100:200], AccessLocalWrite))(t)
	refused(t, FreeBuffer(bufs[3]), EBUSY, "1 MR")
	ok(t, mr.Rereg(ReregChangeTranslation, nil, bufs[4], 0))
	ok(t, FreeBuffer(bufs[3]))
	refused(t, FreeBuffer(bufs[4]), EBUSY)
	refused(t, FreeBuffer(bufs[4][1:]), EINVAL)
	refused(t, FreeBuffer(bufs[4][:10]), EINVAL)
	refused(t, FreeBuffer(bufs[3]), EINVAL, "not a whole buffer")
	refused(t, FreeBuffer(nil), EINVAL)
	refused(t, FreeBuffer(make([]byte, 10)), EINVAL)
	ok(t, mr.Close())
	for _, i := range []int{0, 4, 2, 1} {
		ok(t, FreeBuffer(bufs[i]))
	}
	if len(mappings.sorted) != 0 {
		t.Errorf("%d mappings left", len(mappings.sorted))
	}
}

func TestAllocBufferTooLarge(t *testing.T) {
	if strings.Contains(runtime.GOOS, "windows") {
		t.Skip("buffers are in Go's heap on this system")
	}
	if strconv.IntSize == 32 {
		t.Skip("an int cannot exceed the address space")
	}
	_, err := AllocBuffer(math.MaxInt - 1<<20)
	refused(t, err, ENOMEM, "alloc_buffer")
}

// A region that the driver does not change keeps its memory and its PD, and uses neither the new memory nor the new PD.
func TestV_MR_16_ReregFails(t *testing.T) {
	vctx, drv := openFake(t)
	a, b := newPD(t, vctx), newPD(t, vctx)
	old, fresh := must(AllocBuffer(100))(t), must(AllocBuffer(100))(t)
	mr := must(a.RegMR(old, AccessLocalWrite))(t)
	key := mr.LKey()
	drv.fail["Rereg"] = syscall.EIO
	err := mr.Rereg(ReregChangePD|ReregChangeTranslation|ReregChangeAccess, b, fresh, AccessLocalWrite|AccessRemoteRead)
	refused(t, err, syscall.EIO, "rereg_mr")
	if mr.PD() != a || start(mr.Bytes()) != start(old) || mr.Access() != AccessLocalWrite || mr.LKey() != key {
		t.Errorf("%+v", mr)
	}
	rereg(t, mr.Rereg(ReregChangeAccess, nil, nil, 0), ReregErrInput, syscall.EIO)
	refused(t, FreeBuffer(old), EBUSY, "1 MR")
	refused(t, a.Close(), EBUSY, "1 MR")
	delete(drv.fail, "Rereg")
	ok(t, mr.Rereg(ReregChangeAccess, nil, nil, 0))
	refused(t, a.Close(), EBUSY, "1 MR")
	ok(t, FreeBuffer(fresh))
	ok(t, b.Close())
	ok(t, mr.Close())
	ok(t, a.Close())
	ok(t, FreeBuffer(old))
}

// The driver gets only the access flags that it must know.
func TestReregAccessOfTheDriver(t *testing.T) {
	vctx, _ := openFake(t)
	mr := must(newPD(t, vctx).RegMR(make([]byte, 8), AccessLocalWrite))(t)
	ok(t, mr.Rereg(ReregChangeAccess, nil, nil, AccessRemoteRead|1<<25))
	if got := mr.drv.(*fakeMR).access; got != AccessRemoteRead {
		t.Errorf("access flags %v", got)
	}
}
