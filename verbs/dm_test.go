package verbs

import (
	"bytes"
	"math"
	"syscall"
	"testing"
)

func TestV_DM_01_V_DM_02_V_DM_03_X_DM_01_AllocDM(t *testing.T) { // V-DM-02, V-DM-03, X-DM-01
	vctx, drv := openFake(t)
	dm := must(vctx.AllocDM(AllocDMAttr{Length: 100, LogAlignReq: 3}))(t)
	if dm.Context() != vctx || dm.Length() != 100 || dm.drv.(*fakeDM).align != 3 {
		t.Errorf("%+v", dm)
	}
	_, err := vctx.AllocDM(AllocDMAttr{})
	refused(t, err, EINVAL, "alloc_dm", "must be 1 or more")
	drv.fail["AllocDM"] = ENOMEM
	_, err = vctx.AllocDM(AllocDMAttr{Length: 1})
	refused(t, err, ENOMEM, "alloc_dm")
	refused(t, vctx.Close(), EBUSY, "1 DM")
	pd := newPD(t, vctx)
	mr := must(pd.RegDMMR(dm, 0, 100, AccessZeroBased))(t)
	refused(t, dm.Close(), EBUSY, "free_dm", "1 MR")
	refused(t, pd.Close(), EBUSY, "1 MR")
	ok(t, mr.Close())
	drv.fail["FreeDM"] = syscall.EIO
	refused(t, dm.Close(), syscall.EIO, "free_dm")
	drv.fail["FreeDM"] = nil
	ok(t, dm.Close())
	refused(t, dm.CopyTo(0, nil), EINVAL, "closed")
	refused(t, dm.CopyFrom(nil, 0), EINVAL, "closed")
	refused(t, dm.Close(), EINVAL, "closed")
	_, err = pd.RegDMMR(dm, 0, 1, AccessZeroBased)
	refused(t, err, EINVAL, "closed")
	ok(t, pd.Close())
	ok(t, vctx.Close())
	_, err = vctx.AllocDM(AllocDMAttr{Length: 1})
	refused(t, err, EINVAL, "closed")
}

func TestV_MR_23_V_MR_24_CopiesOfDM(t *testing.T) { // V-MR-24
	vctx, drv := openFake(t)
	dm := must(vctx.AllocDM(AllocDMAttr{Length: 100}))(t)
	ok(t, dm.CopyTo(90, []byte("0123456789")))
	ok(t, dm.CopyTo(100, nil))
	got := make([]byte, 4)
	ok(t, dm.CopyFrom(got, 93))
	if !bytes.Equal(got, []byte("3456")) {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		off uint64
		n   int
	}{{91, 10}, {100, 1}, {101, 0}, {math.MaxUint64, 2}, {0, 101}} {
		refused(t, dm.CopyTo(c.off, make([]byte, c.n)), syscall.EFAULT, "memcpy_to_dm")
		refused(t, dm.CopyFrom(make([]byte, c.n), c.off), syscall.EFAULT, "memcpy_from_dm")
	}
	drv.fail["CopyTo"], drv.fail["CopyFrom"] = syscall.EIO, syscall.EIO
	refused(t, dm.CopyTo(0, nil), syscall.EIO, "memcpy_to_dm")
	refused(t, dm.CopyFrom(nil, 0), syscall.EIO, "memcpy_from_dm")
}

func TestV_MR_25_V_MR_26_RegDMMR(t *testing.T) { // V-MR-26
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	dm := must(vctx.AllocDM(AllocDMAttr{Length: 100}))(t)
	mr := must(pd.RegDMMR(dm, 10, 90, AccessZeroBased|AccessLocalWrite))(t)
	if mr.Addr() != 0 || mr.Length() != 90 || mr.Bytes() != nil || mr.PD() != pd || mr.SGE(3,
		4) != (SGE{Addr: 3, Length: 4, LKey: mr.LKey()}) {
		t.Errorf("%+v", mr)
	}
	rereg(t, mr.Rereg(ReregChangeAccess, nil, nil, 0), ReregErrInput, EINVAL, "cannot be changed")
	for text, c := range map[string]struct {
		off, n uint64
		access AccessFlags
	}{
		"must be ZERO_BASED":    {0, 1, AccessLocalWrite},
		"0 bytes at offset 0":   {0, 0, AccessZeroBased},
		"101 bytes at offset 0": {0, 101, AccessZeroBased},
		"1 bytes at offset 100": {100, 1, AccessZeroBased},
		"bytes at offset 50":    {50, math.MaxUint64, AccessZeroBased},
		"needs LOCAL_WRITE too": {0, 1, AccessZeroBased | AccessRemoteWrite},
		"unknown access flags":  {0, 1, AccessZeroBased | 1<<15},
	} {
		_, err := pd.RegDMMR(dm, c.off, c.n, c.access)
		refused(t, err, EINVAL, "reg_dm_mr", text)
	}
	other, _ := openFake(t)
	_, err := newPD(t, other).RegDMMR(dm, 0, 1, AccessZeroBased)
	refused(t, err, EINVAL, "same context")
	drv.fail["RegDMMR"] = ENOMEM
	_, err = pd.RegDMMR(dm, 0, 1, AccessZeroBased)
	refused(t, err, ENOMEM, "reg_dm_mr")
	ok(t, mr.Close())
	ok(t, dm.Close())
}

func TestX_MR_03_NullMR(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	mr := must(pd.AllocNullMR())(t)
	if mr.Addr() != 0 || mr.Length() != math.MaxInt || mr.Bytes() != nil || mr.LKey() == 0 ||
		mr.Access() != AccessLocalWrite {
		t.Errorf("%+v", mr)
	}
	rereg(t, mr.Rereg(ReregChangeTranslation, nil, make([]byte, 8), 0), ReregErrInput, EINVAL, "cannot be changed")
	refused(t, pd.Close(), EBUSY, "1 MR")
	ok(t, mr.Close())
	drv.fail["AllocNullMR"] = ENOMEM
	_, err := pd.AllocNullMR()
	refused(t, err, ENOMEM, "alloc_null_mr")
	ok(t, pd.Close())
	_, err = pd.AllocNullMR()
	refused(t, err, EINVAL, "closed")
}

func TestX_MR_03_AdviseMR(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	for a := AdvicePrefetch; a <= AdvicePrefetchNoFault; a++ {
		ok(t, pd.AdviseMR(a, AdviseMRFlush, SGE{}))
	}
	refused(t, pd.AdviseMR(3, 0, SGE{}), EOPNOTSUPP, "AdviseMRAdvice(3)")
	refused(t, pd.AdviseMR(0, 2, SGE{}), EINVAL, "unknown flags 0x2")
	refused(t, pd.AdviseMR(0, 0), EINVAL, "0 SGEs")
	drv.fail["AdviseMR"] = syscall.EPERM
	refused(t, pd.AdviseMR(0, 0, SGE{}), syscall.EPERM, "advise_mr")
	ok(t, pd.Close())
	refused(t, pd.AdviseMR(0, 0, SGE{}), EINVAL, "closed")
}

func TestV_MR_14_ImplicitODP(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	_, err := pd.RegMR(nil, AccessOnDemand)
	refused(t, err, EOPNOTSUPP, "reg_mr", "implicit on-demand paging")
	vctx.attr.ODPCaps.General |= ODPSupportImplicit
	_, err = pd.RegMRIOVA(nil, 8, AccessOnDemand)
	refused(t, err, EINVAL, "iova 0x8")
	_, err = pd.RegMR(nil, AccessOnDemand|AccessZeroBased)
	refused(t, err, EINVAL, "ZERO_BASED")
	_, err = pd.RegMR(nil, AccessOnDemand|AccessHugeTLB)
	refused(t, err, EINVAL, "HUGETLB") // V-MR-13: only in explicit mode
	mr := must(pd.RegMR(nil, AccessOnDemand|AccessLocalWrite))(t)
	if mr.Addr() != 0 || mr.Length() != math.MaxInt || mr.Bytes() != nil {
		t.Errorf("address %#x, %d bytes", mr.Addr(), mr.Length())
	}
	refused(t, mr.Rereg(ReregChangeAccess, nil, nil, AccessOnDemand), EINVAL, "whole address space")
	ok(t, mr.Close())
}

func TestV_QDX_01_QueryDeviceEx(t *testing.T) {
	vctx, _ := openFake(t)
	attr := must(vctx.QueryDevice())(t)
	if attr != vctx.attr || attr.MaxDMSize != 1000 || attr.ODPCaps.General != ODPSupport {
		t.Errorf("%+v", attr)
	}
	ok(t, vctx.Close())
	_, err := vctx.QueryDevice()
	refused(t, err, EINVAL, "closed")
}

func TestV_QDX_02_Flags(t *testing.T) {
	checkBits(t, map[int]ODPGeneralCaps{0: ODPSupport, 1: ODPSupportImplicit})
	checkBits(t, map[int]ODPTransportCaps{0: ODPSend, 1: ODPRecv, 2: ODPWrite, 3: ODPRead, 4: ODPAtomic, 5: ODPSRQRecv})
	checkBits(t, map[int]RawPacketCaps{0: RawPacketCVLANStripping, 1: RawPacketScatterFCS, 2: RawPacketIPCsum,
		3: RawPacketDelayDrop})
	checkBits(t, map[int]TMCapFlags{0: TMCapRC})
	checkBits(t, map[int]PCIAtomicSizes{0: PCIAtomic4Byte, 1: PCIAtomic8Byte, 2: PCIAtomic16Byte})
	for got, want := range map[string]string{
		(ODPSupport | ODPSupportImplicit).String(): "SUPPORT|SUPPORT_IMPLICIT",
		(ODPRecv | ODPSRQRecv).String():            "RECV|SRQ_RECV",
		RawPacketCaps(9).String():                  "CVLAN_STRIPPING|DELAY_DROP", TMCapRC.String(): "RC",
		PCIAtomicSizes(6).String(): "8_BYTE|16_BYTE",
		AdviseMRFlush.String():     "FLUSH",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	values(t, 0, AdvicePrefetch, AdvicePrefetchWrite, AdvicePrefetchNoFault)
	texts(t, AdvicePrefetch, "PREFETCH", "PREFETCH_WRITE", "PREFETCH_NO_FAULT", "AdviseMRAdvice(3)")
	values(t, 1, MWType1, MWType2)
}
