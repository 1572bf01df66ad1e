package verbs

import (
	"math"
	"syscall"
	"testing"
)

// RegDMABufMR is that of a device with access to other devices' memory.
func (p *fakePD) RegDMABufMR(_, _, _ uint64, _ int, access AccessFlags) (DriverMR, error) {
	return p.RegDMMR(&fakeDM{}, 0, 0, access)
}

func TestRegDMABufMR(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegDMABufMR(4096, 100, 0x7000, 3, AccessLocalWrite|AccessRemoteRead))(t)
	if mr.Addr() != 0x7000 || mr.Length() != 100 || mr.Bytes() != nil || mr.SGE(10, 5).Addr != 0x700a ||
		mr.Access() != AccessLocalWrite|AccessRemoteRead {
		t.Errorf("%+v", mr)
	}
	rereg(t, mr.Rereg(ReregChangeTranslation, nil, make([]byte, 8), 0), ReregErrInput, EINVAL, "cannot be changed")
	refused(t, pd.Close(), EBUSY, "1 MR")
	ok(t, mr.Close())
	for _, c := range []struct {
		off, n, iova uint64
		fd           int
		access       AccessFlags
		errno        syscall.Errno
	}{
		{0, 0, 0, 3, 0, EINVAL}, {0, math.MaxUint64, 0, 3, 0, EINVAL}, {math.MaxUint64, 1, 0, 3, 0, EINVAL},
		{0, 2, math.MaxUint64, 3, 0, EINVAL}, {0, 1, 0, -1, 0, syscall.EBADF}, {0, 1, 0, 3, AccessOnDemand, EINVAL},
		{0, 1, 0, 3, AccessZeroBased, EINVAL}, {0, 1, 0, 3, AccessRemoteWrite, EINVAL},
	} {
		_, err := pd.RegDMABufMR(c.off, c.n, c.iova, c.fd, c.access)
		refused(t, err, c.errno, "reg_dmabuf_mr")
	}
	_, err := pd.RegDMABufMR(0, 1, 0, 3, AccessOnDemand|AccessLocalWrite)
	refused(t, err, EINVAL, "access flags ON_DEMAND of a dma-buf: must be of LOCAL_WRITE|")
	ok(t, must(pd.RegDMABufMR(0, 1, math.MaxUint64, 3, 0))(t).Close())
	const all = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessRelaxedOrdering
	mr = must(pd.RegDMABufMR(0, 1, 0, 3, all|1<<25))(t) // a device ignores the unknown bit
	if got := mr.drv.(*fakeMR).access; got != all {
		t.Errorf("access flags %v", got)
	}
	ok(t, mr.Close())
	most := vctx.attr.MaxMRSize
	for _, c := range []struct {
		off, n, iova uint64
		fd           int64
		errno        syscall.Errno // 0 for none
	}{
		{0, most, 0, 0, 0}, {0, most + 1, 0, 0, EINVAL},
		{0, 1, 0, math.MaxInt32, 0}, {0, 1, 0, math.MaxInt32 + 1, syscall.EBADF},
		{math.MaxUint64 - 4096, 4096, 0, 3, 0}, {math.MaxUint64 - 4095, 4096, 0, 3, EINVAL},
		{0, 4096, math.MaxUint64 - 4095, 3, 0}, {0, 4096, math.MaxUint64 - 4094, 3, EINVAL},
	} {
		fd := int(c.fd)
		if int64(fd) != c.fd {
			continue // an int has 32 bits here
		}
		mr, err := pd.RegDMABufMR(c.off, c.n, c.iova, fd, 0)
		if c.errno != 0 {
			refused(t, err, c.errno, "reg_dmabuf_mr")
			continue
		}
		ok(t, err)
		if mr.Addr() != c.iova || uint64(mr.Length()) != c.n {
			t.Errorf("%d bytes at %#x, want %+v", mr.Length(), mr.Addr(), c)
		}
		ok(t, mr.Close())
	}
	drv.fail["RegDMMR"] = EOPNOTSUPP
	_, err = pd.RegDMABufMR(0, 1, 0, 3, 0)
	refused(t, err, EOPNOTSUPP, "reg_dmabuf_mr")
	ok(t, pd.Close())
	_, err = pd.RegDMABufMR(0, 1, 0, 3, 0)
	refused(t, err, EINVAL, "closed")
}
