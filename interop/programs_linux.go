package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Short names of opcodes for the tables.
const (
	send     = verbs.WRSend
	sendImm  = verbs.WRSendWithImm
	write    = verbs.WRRDMAWrite
	writeImm = verbs.WRRDMAWriteWithImm
	read     = verbs.WRRDMARead
	cas      = verbs.WRAtomicCmpAndSwp
	fadd     = verbs.WRAtomicFetchAndAdd
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// sizes lists lengths around which segmentation and padding change, for every path MTU.
var sizes = []int{0, 1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 65536, 65537, mib}

// programs returns the verbs cases in which everything succeeds.
func programs() []program {
	list := []program{
		{name: "send", typ: "RC", size: 2 * mib, batches: each(send, sizes)},
		{name: "write", typ: "RC", size: 2 * mib, batches: each(write, sizes)},
		{name: "read", typ: "RC", size: 2 * mib, batches: each(read, sizes)},
		{name: "send-imm", typ: "RC", size: 2 * mib, batches: each(sendImm, sizes)},
		{name: "write-imm", typ: "RC", size: 2 * mib, batches: each(writeImm, sizes)},
		{name: "8MiB", typ: "RC", mtu: 4096, size: 8*mib + 4096, timeout: 3 * time.Minute, batches: [][]op{
			{{do: write, n: 8 * mib, remote: 5}}, {{do: read, n: 8 * mib, local: 7, remote: 64}},
			{{do: send, n: 8 * mib, remote: 99}},
		}},
		{name: "atomics", typ: "RC", size: 64 * kib, batches: atomics()},
		{name: "sge", typ: "RC", size: 64 * kib, batches: pieces()},
		{name: "inline", typ: "RC", size: 64 * kib, inline: 256, batches: [][]op{{
			{do: send, n: 0, flags: verbs.SendInline}, {do: send, n: 1, remote: 100, flags: verbs.SendInline},
			{do: sendImm, n: 256, local: 9, remote: 200, imm: 7, flags: verbs.SendInline},
			{do: write, n: 255, local: 3, remote: 1001, flags: verbs.SendInline},
			{do: writeImm, n: 37, local: 5, remote: 3000, imm: 1 << 31, flags: verbs.SendInline},
		}}},
		{name: "unsignaled", typ: "RC", size: 64 * kib, batches: [][]op{{
			{do: write, n: 5000, remote: 1, quiet: true}, {do: send, n: 300, local: 6000, remote: 9000, quiet: true},
			{do: read, n: 3000, local: 20000, remote: 30000, quiet: true},
			{do: fadd, n: 8, local: 40000, remote: 48000, add: 5, quiet: true},
			{do: write, n: 17, local: 100, remote: 50000},
		}}},
		{name: "fence", typ: "RC", size: 256 * kib, batches: [][]op{{
			{do: read, n: 50000, local: 1000, remote: 2000},
			{do: send, n: 50000, local: 1000, remote: 100000, flags: verbs.SendFence},
			{do: fadd, n: 8, local: 1000, remote: 64, add: 1},
			{do: write, n: 8, local: 1000, remote: 128, flags: verbs.SendFence},
		}}},
		{name: "psn-wrap", typ: "RC", size: 256 * kib, psn: 0xFFFFFA, batches: mixed(7, 3, 8)},
		{name: "reads-8-outstanding", typ: "RC", size: 512 * kib, depth: 8, batches: many(read, 32, 9000)},
		{name: "atomics-8-outstanding", typ: "RC", size: 512 * kib, depth: 8, batches: many(fadd, 32, 8)},
		{name: "many-sends", typ: "RC", size: 512 * kib, batches: many(send, 60, 1500)},
		{name: "srq-4-qps", typ: "RC", size: 256 * kib, srq: true, qps: 4,
			batches: overQPs(each(send, []int{0, 1, 1023, 4096, 9999, 20000}), 4)},
		{name: "uc", typ: "UC", size: 256 * kib, batches: concat(each(send, sizes[:17]), each(write, sizes[:17]),
			each(writeImm, sizes[:17]))},
		{name: "ud", typ: "UD", size: 256 * kib, batches: concat(each(send, []int{0, 1, 2, 3, 64, 1023, 1024, 4096}),
			each(sendImm, []int{0, 5, 4096}))},
	}
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		var lengths []int
		for _, n := range []int{mtu, 2 * mtu, 5 * mtu} {
			lengths = append(lengths, n-1, n, n+1)
		}
		list = append(list, program{
			name: fmt.Sprintf("mtu-%d", mtu), typ: "RC", mtu: mtu, size: 256 * kib,
			batches: concat(each(send, lengths), each(write, lengths), each(read, lengths)),
		})
	}
	for seed := range uint64(4) {
		list = append(list, program{name: fmt.Sprintf("mixed-%d", seed), typ: "RC", size: 512 * kib, depth: 1 << seed,
			batches: mixed(seed, 8, 16)})
	}
	return append(list, lossyPrograms()...)
}

// lossyPrograms returns cases with packet loss, and with loss, duplicates and reordering, in each
// direction: RC delivers every byte.
func lossyPrograms() []program {
	var list []program
	for _, n := range []network{lossy, faulty} {
		prefix := map[network]string{lossy: "loss/", faulty: "loss-dup-reorder/"}[n]
		add := func(p program) {
			p.name, p.network, p.typ, p.timeout = prefix+p.name, n, "RC", 3*time.Minute
			list = append(list, p)
		}
		for _, do := range []struct {
			name string
			op   verbs.WROpcode
		}{{"send", send}, {"write", write}, {"read", read}} {
			add(program{name: do.name + "-1MiB", size: 2 * mib, batches: each(do.op, []int{mib, mib, mib})})
		}
		add(program{name: "atomics", size: 512 * kib, depth: 4,
			batches: concat(many(fadd, 60, 8), many(cas, 60, 8), many(fadd, 60, 8))})
		for seed := range uint64(3) {
			mtu := []int{256, 1024, 4096}[seed]
			add(program{name: fmt.Sprintf("mixed-%d", seed), mtu: mtu, size: 512 * kib, depth: 4,
				batches: mixed(100+seed, 8, 16)})
		}
	}
	return list
}

// programCases returns the cases: each program over IPv4, and over IPv6 where that may matter.
func programCases() []testCase {
	again := map[string]bool{"send": true, "write": true, "read": true, "atomics": true, "uc": true, "ud": true,
		"mixed-3": true, "mtu-4096": true,
		"loss/mixed-1": true, "loss/send-1MiB": true, "loss/read-1MiB": true}
	var list []testCase
	for _, p := range programs() {
		if p.mtu == 0 {
			p.mtu = 1024
		}
		if p.depth == 0 {
			p.depth = 4
		}
		if p.timeout == 0 {
			p.timeout = time.Minute
		}
		families := []int{4}
		if again[p.name] {
			families = append(families, 6)
		}
		if p.name == "send" {
			families = append(families, 0)
		}
		for _, f := range families {
			p := p // a copy for each row
			p.family = f
			list = append(list, testCase{name: "verbs/" + p.name + "/" + familyName(f), timeout: p.timeout, network: p.network,
				run: p.run})
		}
	}
	return list
}

// each returns one operation per batch, of each length, at unaligned offsets.
func each(do verbs.WROpcode, lengths []int) (batches [][]op) {
	for i, n := range lengths {
		batches = append(batches, []op{{do: do, n: n, local: 61 + 3*i, remote: 1027 + 5*i, imm: 0x11223344 + uint32(i)<<28}})
	}
	return batches
}

// many returns count operations of n bytes in one batch, each with its own memory.
func many(do verbs.WROpcode, count, n int) [][]op {
	var ops []op
	for i := range count {
		o := op{do: do, n: n, local: i * (n + 3), remote: i*(n+3) + 1}
		if do == fadd || do == cas {
			// All on the same word, so that each result depends on the order.
			o = op{do: do, n: 8, local: 8 * i, remote: 4096, add: uint64(i) + 1<<60, swap: uint64(i)}
		}
		ops = append(ops, o)
	}
	return [][]op{ops}
}

func atomics() [][]op {
	return [][]op{
		{{do: write, n: 64, local: 1024, remote: 0}},
		{{do: fadd, n: 8, local: 8, remote: 0, add: 1}},
		{{do: fadd, n: 8, local: 16, remote: 0, add: ^uint64(0)}, {do: fadd, n: 8, local: 24, remote: 0, add: 1 << 63}},
		{{do: cas, n: 8, local: 32, remote: 8, add: 12345, swap: 1}}, // the comparand differs
		{{do: cas, n: 8, local: 40, remote: 8, match: true, swap: 77},
			{do: cas, n: 8, local: 48, remote: 8, add: 77, swap: 78}},
		{{do: fadd, n: 8, local: 64, remote: 64, add: 0}},
		{{do: fadd, n: 8, local: 56, remote: 64*kib - 8, add: 3}}, // the last word of the region
	}
}

// pieces returns requests with several SGEs at either end.
func pieces() [][]op {
	cut := [][2]int{{100, 1}, {200, 1023}, {3000, 0}, {4001, 2047}, {9000, 29}}
	return [][]op{
		{{do: send, pieces: cut, n: 3100, remote: 20000}},
		{{do: send, local: 30000, n: 3100, into: cut}},
		{{do: sendImm, pieces: cut, n: 3100, into: [][2]int{{1, 3}, {5000, 1024}, {8000, 2073}}, imm: 9}},
		{{do: write, pieces: cut, n: 3100, remote: 50001}},
		{{do: read, pieces: cut, n: 3100, remote: 40003}},
	}
}

// overQPs distributes the operations of the batches over the QPs in turn.
func overQPs(batches [][]op, qps int) (out [][]op) {
	for qp := range qps {
		for _, b := range batches {
			ops := append([]op(nil), b...)
			for i := range ops {
				ops[i].qp = qp
			}
			out = append(out, ops)
		}
	}
	return out
}

func concat(lists ...[][]op) (all [][]op) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// mixed returns count batches of n random operations that depend on seed. Within a batch each operation has
// its own memory at both ends, since a retried READ may see later writes; only atomics share a word.
func mixed(seed uint64, count, n int) (batches [][]op) {
	const slot, counter = 12 * kib, 200 * kib // the counter is behind 16 slots, in a region of at least 256 KiB
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := []verbs.WROpcode{send, sendImm, write, writeImm, read, fadd, cas}
	for range count {
		var ops []op
		for i := range n {
			o := op{do: kinds[r.IntN(len(kinds))], imm: r.Uint32(), local: i*slot + r.IntN(64), remote: i*slot + r.IntN(64)}
			o.n = []int{r.IntN(64), r.IntN(2000), r.IntN(slot - 64)}[r.IntN(3)]
			if o.do == fadd || o.do == cas {
				o.n, o.local, o.remote, o.add, o.swap, o.match = 8, i*slot, counter, r.Uint64(), r.Uint64(), r.IntN(2) == 0
			}
			ops = append(ops, o)
		}
		batches = append(batches, ops)
	}
	return batches
}
