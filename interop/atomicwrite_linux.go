package main

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/verbs"
)

// atomicWrite writes records and sets a word behind each, with more words than may be outstanding. Linux
// supports ATOMIC WRITE since 6.3. There is no case for FLUSH: the ICRC that rxe computes for it is wrong
// (see docs/differences.md), so it works only between two rxe devices.
func atomicWrite(env *caseEnv, family int, active, passive *place) error {
	p := &program{typ: "RC", family: family, mtu: 1024, size: 64 * kib, depth: 4, place: true}
	a, b, err := connected(env, p, active, passive)
	if err != nil {
		if lacksAtomicWrite(err) {
			env.note += "not run: the kernel or its pyverbs does not support ATOMIC WRITE"
			return nil
		}
		return err
	}
	const rounds, record, words = 15, 1500, 40000
	var wrs []agent.WR
	var ops []op
	add := func(o op) {
		wrs, ops = append(wrs, p.request(b, o, uint64(len(wrs)+1))), append(ops, o)
		scatter(b.mem, [][2]int{{o.remote, o.n}}, a.mem[o.local:])
	}
	for i := range rounds {
		at := i * record
		add(op{do: write, local: at, n: record, remote: at})
		add(op{do: verbs.WRAtomicWrite, local: 8 * i, n: 8, remote: words + 8*i})
	}
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: wrs}); err != nil {
		return err
	}
	if err := p.await(a, "send", ops, 10000, checkSend); err != nil {
		return err
	}
	if err := b.compare(); err != nil {
		return err
	}
	bad := wrs[len(wrs)-1]
	bad.RKey ^= 0x5A
	if _, err := a.do(agent.Request{Op: agent.Send, WRs: []agent.WR{bad}}); err != nil {
		return err
	}
	if err := a.fails(verbs.WCRemAccessErr); err != nil {
		return err
	}
	return b.compare()
}

// lacksAtomicWrite reports whether the kernel's end could not create the objects because it does not
// support the operation.
func lacksAtomicWrite(err error) bool {
	var r refusal
	return errors.As(err, &r) && r.op == agent.Open && r.place != "verbena" &&
		(r.errno == int(unix.EINVAL) || r.errno == int(unix.EOPNOTSUPP) || strings.Contains(r.text, "AttributeError"))
}
