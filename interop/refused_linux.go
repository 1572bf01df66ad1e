package main

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/verbs"
)

// refused is a verbs case in which an operation fails: it checks the statuses at each end, and that memory
// is unchanged.
type refused struct {
	name     string
	op       op
	mrAccess verbs.AccessFlags // of the passive end; 0 means all
	qpAccess verbs.AccessFlags
	noRecv   bool            // the passive end has posted no receive; otherwise two
	recvLen  int             // of each receive
	retry    int             // RNR and ACK retries of the active end
	spoil    func(*agent.WR) // makes the request invalid
	lost     bool            // the passive end's QP is destroyed
	want     statuses        // expected with rxe as the passive end, and by default
	ours     *statuses       // expected with Verbena as the passive end, if it follows the specification and rxe does not
}

// statuses are the results of a refused request.
type statuses struct {
	send  verbs.WCStatus // of the operation; the request behind it is flushed
	recv  verbs.WCStatus // of the passive end's first receive; success means that it has not completed
	state verbs.QPState  // of the passive end's QP
}

// refusals returns the cases of NAKs and exceeded retries.
func refusals() []refused {
	access := statuses{send: verbs.WCRemAccessErr, recv: verbs.WCWRFlushErr, state: verbs.QPSErr}
	invalid := statuses{send: verbs.WCRemInvReqErr, recv: verbs.WCWRFlushErr, state: verbs.QPSErr}
	untouched := verbs.QPSRTS
	const local = verbs.AccessLocalWrite
	wrongKey := func(wr *agent.WR) { wr.RKey ^= 0x5A }
	past := func(wr *agent.WR) { wr.RAddr += 1<<16 - 32 }
	before := func(wr *agent.WR) { wr.RAddr -= 1 }
	around := func(wr *agent.WR) { wr.RAddr = ^uint64(0) - 8 }
	return []refused{
		{name: "write-wrong-key", op: op{do: write, n: 64}, spoil: wrongKey, want: access},
		{name: "read-wrong-key", op: op{do: read, n: 64}, spoil: wrongKey, want: access},
		{name: "fadd-wrong-key", op: op{do: fadd, n: 8}, spoil: wrongKey, want: access},
		{name: "write-past-end", op: op{do: write, n: 64}, spoil: past, want: access},
		{name: "write-before-start", op: op{do: write, n: 64}, spoil: before, want: access},
		{name: "write-wraps-around", op: op{do: write, n: 64}, spoil: around, want: access},
		{name: "write-5-packets-past-end", op: op{do: write, n: 5000}, spoil: past, want: access},
		{name: "read-past-end", op: op{do: read, n: 64}, spoil: past, want: access},
		{name: "write-region-forbids", op: op{do: write, n: 64}, mrAccess: local | verbs.AccessRemoteRead, want: access},
		{name: "read-region-forbids", op: op{do: read, n: 64}, mrAccess: local | verbs.AccessRemoteWrite, want: access},
		{name: "fadd-region-forbids", op: op{do: fadd, n: 8},
			mrAccess: local | verbs.AccessRemoteWrite | verbs.AccessRemoteRead, want: access},
		{name: "write-qp-forbids", op: op{do: write, n: 64}, qpAccess: local | verbs.AccessRemoteRead, want: invalid},
		{name: "read-qp-forbids", op: op{do: read, n: 64}, qpAccess: local | verbs.AccessRemoteWrite, want: invalid},
		{name: "cas-qp-forbids", op: op{do: cas, n: 8}, qpAccess: local | verbs.AccessRemoteWrite, want: invalid},
		{name: "send-too-long", op: op{do: send, n: 200}, recvLen: 100,
			want: statuses{verbs.WCRemOpErr, verbs.WCLocQPOpErr, verbs.QPSErr},
			ours: &statuses{verbs.WCRemInvReqErr, verbs.WCLocLenErr, verbs.QPSErr}},
		{name: "send-5-packets-too-long", op: op{do: send, n: 5000}, recvLen: 4000,
			want: statuses{verbs.WCRemOpErr, verbs.WCLocQPOpErr, verbs.QPSErr},
			ours: &statuses{verbs.WCRemInvReqErr, verbs.WCLocLenErr, verbs.QPSErr}},
		{name: "rnr-exceeded", op: op{do: send, n: 64}, noRecv: true, retry: 2,
			want: statuses{verbs.WCRNRRetryExcErr, 0, untouched}},
		{name: "retry-exceeded", op: op{do: write, n: 64}, lost: true, retry: 2,
			want: statuses{verbs.WCRetryExcErr, 0, untouched}},
	}
}

func (r refused) testCase(family int) testCase {
	return testCase{name: "refused/" + r.name + "/" + familyName(family), timeout: 40 * time.Second,
		run: func(env *caseEnv, active, passive *place) error { return r.run(env, family, active, passive) }}
}

func (r refused) run(env *caseEnv, family int, active, passive *place) error {
	p := &program{typ: "RC", family: family, mtu: 1024, size: 64 * kib, psn: 0x1000, depth: 4}
	a, err := p.open(env, active, 1)
	if err != nil {
		return err
	}
	b, err := r.openPassive(env, p, passive)
	if err != nil {
		return err
	}
	there, back := p.path(b, 0, 0x1000, 0x2000), p.path(a, 0, 0x2000, 0x1000)
	if r.retry > 0 {
		there.Retry, there.RNRRetry = r.retry, r.retry
	}
	if _, err := a.do(agent.Request{Op: agent.Connect, Path: there}); err != nil {
		return err
	}
	if r.lost {
		_, err = b.do(agent.Request{Op: agent.Close})
	} else {
		_, err = b.do(agent.Request{Op: agent.Connect, Path: back})
	}
	if err != nil {
		return err
	}
	if !r.noRecv && !r.lost {
		n := max(r.recvLen, 64)
		wrs := []agent.WR{{ID: 1, SGE: [][2]int{{1000, n}}}, {ID: 2, SGE: [][2]int{{9000, n}}}}
		if _, err := b.do(agent.Request{Op: agent.Recv, WRs: wrs}); err != nil {
			return err
		}
	}
	wrs := []agent.WR{p.request(b, r.op, 1), p.request(b, op{do: write, n: 8}, 2)}
	if r.spoil != nil {
		r.spoil(&wrs[0])
	}
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: wrs}); err != nil {
		return err
	}
	want := r.want
	if r.ours != nil && passive.ours() {
		want = *r.ours
	}
	return r.check(env, a, b, want)
}

// openPassive is program.open with the access flags of the case.
func (r refused) openPassive(env *caseEnv, p *program, at *place) (*side, error) {
	b, err := p.open(env, at, 2)
	if err != nil || r.mrAccess == 0 && r.qpAccess == 0 {
		return b, err
	}
	mr, qp := r.mrAccess, r.qpAccess
	if mr == 0 {
		mr = allAccess
	}
	if qp == 0 {
		qp = allAccess
	}
	b.open, err = b.do(agent.Request{Op: agent.Open, Type: p.typ, Family: p.family, Size: p.size, Access: uint32(mr),
		QPAccess: uint32(qp),
		MaxSend:  64, MaxRecv: 64, MaxSGE: 8, QPs: 1})
	if err != nil {
		return nil, err
	}
	_, err = b.do(agent.Request{Op: agent.Put, Data: b.mem})
	return b, err
}

// check compares completions, states and memory of both ends with the expected ones.
func (r refused) check(env *caseEnv, a, b *side, want statuses) error {
	limit := int(env.left().Milliseconds()) / 2
	sends, err := a.do(agent.Request{Op: agent.Poll, CQ: "send", N: 2, MS: limit})
	if err != nil {
		return err
	}
	if len(sends.WCs) != 2 || sends.WCs[0].ID != 1 || sends.WCs[0].Status != int(want.send) ||
		sends.WCs[1].Status != int(verbs.WCWRFlushErr) {
		return fmt.Errorf("%s: send completions %+v; want %v, then %v", a.place.name, sends.WCs, want.send,
			verbs.WCWRFlushErr)
	}
	if err := a.inState(verbs.QPSErr); err != nil || r.lost {
		return err
	}
	n := 0
	if want.recv != verbs.WCSuccess {
		n = 2
	}
	recvs, err := b.do(agent.Request{Op: agent.Poll, CQ: "recv", N: max(n, 1), MS: 2000 * n})
	if err != nil {
		return err
	}
	if len(recvs.WCs) != n || n > 0 &&
		(recvs.WCs[0].Status != int(want.recv) || recvs.WCs[1].Status != int(verbs.WCWRFlushErr)) {
		return fmt.Errorf("%s: receive completions %+v; want %v, then %v", b.place.name, recvs.WCs, want.recv,
			verbs.WCWRFlushErr)
	}
	if err := b.inState(want.state); err != nil {
		return err
	}
	if r.recvLen == 0 { // a message that is too long leaves the receive's memory undefined
		if err := b.compare(); err != nil {
			return err
		}
	}
	return a.compare()
}

// inState checks the state of the end's QP.
func (s *side) inState(want verbs.QPState) error {
	resp, err := s.do(agent.Request{Op: agent.State})
	if err == nil && resp.State != int(want) {
		err = fmt.Errorf("%s: the QP is in %v, want %v", s.place.name, verbs.QPState(resp.State), want)
	}
	return err
}
