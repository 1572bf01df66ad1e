package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/interop/internal/proc"
	"github.com/verbena-rdma/verbena/verbs"
)

// specialCases returns the verbs cases that do not fit into a table.
func specialCases() []testCase {
	list := []testCase{
		{name: "verbs/rnr-then-receive/ipv4", run: rnrThenReceive},
		{name: "verbs/solicited/ipv4", run: solicited},
		{name: "verbs/send-inv/ipv4", run: sendInvalidate},
		{name: "verbs/ud-wrong-qkey/ipv4", run: wrongQKey},
		{name: "verbs/atomic-write/ipv4", run: func(env *caseEnv, a, p *place) error { return atomicWrite(env, 4, a, p) }},
		{name: "verbs/atomic-write/ipv6", run: func(env *caseEnv, a, p *place) error { return atomicWrite(env, 6, a, p) }},
		{name: "mcast/ipv4", run: func(env *caseEnv, a, p *place) error { return multicast(env, 4, "239.1.1.1", a, p) }},
	}
	for i := range list {
		list[i].timeout = 40 * time.Second
	}
	return list
}

// connected opens both ends of a case and connects their QPs.
func connected(env *caseEnv, p *program, active, passive *place) (a, b *side, err error) {
	if a, err = p.open(env, active, 1); err != nil {
		return nil, nil, err
	}
	if b, err = p.open(env, passive, 2); err != nil {
		return nil, nil, err
	}
	if _, err = a.do(agent.Request{Op: agent.Connect, Path: p.path(b, 0, 0x111, 0x222)}); err != nil {
		return nil, nil, err
	}
	_, err = b.do(agent.Request{Op: agent.Connect, Path: p.path(a, 0, 0x222, 0x111)})
	return a, b, err
}

// rnrThenReceive posts a receive after its SEND: with unlimited RNR retries the SEND must not fail.
func rnrThenReceive(env *caseEnv, active, passive *place) error {
	p := &program{typ: "RC", family: 4, mtu: 1024, size: 64 * kib, depth: 1}
	a, b, err := connected(env, p, active, passive)
	if err != nil {
		return err
	}
	o := op{do: send, n: 3000, remote: 5000}
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: []agent.WR{p.request(b, o, 1)}}); err != nil {
		return err
	}
	early, err := a.do(agent.Request{Op: agent.Poll, CQ: "send", N: 1, MS: 300})
	if err != nil {
		return err
	}
	if len(early.WCs) > 0 {
		return fmt.Errorf("%s: a completion before there was a receive: %+v", a.place.name, early.WCs[0])
	}
	if _, err := b.do(agent.Request{Op: agent.Recv, WRs: []agent.WR{{ID: 9, SGE: p.receive(o)}}}); err != nil {
		return err
	}
	if err := p.await(a, "send", []op{o}, 10000, checkSend); err != nil {
		return err
	}
	if err := p.await(b, "recv", []op{o}, 10000, p.checkRecv(a)); err != nil {
		return err
	}
	if err := p.apply(a, b, o); err != nil {
		return err
	}
	return b.compare()
}

// solicited checks that only a solicited SEND raises an event if only solicited completions were requested.
func solicited(env *caseEnv, active, passive *place) error {
	p := &program{typ: "RC", family: 4, mtu: 1024, size: 64 * kib, depth: 1}
	a, b, err := connected(env, p, active, passive)
	if err != nil {
		return err
	}
	wrs := []agent.WR{{ID: 1, SGE: [][2]int{{0, 64}}}, {ID: 2, SGE: [][2]int{{64, 64}}}, {ID: 3, SGE: [][2]int{{64, 64}}}}
	if _, err := b.do(agent.Request{Op: agent.Recv, WRs: wrs}); err != nil {
		return err
	}
	if _, err := b.do(agent.Request{Op: agent.Arm, Solicited: true}); err != nil {
		return err
	}
	for _, o := range []op{{do: send, n: 10}, {do: sendImm, n: 10, imm: 5, flags: verbs.SendSolicited}} {
		if _, err := a.do(agent.Request{Op: agent.Send, WRs: []agent.WR{p.request(b, o, 1)}}); err != nil {
			return err
		}
		if err := p.await(a, "send", []op{o}, 10000, checkSend); err != nil {
			return err
		}
		want := o.flags&verbs.SendSolicited != 0
		resp, err := b.do(agent.Request{Op: agent.Event, MS: map[bool]int{false: 300, true: 5000}[want]})
		if err != nil {
			return err
		}
		if resp.Got != want {
			return fmt.Errorf("%s: completion event %v after a SEND with flags %v", b.place.name, resp.Got, o.flags)
		}
	}
	return nil
}

// sendInvalidate writes through a memory window, invalidates it by SEND_WITH_INV and writes again, which
// must fail.
func sendInvalidate(env *caseEnv, active, passive *place) error {
	p := &program{typ: "RC", family: 4, mtu: 1024, size: 64 * kib, depth: 1}
	a, b, err := p.openWindows(env, active, passive)
	if err != nil {
		return err
	}
	inv := op{do: verbs.WRSendWithInv, n: 32, remote: 9000}
	if _, err := b.do(agent.Request{Op: agent.Recv,
		WRs: []agent.WR{{ID: 1, SGE: [][2]int{{9000, 64}}}, {ID: 2, SGE: [][2]int{{9000, 64}}}}}); err != nil {
		return err
	}
	bind, err := b.do(agent.Request{Op: agent.Bind, Off: 4096, Len: 4096, Access: uint32(verbs.AccessRemoteWrite)})
	if err != nil {
		return err
	}
	through := op{do: write, n: 100, remote: 5000}
	through.key = bind.RKey
	if err := p.batch(env, a, b, []op{through}); err != nil {
		return err
	}
	wr := p.request(b, inv, 2)
	wr.Inv = bind.RKey
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: []agent.WR{wr}}); err != nil {
		return err
	}
	if err := p.await(a, "send", []op{inv}, 10000, checkSend); err != nil {
		return err
	}
	recv, err := b.do(agent.Request{Op: agent.Poll, CQ: "recv", N: 1, MS: 5000})
	if err != nil {
		return err
	}
	// rxe of kernel 6.1 reports the kernel's internal flag, 4, instead of IBV_WC_WITH_INV, 8.
	if len(recv.WCs) != 1 || recv.WCs[0].Status != 0 || recv.WCs[0].Imm != bind.RKey || recv.WCs[0].Flags&0xC == 0 {
		return fmt.Errorf("%s: receive completions %+v; want one that names key %#x as invalidated", b.place.name, recv.WCs,
			bind.RKey)
	}
	scatter(b.mem, [][2]int{{9000, 32}}, a.mem[:32])
	wr = p.request(b, through, 3)
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: []agent.WR{wr}}); err != nil {
		return err
	}
	if err := a.fails(verbs.WCRemAccessErr); err != nil {
		return err
	}
	return b.compare()
}

// openWindows is connected with a passive end that allows memory windows on its region.
func (p *program) openWindows(env *caseEnv, active, passive *place) (a, b *side, err error) {
	p.access = allAccess | verbs.AccessMWBind
	return connected(env, p, active, passive)
}

// fails waits for one send completion with one of the statuses.
func (s *side) fails(want ...verbs.WCStatus) error {
	resp, err := s.do(agent.Request{Op: agent.Poll, CQ: "send", N: 1, MS: 10000})
	if err != nil {
		return err
	}
	for _, w := range want {
		if len(resp.WCs) == 1 && resp.WCs[0].Status == int(w) {
			return nil
		}
	}
	return fmt.Errorf("%s: send completions %+v; want %v", s.place.name, resp.WCs, want)
}

// wrongQKey checks that a datagram with another Q_Key is silently dropped, and the next one received.
func wrongQKey(env *caseEnv, active, passive *place) error {
	p := &program{typ: "UD", family: 4, mtu: 1024, size: 64 * kib}
	a, b, err := connected(env, p, active, passive)
	if err != nil {
		return err
	}
	bad, good := op{do: send, n: 100, remote: 1000}, op{do: send, n: 200, remote: 1000}
	if _, err := b.do(agent.Request{Op: agent.Recv, WRs: []agent.WR{{ID: 1, SGE: p.receive(good)}}}); err != nil {
		return err
	}
	wrs := []agent.WR{p.request(b, bad, 1), p.request(b, good, 2)}
	wrs[0].QKey ^= 1
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: wrs}); err != nil {
		return err
	}
	if err := p.await(a, "send", []op{bad, good}, 5000, checkSend); err != nil {
		return err
	}
	if err := p.await(b, "recv", []op{good}, 5000, p.checkRecv(a)); err != nil {
		return err
	}
	if err := p.apply(a, b, good); err != nil {
		return err
	}
	return b.compare()
}

// multicast sends datagrams to a group. The kernel's end is rdma-core's mckey; ours is our end with the Q_Key that
// rdma_cm assigns to groups. There is no such case over IPv6: in kernel 6.1 rdma_cm does not join IPv6 groups on RoCE.
func multicast(env *caseEnv, family int, group string, active, passive *place) error {
	m := &groupCase{env: env, family: family, group: group, gid: group,
		p: &program{typ: "UD", family: family, mtu: 1024, size: 64 * kib}}
	if family == 4 {
		m.gid = "::ffff:" + group
	}
	if err := m.join(passive); err != nil {
		return err
	}
	if m.receiver != nil {
		defer m.receiver.Stop()
	}
	time.Sleep(1500 * time.Millisecond) // mckey does not report when it has joined: our end sends again
	if err := m.send(active); err != nil {
		return err
	}
	if m.receiver != nil {
		return m.checkMckey()
	}
	return m.checkOurs()
}

// groupCase is a run of multicast.
type groupCase struct {
	env        *caseEnv
	family     int
	group, gid string
	p          *program
	ours       *side      // our end
	receiver   *proc.Proc // mckey as the receiver; nil if our end receives
}

const (
	groupMessages = 3 // datagrams
	rdmaCMQKey    = 0x01234567
	multicastQPN  = 0xFFFFFF
)

// setUp makes our end at a place.
func (m *groupCase) setUp(at *place) (err error) {
	if m.ours, err = m.p.open(m.env, at, 1); err == nil {
		_, err = m.ours.do(agent.Request{Op: agent.Connect, Path: agent.Path{QKey: rdmaCMQKey, SQPSN: 1}})
	}
	return err
}

// mckey starts the C program at a place.
func (m *groupCase) mckey(at *place, more string) (*proc.Proc, error) {
	line := fmt.Sprintf("mckey %s -m %s -b %s -C %d -S 100", more, m.group, at.addr(m.family), groupMessages)
	return start("mckey", at.sh(line, 20*time.Second))
}

// join makes the receiver.
func (m *groupCase) join(at *place) (err error) {
	if !at.ours() {
		m.receiver, err = m.mckey(at, "")
		return err
	}
	if err := m.setUp(at); err != nil {
		return err
	}
	var wrs []agent.WR
	for i := range groupMessages {
		wrs = append(wrs, agent.WR{ID: uint64(i), SGE: [][2]int{{1000 * i, 1000}}})
	}
	if _, err := m.ours.do(agent.Request{Op: agent.Recv, WRs: wrs}); err != nil {
		return err
	}
	_, err = m.ours.do(agent.Request{Op: agent.Attach, Path: agent.Path{GID: m.gid}})
	return err
}

// send sends the datagrams; from our end again until mckey has received them.
func (m *groupCase) send(at *place) error {
	if !at.ours() {
		sender, err := m.mckey(at, "-s")
		if err != nil {
			return err
		}
		if err := sender.Wait(m.env.ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, sender.Out)
		}
		return nil
	}
	if err := m.setUp(at); err != nil {
		return err
	}
	var wrs []agent.WR
	for i := range groupMessages {
		wrs = append(wrs, agent.WR{ID: uint64(i), SGE: [][2]int{{0, 100}}, Opcode: int(sendImm),
			Flags: int(verbs.SendSignaled),
			Imm:   m.ours.open.QPNs[0], QPN: multicastQPN, QKey: rdmaCMQKey, GID: m.gid})
	}
	for again := true; again; again = m.receiver != nil && !m.receiver.EndsWithin(time.Second) && m.env.ctx.Err() == nil {
		if _, err := m.ours.do(agent.Request{Op: agent.Send, WRs: wrs}); err != nil {
			return err
		}
		if _, err := m.ours.do(agent.Request{Op: agent.Poll, CQ: "send", N: groupMessages, MS: 5000}); err != nil {
			return err
		}
	}
	return nil
}

// checkMckey checks the output of mckey as the receiver.
func (m *groupCase) checkMckey() error {
	if err := m.receiver.Wait(m.env.ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, m.receiver.Out)
	}
	if out := m.receiver.Out.String(); !strings.Contains(out, "data transfers complete") {
		return fmt.Errorf("mckey: %s", out)
	}
	return nil
}

// checkOurs checks the completions of our end as the receiver.
func (m *groupCase) checkOurs() error {
	resp, err := m.ours.do(agent.Request{Op: agent.Poll, CQ: "recv", N: groupMessages, MS: 5000})
	if err != nil {
		return err
	}
	for _, wc := range resp.WCs {
		if wc.Status != 0 || wc.Len != 100+grhLen {
			return fmt.Errorf("receive completion %+v", wc)
		}
	}
	if len(resp.WCs) != groupMessages {
		return fmt.Errorf("%d datagrams of %d", len(resp.WCs), groupMessages)
	}
	return nil
}
