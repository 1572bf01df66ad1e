package soft_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

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
