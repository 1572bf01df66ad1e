package soft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// tagged is a sender and a receiver whose SRQ matches tags.
type tagged struct {
	*testing.T
	a, b   *end
	qa, qb *verbs.QP
	srq    *verbs.SRQ
	cq     *stepper // of the SRQ
	seen   uint32   // unexpected messages
}

// newTagged makes both ends. The receiver's SRQ has 16 receives of 2000 bytes, from the middle of its memory on.
func newTagged(t *testing.T, n *network, tags, ops uint32) *tagged {
	ends := newEnds(t, n, 2, nil)
	m := &tagged{T: t, a: ends[0], b: ends[1]}
	m.cq = &stepper{CQ: get(m.b.ctx.CreateCQ(256, &verbs.CQOptions{WCFlags: verbs.WCStandardFlags |
		verbs.WCExWithTMInfo}))(t)}
	t.Cleanup(func() { must(t, m.cq.Close()) })
	m.srq = m.newSRQ(tags, ops)
	m.qa, m.qb = m.a.qp(verbs.QPTypeRC, nil), m.b.qp(verbs.QPTypeRC, func(i *verbs.QPInitAttr) { i.SRQ = m.srq })
	join(t, m.qa, m.qb, nil)
	for i := range 16 {
		must(t, m.srq.PostRecv(verbs.RecvWR{WRID: uint64(1000 + i), SGList: []verbs.SGE{m.b.mr.SGE(1<<19+2000*i, 2000)}}))
	}
	m.a.fill(1)
	return m
}

func (m *tagged) newSRQ(tags, ops uint32) *verbs.SRQ {
	srq := get(m.b.pd.CreateSRQ(&verbs.SRQInitAttr{
		Type: verbs.SRQTypeTM, CQ: m.cq.CQ, Attr: verbs.SRQAttr{MaxWR: 16, MaxSGE: 1}, TMCap: verbs.TMCap{MaxNumTags: tags,
			MaxOps: ops},
	}))(m)
	m.Cleanup(func() { must(m, srq.Close()) })
	return srq
}

// done is a completion of the SRQ.
type done struct {
	id     uint64
	status verbs.WCStatus
	op     verbs.WCOpcode
	flags  verbs.WCFlags
	n      uint32
	tm     verbs.TMInfo
}

// next waits for the next completion of the SRQ and returns it.
func (m *tagged) next() (d done) {
	m.Helper()
	start(m, m.cq)
	d = done{m.cq.WRID, m.cq.Status, m.cq.Opcode, m.cq.WCFlags, m.cq.ByteLen, m.cq.TM}
	m.cq.EndPoll()
	if d.status != verbs.WCSuccess {
		d.n, d.flags = 0, 0
	}
	return d
}

func (m *tagged) want(want done) {
	m.Helper()
	if got := m.next(); got != want {
		m.Fatalf("completion %+v, want %+v", got, want)
	}
}

// add appends a buffer of n bytes to the tag list.
func (m *tagged) add(id, tag, mask uint64, off, n int) uint32 {
	m.Helper()
	ops := []verbs.OpsWR{{
		Opcode: verbs.TagAdd, Flags: verbs.OpsTMSync, UnexpectedCnt: m.seen, RecvWRID: id, Tag: tag, Mask: mask,
		SGList: []verbs.SGE{m.b.mr.SGE(off, n)},
	}}
	must(m, m.srq.PostOps(ops...))
	return ops[0].Handle
}

const exact = math.MaxUint64

// send sends a message of headers and n bytes of the sender's memory.
func (m *tagged) send(header []byte, n int) {
	m.Helper()
	copy(m.a.buf[1<<19:], header)
	must(m, m.qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{m.a.mr.SGE(1<<19, len(header)),
			m.a.mr.SGE(0, n)},
	}))
	m.a.good(1)
}

func eager(tag uint64) []byte {
	return verbs.TMHeader{Op: verbs.TMEager, AppCtx: uint32(tag) + 7, Tag: tag}.Append(nil)
}

// response returns a receive of the sender for the response to a rendezvous.
func (m *tagged) response() verbs.RecvWR {
	return verbs.RecvWR{WRID: 50, SGList: []verbs.SGE{m.a.mr.SGE(3<<18, 100)}}
}

// rndv returns the request for a rendezvous of n bytes of the sender's memory.
func (m *tagged) rndv(tag uint64, n uint32) []byte {
	h := verbs.TMHeader{Op: verbs.TMRndv, AppCtx: uint32(tag) + 7, Tag: tag}.Append(nil)
	return verbs.RVHeader{Addr: m.a.mr.Addr(), RKey: m.a.mr.RKey(), Length: n}.Append(h)
}

func info(tag uint64) verbs.TMInfo { return verbs.TMInfo{Tag: tag, Priv: uint32(tag) + 7} }

const fits = verbs.WCTMMatch | verbs.WCTMDataValid

// expected is the completion of a message that matched a buffer, unexpected that of one that did not.
func expected(id, tag uint64, n int) done {
	return done{id, verbs.WCSuccess, verbs.WCTMRecv, fits, uint32(n), info(tag)}
}

// wantRead expects the completions of a rendezvous: the match, then the data.
func (m *tagged) wantRead(id, tag uint64, n int) {
	m.Helper()
	m.want(done{id, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMMatch, 0, info(tag)})
	m.want(done{id, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMDataValid, uint32(n), info(tag)})
}

func unexpected(id, tag uint64, n int) done {
	return done{id, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMSyncReq, uint32(n), info(tag)}
}

func TestV_SRQX_01_D_44_ExpectedMessages(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		m := newTagged(t, n, 16, 16)
		m.add(1, 0x10, exact, 0, 5000)
		m.add(2, 0x20, 0xf0, 5000, 5000) // 0x20 to 0x2f
		m.add(3, 0x25, exact, 10000, 5000)
		m.add(4, 0, 0, 15000, 5000) // any tag
		for i, c := range []struct {
			tag    uint64
			id     uint64
			n, off int
		}{
			{0x25, 2, 4000, 5000}, // the first match, not the best one
			{0x25, 3, 1, 10000},
			{0x10, 1, 0, 0},
			{0x77, 4, 5000, 15000},
		} {
			m.send(eager(c.tag), c.n)
			m.want(expected(c.id, c.tag, c.n))
			if !bytes.Equal(m.b.buf[c.off:c.off+c.n], m.a.buf[:c.n]) {
				t.Errorf("message %d: the bytes differ", i)
			}
		}
		m.send(eager(0x10), 10)
		m.want(unexpected(1000, 0x10, 26))
	})
}

// TestX_SRQX_01_UnexpectedMessages: after an unexpected message a new buffer matches nothing until the program has
// reported that it has seen the message.
func TestX_SRQX_01_UnexpectedMessages(t *testing.T) {
	m := newTagged(t, &networks[0], 16, 16)
	m.send(eager(5), 100)
	m.want(unexpected(1000, 5, 116))
	h, rest, err := verbs.ParseTMHeader(m.b.buf[1<<19 : 1<<19+116])
	if err != nil || h != (verbs.TMHeader{Op: verbs.TMEager, AppCtx: 12, Tag: 5}) || !bytes.Equal(rest, m.a.buf[:100]) {
		t.Errorf("%+v, %v", h, err)
	}
	m.add(1, 5, exact, 0, 100) // the program has not reported it
	m.send(eager(5), 10)
	m.want(unexpected(1001, 5, 26))
	m.seen = 1 // but two have arrived
	m.add(2, 5, exact, 100, 100)
	m.send(eager(5), 10)
	m.want(unexpected(1002, 5, 26))
	must(t, m.srq.PostOps(verbs.OpsWR{WRID: 77, Opcode: verbs.TagSync, Flags: verbs.OpsTMSync | verbs.OpsSignaled,
		UnexpectedCnt: 2}))
	m.want(done{77, verbs.WCSuccess, verbs.WCTMSync, verbs.WCTMSyncReq, 0, verbs.TMInfo{}})
	must(t, m.srq.PostOps(verbs.OpsWR{WRID: 78, Opcode: verbs.TagSync, Flags: verbs.OpsTMSync | verbs.OpsSignaled,
		UnexpectedCnt: 3}))
	m.want(done{78, verbs.WCSuccess, verbs.WCTMSync, 0, 0, verbs.TMInfo{}})
	m.send(eager(5), 10)
	m.want(expected(1, 5, 10))
	m.send(eager(5), 20)
	m.want(expected(2, 5, 20))
	// Buffers added before an unexpected message still match.
	m.seen = 3
	m.add(3, 6, exact, 0, 100)
	m.send(eager(5), 10)
	m.want(unexpected(1003, 5, 26))
	m.add(4, 6, exact, 0, 100)
	m.send(eager(6), 30)
	m.want(expected(3, 6, 30))
	m.send(eager(6), 30)
	m.want(unexpected(1004, 6, 46))
}

// TestX_SRQX_01_NoReceiveForAnUnexpectedMessage: without a receive for an unexpected message the sender waits, and
// the message may become an expected one.
func TestX_SRQX_01_NoReceiveForAnUnexpectedMessage(t *testing.T) {
	m := newTagged(t, &networks[0], 4, 4)
	for i := range 16 {
		m.send(eager(1), 1)
		m.want(unexpected(1000+uint64(i), 1, 17))
	}
	m.seen = 16
	copy(m.a.buf[1<<19:], eager(2))
	must(t, m.qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{m.a.mr.SGE(1<<19, 16), m.a.mr.SGE(0, 9)}}))
	waitFor(t, "the RNR NAK", func() bool { get(m.a.cq.Poll(nil))(t); return counter(m.b.dev, "send_rnr_err") > 0 })
	m.add(1, 2, exact, 0, 100)
	m.want(expected(1, 2, 9))
	m.a.good(1)
}

// TestX_SRQX_01_MessagesWithoutTags: messages without a tag do not match: messages marked so, responses, short ones,
// and WRITEs with immediate data.
func TestX_SRQX_01_MessagesWithoutTags(t *testing.T) {
	m := newTagged(t, &networks[0], 4, 4)
	m.add(1, 0, 0, 0, 1000)
	for i, h := range []verbs.TMHeader{{Op: verbs.TMNoTag, AppCtx: 9, Tag: 2}, {Op: verbs.TMFin, AppCtx: 9, Tag: 2},
		{Op: 200, AppCtx: 9, Tag: 2}} {
		m.send(h.Append(nil), 4)
		m.want(done{1000 + uint64(i), verbs.WCSuccess, verbs.WCTMNoTag, 0, 20, verbs.TMInfo{Tag: 2, Priv: 9}})
	}
	m.send([]byte("15 bytes, short"), 0)
	m.want(done{1003, verbs.WCSuccess, verbs.WCRecv, 0, 15, verbs.TMInfo{}})
	must(t, m.qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSignaled, ImmData: 3, RKey: m.b.mr.RKey(),
		RemoteAddr: m.b.mr.Addr(), SGList: []verbs.SGE{m.a.mr.SGE(0, 5)},
	}))
	m.want(done{1004, verbs.WCSuccess, verbs.WCRecvRDMAWithImm, verbs.WCWithImm, 5, verbs.TMInfo{}})
	m.a.good(1)
	m.send(eager(3), 4) // the counts are still equal, and the buffer is in the list
	m.want(expected(1, 3, 4))
}

// TestX_SRQX_01_Rendezvous: a message of any length is transferred by rendezvous, while the receiver's program uses
// its send queue as well.
func TestX_SRQX_01_Rendezvous(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		m := newTagged(t, n, 16, 16)
		for i, size := range []int{100000, 0, 1, 5000} {
			m.add(1, 9, exact, 0, 100000)
			must(t, m.qa.PostRecv(m.response()))
			clear(m.b.buf[:100000])
			m.a.fill(byte(i))
			m.send(m.rndv(9, uint32(size)), 40)
			m.wantRead(1, 9, size)
			if !bytes.Equal(m.b.buf[:size], m.a.buf[:size]) {
				t.Fatalf("%d bytes: the bytes differ", size)
			}
			m.a.good(1)
			if h, rest, err := verbs.ParseTMHeader(m.a.buf[3<<18 : 3<<18+16]); err != nil ||
				h != (verbs.TMHeader{Op: verbs.TMFin, AppCtx: 16, Tag: 9}) || len(rest) != 0 {
				t.Errorf("the response: %+v, %v", h, err)
			}
		}
		// An unexpected request is passed to the program, with its data.
		m.send(m.rndv(8, 5), 40)
		m.want(unexpected(1000, 8, 72))
		rv, rest, err := verbs.ParseRVHeader(m.b.buf[1<<19+16 : 1<<19+72])
		if err != nil || rv != (verbs.RVHeader{Addr: m.a.mr.Addr(), RKey: m.a.mr.RKey(), Length: 5}) || len(rest) != 40 {
			t.Errorf("%+v, %d bytes, %v", rv, len(rest), err)
		}
		m.seen++

		// Many requests do not use up slots of the send queue.
		_, made, err := m.qb.Query(verbs.QPAttrCap)
		must(t, err)
		room := int(made.Cap.MaxSendWR)
		for i := range 5 * room {
			m.add(uint64(i), 9, exact, 0, 3000)
			must(t, m.qa.PostRecv(m.response()))
			if i%3 == 0 {
				wr := send(m.b, 8)
				wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, m.a.mr.Addr()+1<<18, m.a.mr.RKey()
				if i%2 == 0 {
					wr.Flags = 0
				}
				must(t, m.qb.PostSend(wr))
				if wr.Flags != 0 {
					m.b.good(1)
				}
			}
			m.send(m.rndv(9, 3000), 0)
			m.wantRead(uint64(i), 9, 3000)
			m.a.good(1)
		}
		wr := send(m.b, 8)
		wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, m.a.mr.Addr()+1<<18, m.a.mr.RKey()
		for range room {
			must(t, m.qb.PostSend(wr))
		}
		m.b.good(room)
	})
}

// TestX_SRQX_01_RendezvousByTheProgram: a QP that cannot READ leaves the rendezvous to the program: the buffer has
// the request.
func TestX_SRQX_01_RendezvousByTheProgram(t *testing.T) {
	m := newTagged(t, &networks[0], 4, 4)
	must(t, m.qb.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	must(t, m.qa.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	ia, ib := get(m.qa.LocalInfo())(t), get(m.qb.LocalInfo())(t)
	must(t, m.qa.Connect(ib, nil))
	toRTR(t, m.qb, ia)
	m.add(1, 9, exact, 0, 100)
	m.send(m.rndv(9, 5000), 4)
	start(t, m.cq)
	if m.cq.WRID != 1 || m.cq.Status != verbs.WCTMRndvIncomplete || m.cq.Opcode != verbs.WCTMRecv ||
		m.cq.TM != info(9) || m.cq.ByteLen != 36 {
		t.Errorf("%d %v %v", m.cq.WRID, m.cq.Status, m.cq.Opcode)
	}
	m.cq.EndPoll()
	if !bytes.Equal(m.b.buf[:36], append(m.rndv(9, 5000), m.a.buf[:4]...)) {
		t.Error("the buffer does not hold the request")
	}
	if m.qb.State() != verbs.QPSRTR {
		t.Errorf("the QP is in %v", m.qb.State())
	}
	m.add(2, 9, exact, 0, 35) // too small for the request
	m.send(m.rndv(9, 5000), 4)
	m.want(unexpected(1000, 9, 36))
	m.send(m.rndv(9, 5000), 300) // longer than max_rndv_hdr_size
	m.want(unexpected(1001, 9, 332))
}

// TestX_SRQX_01_BadMessages: a message longer than its buffer ends the connection, as one longer than a receive does;
// so does memory that may not be read.
func TestX_SRQX_01_BadMessages(t *testing.T) {
	for name, c := range map[string]struct {
		header func(m *tagged) []byte
		n      int
		status verbs.WCStatus
		sender verbs.WCStatus // 0 means that the request itself succeeds
	}{
		"eager, too long": {func(*tagged) []byte { return eager(9) }, 101, verbs.WCLocLenErr, verbs.WCRemInvReqErr},
		"rndv, too long":  {func(m *tagged) []byte { return m.rndv(9, 101) }, 0, verbs.WCLocLenErr, verbs.WCRemInvReqErr},
		"rndv, 4 GB": {func(m *tagged) []byte { return m.rndv(9, math.MaxUint32) }, 0, verbs.WCLocLenErr,
			verbs.WCRemInvReqErr},
		"rndv, bad key": {func(m *tagged) []byte {
			h := m.rndv(9, 100)
			binary.BigEndian.PutUint32(h[24:], m.a.mr.RKey()^0xff00)
			return h
		}, 0, verbs.WCRemAccessErr, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTagged(t, &networks[0], 1, 4)
			m.add(1, 9, exact, 0, 100)
			h := c.header(m)
			copy(m.a.buf[1<<19:], h)
			must(t, m.qa.PostSend(verbs.SendWR{
				Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{m.a.mr.SGE(1<<19, len(h)), m.a.mr.SGE(0, c.n)},
			}))
			if c.sender == 0 { // the request itself is good, and matches
				m.want(done{1, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMMatch, 0, info(9)})
			}
			if d := m.next(); d.id != 1 || d.status != c.status {
				t.Errorf("%+v", d)
			}
			if wc := m.a.poll(1)[0]; wc.Status != c.sender {
				t.Errorf("the sender: %v", wc.Status)
			}
			waitFor(t, "ERR", func() bool { return m.qb.State() == verbs.QPSErr })
			m.add(2, 9, exact, 0, 100) // its slot is free again
		})
	}
	m := newTagged(t, &networks[0], 1, 4)
	short := verbs.TMHeader{Op: verbs.TMRndv, AppCtx: 16, Tag: 9}.Append(nil)
	m.add(1, 9, exact, 0, 100)
	m.send(short, 15) // no room for an RVH
	m.want(unexpected(1000, 9, 31))
}

func TestX_SRQX_01_OperationsOnTheList(t *testing.T) {
	m := newTagged(t, &networks[0], 3, 2)
	var ops []verbs.OpsWR
	for i := range 3 {
		ops = append(ops, verbs.OpsWR{Opcode: verbs.TagAdd, RecvWRID: uint64(i), Tag: 4, Mask: exact,
			SGList: []verbs.SGE{m.b.mr.SGE(100*i, 100)}})
	}
	must(t, m.srq.PostOps(ops...))
	if ops[0].Handle == ops[1].Handle || ops[1].Handle == ops[2].Handle {
		t.Errorf("handles %d %d %d", ops[0].Handle, ops[1].Handle, ops[2].Handle)
	}
	one := verbs.OpsWR{Opcode: verbs.TagAdd, Tag: 4, Mask: exact, Flags: verbs.OpsSignaled}
	refusal := func(what string, err error, index int, errno error) {
		t.Helper()
		var pe *verbs.PostError
		if !errors.As(err, &pe) || pe.Index != index || !errors.Is(err, errno) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refusal("a fourth", m.srq.PostOps(one), 0, verbs.ENOMEM)
	del := verbs.OpsWR{WRID: 20, Opcode: verbs.TagDel, Handle: ops[1].Handle, Flags: verbs.OpsSignaled}
	must(t, m.srq.PostOps(del))
	m.want(done{20, verbs.WCSuccess, verbs.WCTMDel, 0, 0, verbs.TMInfo{}})
	del.Flags = 0
	must(t, m.srq.PostOps(del)) // removed
	m.want(done{20, verbs.WCTMErr, verbs.WCTMDel, 0, 0, verbs.TMInfo{}})
	m.send(eager(4), 1)
	m.want(expected(0, 4, 1))
	m.send(eager(4), 2)
	m.want(expected(2, 4, 2))
	del.Handle = ops[2].Handle
	must(t, m.srq.PostOps(del)) // matched by a message
	m.want(done{20, verbs.WCTMErr, verbs.WCTMDel, 0, 0, verbs.TMInfo{}})
	must(t, m.srq.PostOps(one))
	// an old handle of the same slot
	if one.Handle = 0; m.srq.PostOps(verbs.OpsWR{Opcode: verbs.TagDel, Handle: ops[0].Handle}) != nil {
		t.Error("refused")
	}
	refusal("a third completion", m.srq.PostOps(one), 0, verbs.ENOMEM)
	m.want(done{0, verbs.WCSuccess, verbs.WCTMAdd, 0, 0, verbs.TMInfo{}})
	if d := m.next(); d.status != verbs.WCTMErr {
		t.Errorf("%+v", d)
	}
	nine := make([]verbs.SGE, 9)
	for text, bad := range map[string]verbs.OpsWR{
		"opcode": {Opcode: 3}, "flags": {Flags: 4}, "SGEs": {SGList: nine, Mask: exact}, "mask": {Tag: 3, Mask: 1},
		"sync": {Opcode: verbs.TagSync},
	} {
		refusal(text, m.srq.PostOps(verbs.OpsWR{Opcode: verbs.TagAdd, Mask: exact, Tag: 99}, bad), 1, verbs.EINVAL)
		must(t, m.srq.PostOps(verbs.OpsWR{Opcode: verbs.TagAdd, Mask: exact, Tag: 98, SGList: nine[:8]}))
		refusal("full", m.srq.PostOps(one), 0, verbs.ENOMEM)
		m.send(eager(99), 0)
		m.next()
		m.send(eager(98), 0)
		m.next()
	}
	plain := get(m.b.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	refusal("a plain SRQ", plain.PostOps(one), 0, verbs.EINVAL)
	must(t, plain.Close())
}

func TestV_SRQX_03_SizesOfTagMatching(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	caps := get(e.ctx.QueryDevice())(t).TMCaps
	if caps.Flags != verbs.TMCapRC || caps.MaxNumTags == 0 || caps.MaxOps == 0 || caps.MaxSGE == 0 ||
		caps.MaxRndvHdrSize < 32 {
		t.Errorf("%+v", caps)
	}
	init := verbs.SRQInitAttr{Type: verbs.SRQTypeTM, CQ: e.cq, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}
	for _, c := range []struct {
		cap  verbs.TMCap
		good bool
	}{
		{verbs.TMCap{MaxNumTags: 1, MaxOps: 1}, true}, {verbs.TMCap{MaxNumTags: caps.MaxNumTags, MaxOps: caps.MaxOps}, true},
		{verbs.TMCap{MaxNumTags: caps.MaxNumTags + 1, MaxOps: 1}, false},
		{verbs.TMCap{MaxNumTags: 1, MaxOps: caps.MaxOps + 1}, false},
		{verbs.TMCap{MaxNumTags: 1}, false}, {verbs.TMCap{MaxOps: 1}, false},
	} {
		init.TMCap = c.cap
		srq, err := e.pd.CreateSRQ(&init)
		if c.good {
			must(t, err)
			if got := srq.TMCap(); got.MaxNumTags < c.cap.MaxNumTags || got.MaxOps < c.cap.MaxOps || srq.CQ() != e.cq {
				t.Errorf("%+v", got)
			}
			if err := e.cq.Close(); !errors.Is(err, verbs.EBUSY) {
				t.Errorf("using the CQ: %v", err)
			}
			for _, typ := range []verbs.QPType{verbs.QPTypeUD, verbs.QPTypeUC} {
				if _, err := e.pd.CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq}); !errors.Is(err,
					verbs.EINVAL) {
					t.Errorf("a %v QP: %v", typ, err)
				}
			}
			must(t, srq.Close())
		} else if !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%+v: %v", c.cap, err)
		}
	}
}

// TestV_SRQX_01_BufferOfAnEndedQP: the buffer of an incomplete message is flushed when the QP fails, and lost with
// the message when the QP is reset. Both slots are free again.
func TestV_SRQX_01_BufferOfAnEndedQP(t *testing.T) {
	for _, to := range []verbs.QPState{verbs.QPSErr, verbs.QPSReset} {
		t.Run(fmt.Sprint(to), func(t *testing.T) {
			m := newTagged(t, &networks[0], 1, 4)
			m.add(1, 9, exact, 0, 1<<19)
			m.send(m.rndv(9, 1<<19), 0)
			must(t, m.qb.Modify(&verbs.QPAttr{QPState: to}, verbs.QPAttrState))
			if to == verbs.QPSErr {
				if d := m.next(); d.id != 1 || d.status != verbs.WCSuccess && d.status != verbs.WCWRFlushErr {
					t.Errorf("%+v", d)
				}
			}
			m.add(2, 9, exact, 0, 100)
		})
	}
}

func TestTagMatchingAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	m := newTagged(t, &networks[0], 4, 4)
	copy(m.a.buf[1<<19:], eager(9))
	copy(m.a.buf[1<<19+100:], m.rndv(9, 3000))
	small := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{m.a.mr.SGE(1<<19, 116)}}
	large := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{m.a.mr.SGE(1<<19+100, 32)}}
	fin := m.response()
	ops := []verbs.OpsWR{{Opcode: verbs.TagAdd, Tag: 9, Mask: exact, SGList: []verbs.SGE{m.b.mr.SGE(0, 3000)}}}
	wait := func(n int, poll func() bool) {
		for begun := time.Now(); n > 0; {
			if poll() {
				n--
			}
			if time.Since(begun) > 10*time.Second {
				t.Fatal("no completion")
			}
		}
	}
	wcs := make([]verbs.WC, 1)
	sent := func() bool { n, _ := m.a.cq.Poll(wcs); return n == 1 }
	received := func() bool {
		err := m.cq.StartPoll(&m.cq.WC)
		m.cq.EndPoll()
		return err == nil
	}
	steady := func() {
		must(t, m.srq.PostOps(ops...))
		must(t, m.qa.PostSend(small))
		wait(1, received)
		wait(1, sent)
		must(t, m.qa.PostRecv(fin))
		must(t, m.srq.PostOps(ops...))
		must(t, m.qa.PostSend(large))
		wait(2, received)
		wait(2, sent)
	}
	for range 100 {
		steady()
	}
	if n := testing.AllocsPerRun(200, steady); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestX_SRQX_01_OperationsWhilePolling: concurrent operations and polling, with a CQ that drops its oldest completion
// for a new one: no deadlock.
func TestX_SRQX_01_OperationsWhilePolling(t *testing.T) {
	m := newTagged(t, &networks[0], 16, 128) // half of what the CQ holds
	op := verbs.OpsWR{Opcode: verbs.TagSync, Flags: verbs.OpsTMSync | verbs.OpsSignaled}
	const rounds = 5000
	done := make(chan error, 1)
	go func() {
		for i := 0; i < rounds; {
			err := m.srq.PostOps(op)
			if err == nil {
				i++
			} else if !errors.Is(err, verbs.ENOMEM) {
				done <- err
				return
			}
			runtime.Gosched()
		}
		done <- nil
	}()
	got, wcs := 0, make([]verbs.WC, 64)
	for begun := time.Now(); got < rounds; {
		if got += get(m.cq.CQ.Poll(wcs))(t); time.Since(begun) > 20*time.Second {
			t.Fatalf("%d of %d completions", got, rounds)
		}
	}
	must(t, <-done)

	small := get(m.b.ctx.CreateCQ(4, &verbs.CQOptions{Flags: verbs.CreateCQIgnoreOverrun}))(t)
	srq := get(m.b.pd.CreateSRQ(&verbs.SRQInitAttr{
		Type: verbs.SRQTypeTM, CQ: small, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}, TMCap: verbs.TMCap{MaxNumTags: 1,
			MaxOps: 8},
	}))(t)
	for range 50 {
		must(t, srq.PostOps(op))
	}
	must(t, srq.Close())
	must(t, small.Close())
}

// TestX_SRQX_01_ManyQPsOneList: several QPs, in several shards, deliver to one list that the program changes all the
// time: each message is received once, complete, in its sender's order, and in a buffer or a receive as its
// completion says.
func TestX_SRQX_01_ManyQPsOneList(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		m := newTagged(t, n, 32, 128)
		const qps, messages, slot = 4, 150, 64
		senders := []*verbs.QP{m.qa}
		for range qps - 1 {
			qa, qb := m.a.qp(verbs.QPTypeRC, nil), m.b.qp(verbs.QPTypeRC, func(i *verbs.QPInitAttr) { i.SRQ = m.srq })
			join(t, qa, qb, nil)
			senders = append(senders, qa)
		}
		failed := make(chan error, 1)
		go func() { // the tag is the sender's number<<32 and the message's number
			buf := make([]byte, 0, slot)
			wcs := make([]verbs.WC, 32)
			for i := range messages {
				for q, qp := range senders {
					h := verbs.TMHeader{Op: verbs.TMEager, AppCtx: uint32(i), Tag: uint64(q)<<32 | uint64(i%3)}
					buf = h.Append(buf[:0])
					for len(buf) < slot {
						buf = append(buf, byte(i+q))
					}
					wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: buf}
					err := qp.PostSend(wr)
					for errors.Is(err, verbs.ENOMEM) {
						if _, err = m.a.cq.Poll(wcs); err == nil {
							err = qp.PostSend(wr)
						}
					}
					if err != nil {
						failed <- err
						return
					}
				}
			}
			failed <- nil
			for range 20000 {
				if _, err := m.a.cq.Poll(wcs); err != nil {
					return
				}
			}
		}()

		next := [qps]int{}
		posted, got, matched := 0, 0, 0
		free := make([]int, 32)
		for i := range free {
			free[i] = i
		}
		for begun := time.Now(); got < qps*messages; {
			for len(free) > 0 && posted < 4*qps*messages { // matches any message of one sender
				i := free[0]
				err := m.srq.PostOps(verbs.OpsWR{
					Opcode: verbs.TagAdd, Flags: verbs.OpsTMSync, UnexpectedCnt: m.seen, RecvWRID: uint64(i),
					Tag: uint64(posted%qps) << 32, Mask: 0xff << 32,
					SGList: []verbs.SGE{m.b.mr.SGE(slot*i, slot)},
				})
				if err != nil {
					t.Fatal(err)
				}
				free, posted = free[1:], posted+1
			}
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("%d of %d messages", got, qps*messages)
			}
			if err := m.cq.StartPoll(&m.cq.WC); err != nil {
				continue
			}
			id, tm, flags := m.cq.WRID, m.cq.TM, m.cq.WCFlags
			must(t, m.cq.Err())
			m.cq.EndPoll()
			got++
			q := int(tm.Tag >> 32)
			at, size := slot*int(id), slot-verbs.TMHeaderLen
			if flags&verbs.WCTMMatch != 0 {
				matched++
				free = append(free, int(id))
			} else {
				m.seen++
				at = 1<<19 + 2000*int(id-1000) + verbs.TMHeaderLen
			}
			if int(tm.Priv) != next[q] || tm.Tag&0xffffffff != uint64(next[q]%3) {
				t.Fatalf("sender %d: message %d, want %d", q, tm.Priv, next[q])
			}
			if data := m.b.buf[at : at+size]; bytes.Count(data, []byte{byte(next[q] + q)}) != size {
				t.Fatalf("sender %d: message %d: the bytes differ: %x", q, next[q], data)
			}
			next[q]++
			if flags&verbs.WCTMMatch == 0 {
				must(t, m.srq.PostRecv(verbs.RecvWR{WRID: id, SGList: []verbs.SGE{m.b.mr.SGE(1<<19+2000*int(id-1000), 2000)}}))
				must(t, m.srq.PostOps(verbs.OpsWR{Opcode: verbs.TagSync, Flags: verbs.OpsTMSync, UnexpectedCnt: m.seen}))
			}
		}
		must(t, <-failed)
		if matched == 0 {
			t.Error("no message was expected")
		}
		t.Logf("%d of %d messages found buffers", matched, got)
	})
}

// TestV_AE_21_TagsWithOverflowedCQ: after an overflow of the CQ of an SRQ that matches tags the SRQ cannot receive:
// it reports an error, and its QPs fail.
func TestV_AE_21_TagsWithOverflowedCQ(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		m := newTagged(t, n, 4, 4)
		small := get(m.b.ctx.CreateCQ(2, nil))(t)
		t.Cleanup(func() { must(t, small.Close()) })
		create := func() (*verbs.SRQ, error) {
			return m.b.pd.CreateSRQ(&verbs.SRQInitAttr{
				Type: verbs.SRQTypeTM, CQ: small, Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}, TMCap: verbs.TMCap{MaxNumTags: 4,
					MaxOps: 4},
			})
		}
		srq, gone := get(create())(t), get(create())(t)
		t.Cleanup(func() { must(t, srq.Close()) })
		must(t, gone.Close()) // without an event
		qa, qb := m.a.qp(verbs.QPTypeRC, nil), m.b.qp(verbs.QPTypeRC, func(i *verbs.QPInitAttr) { i.SRQ = srq })
		join(t, qa, qb, nil)
		for i := range small.Cap() + 1 {
			must(t, srq.PostRecv(recv(m.b, uint64(i), 100)))
			must(t, qa.PostSend(send(m.a, 64)))
		}
		for _, want := range []verbs.EventType{verbs.EventCQErr, verbs.EventSRQErr, verbs.EventQPFatal} {
			ev := nextEvent(t, m.b)
			if ev.Type != want || ev.CQ != nil && ev.CQ != small || ev.SRQ != nil && ev.SRQ != srq || ev.QP != nil &&
				ev.QP != qb {
				t.Errorf("event %+v, want %v", ev, want)
			}
		}
		if s := qb.State(); s != verbs.QPSErr {
			t.Errorf("the QP is in %v", s)
		}
		if s := m.qb.State(); s != verbs.QPSRTS { // its SRQ is another one
			t.Errorf("the other QP is in %v", s)
		}
		if _, err := create(); !errors.Is(err, syscall.EIO) {
			t.Errorf("one more SRQ on that CQ: %v", err)
		}
	})
}
