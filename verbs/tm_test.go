package verbs

import (
	"bytes"
	"errors"
	"slices"
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
	for _, exact := range [][]byte{b[:16], b[16:32]} { // nothing follows the header
		_, rest, err := ParseTMHeader(exact)
		ok(t, err)
		_, rest2, err := ParseRVHeader(exact)
		ok(t, err)
		if len(rest) != 0 || len(rest2) != 0 {
			t.Errorf("%x, %x", rest, rest2)
		}
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

// openTM opens a device with tag matching.
func openTM(t testing.TB) (*PD, *CQ) {
	t.Helper()
	dev := newFakeDevice()
	dev.attr.TMCaps = TMCaps{MaxNumTags: 10, MaxOps: 20, MaxSGE: 2, Flags: TMCapRC}
	vctx, _ := openDevice(t, dev)
	cq, _ := newCQ(t, vctx, nil)
	return newPD(t, vctx), cq
}

func TestV_SRQX_03_RangesOfTagMatching(t *testing.T) {
	pd, cq := openTM(t)
	for _, c := range []struct {
		sizes TMCap
		why   string // empty: permitted
	}{
		{TMCap{1, 1}, ""}, {TMCap{10, 20}, ""},
		{TMCap{0, 1}, "MaxNumTags 0: must be 1 to 10"}, {TMCap{11, 1}, "MaxNumTags 11: must be 1 to 10"},
		{TMCap{1, 0}, "MaxOps 0: must be 1 to 20"}, {TMCap{1, 21}, "MaxOps 21: must be 1 to 20"},
	} {
		srq, err := pd.CreateSRQ(&SRQInitAttr{Type: SRQTypeTM, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}, TMCap: c.sizes})
		if c.why != "" {
			refused(t, err, EINVAL, "create_srq", c.why)
			continue
		}
		ok(t, err)
		if srq.TMCap() != c.sizes || srq.CQ() != cq || srq.XRCD() != nil {
			t.Errorf("%+v, CQ %v", srq.TMCap(), srq.CQ())
		}
		ok(t, srq.Close())
	}
	ok(t, cq.Close()) // refused and closed SRQs do not use it
}

func TestX_SRQX_01_PostOpsStopsAtTheFirstBadOne(t *testing.T) {
	pd, cq := openTM(t)
	init := SRQInitAttr{Type: SRQTypeTM, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}, TMCap: TMCap{5, 6}}
	srq := must(pd.CreateSRQ(&init))(t)
	drv := srq.drv.(*fakeSRQ)
	good := []OpsWR{
		{WRID: 1, Opcode: TagAdd, Flags: OpsSignaled | OpsTMSync, SGList: make([]SGE, 2), Tag: 5, Mask: 7},
		{WRID: 2, Opcode: TagDel}, {WRID: 3, Opcode: TagSync, Flags: OpsTMSync},
		{WRID: 4, Opcode: TagDel, Tag: 1, SGList: make([]SGE, 3)}, // only TagAdd has a tag and SGEs
	}
	for _, c := range []struct {
		bad OpsWR
		why string
	}{
		{OpsWR{Opcode: 3}, "unknown operation OpsWROpcode(3)"},
		{OpsWR{Opcode: TagDel, Flags: 4}, "TAG_DEL: unknown flags 0x4"},
		{OpsWR{Opcode: TagSync, Flags: OpsSignaled}, "TAG_SYNC needs the flag TM_SYNC"},
		{OpsWR{SGList: make([]SGE, 3)}, "3 SGEs: must be 0 to 2"},
		{OpsWR{Tag: 8, Mask: 7}, "tag 0x8: must have no bits outside mask 0x7"},
	} {
		drv.ops = nil
		err := srq.PostOps(append(slices.Clone(good), c.bad, OpsWR{WRID: 9, Opcode: TagDel})...)
		refused(t, err, EINVAL, "post_srq_ops", c.why)
		var post *PostError
		if !errors.As(err, &post) || post.Index != len(good) || !slices.Equal(drv.ops, []uint64{1, 2, 3, 4}) {
			t.Errorf("%s: %v, posted %v", c.why, err, drv.ops)
		}
	}
	drv.ops, drv.room = nil, 2
	err := srq.PostOps(good...)
	refused(t, err, ENOMEM, "request 2", "post_srq_ops")
	ok(t, srq.PostOps())
}
