package verbs

import (
	"bytes"
	"testing"
)

func TestX_SRQX_01_TagMatchingValues(t *testing.T) {
	values(t, 0, TagAdd, TagDel, TagSync)
	values(t, 0, TMNoTag, TMRndv, TMFin, TMEager)
	checkBits(t, map[int]OpsFlags{0: OpsSignaled, 1: OpsTMSync})
	texts(t, TagAdd, "TAG_ADD", "TAG_DEL", "TAG_SYNC", "OpsWROpcode(3)")
	texts(t, TMNoTag, "NO_TAG", "RNDV", "FIN", "EAGER", "TMOp(4)")
	if s := (OpsSignaled | OpsTMSync | 4).String(); s != "SIGNALED|TM_SYNC|0x4" {
		t.Error(s)
	}
}

func TestX_SRQX_01_TagMatchingHeaders(t *testing.T) {
	tm, rv := TMHeader{TMRndv, 0x01020304, 0x1112131415161718}, RVHeader{0x2122232425262728, 0x31323334, 0x41424344}
	b := append(rv.Append(tm.Append(nil)), 9)
	want := []byte{
		1, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 9,
	}
	if !bytes.Equal(b, want) || TMHeaderLen+RVHeaderLen != 32 {
		t.Errorf("%x", b)
	}
	gotTM, rest, err := ParseTMHeader(b)
	ok(t, err)
	gotRV, rest, err := ParseRVHeader(rest)
	ok(t, err)
	if gotTM != tm || gotRV != rv || !bytes.Equal(rest, []byte{9}) {
		t.Errorf("%+v %+v %x", gotTM, gotRV, rest)
	}
	_, _, err = ParseTMHeader(b[:15])
	refused(t, err, EINVAL, "15 bytes")
	_, _, err = ParseRVHeader(b[:15])
	refused(t, err, EINVAL, "15 bytes")
}

func TestX_SRQX_01_PostOpsOnOtherSRQs(t *testing.T) {
	vctx, _ := openFake(t)
	srq := must(newPD(t, vctx).CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	refused(t, srq.PostOps(OpsWR{}), EINVAL, "not of type TM")
	ok(t, srq.Close())
	refused(t, srq.PostOps(OpsWR{}), EINVAL, "closed")
}
