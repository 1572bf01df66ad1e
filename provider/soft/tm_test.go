package soft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

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

// TestX_SRQX_01_ResetDropsUnexpectedMessages: an unexpected message whose completion RESET removes does not count: the
// program never learns of it.
func TestX_SRQX_01_ResetDropsUnexpectedMessages(t *testing.T) {
	for polled := range uint64(3) {
		m := newTagged(t, &networks[0], 4, 4)
		m.send(eager(5), 10)
		m.send(eager(6), 10)
		for i := range polled {
			m.want(unexpected(1000+i, 5+i, 26))
			m.seen++
		}
		for _, qp := range []*verbs.QP{m.qa, m.qb} {
			must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		}
		join(t, m.qa, m.qb, nil)
		if err := m.cq.StartPoll(&m.cq.WC); !errors.Is(err, verbs.ErrNoCompletion) {
			t.Errorf("a poll after RESET: %v", err)
		}
		m.add(1, 5, exact, 0, 100)
		m.send(eager(5), 10)
		m.want(expected(1, 5, 10))
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
