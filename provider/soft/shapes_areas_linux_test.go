package soft_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// area is a region of an end, with the bytes that the test expects in it.
type area struct {
	kind string
	mem  []byte // nil: device memory
	dm   *verbs.DM
	want []byte
	lkey uint32
	base uint64 // of local addresses
	rkey uint32
	peer uint64   // of the addresses of peers
	used [][2]int // what is written in this round
	any  [][2]int // what has undefined bytes
}

// now returns the bytes of the area.
func (a *area) now(tb testing.TB) []byte {
	if a.dm == nil {
		return a.mem
	}
	b := make([]byte, len(a.want))
	must(tb, a.dm.CopyFrom(b, 0))
	return b
}

func (a *area) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: a.base + uint64(off), Length: uint32(n), LKey: a.lkey}
}

const shapeAccess = allAccess | verbs.AccessFlushGlobal

// areas makes an area of n random bytes of each kind of memory.
func (e *end) areas(r *rand.Rand, n int) (all []*area) {
	add := func(kind string, mem []byte, access verbs.AccessFlags) *area {
		mr := get(e.pd.RegMR(mem, access))(e.tb)
		e.tb.Cleanup(func() { must(e.tb, mr.Close()) })
		all = append(all, &area{kind, mem, nil, randomBytes(r, n), mr.LKey(), mr.Addr(), mr.RKey(), mr.Addr(), nil, nil})
		copy(mem, all[len(all)-1].want)
		return all[len(all)-1]
	}
	add("heap", make([]byte, n), shapeAccess)
	file, part := get(verbs.AllocBuffer(n))(e.tb), get(verbs.AllocBuffer(n+9000))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, verbs.FreeBuffer(file)); must(e.tb, verbs.FreeBuffer(part)) })
	add("file", file, shapeAccess)
	add("part of a file, zero-based", part[4099:4099+n], shapeAccess|verbs.AccessZeroBased)

	whole := get(e.pd.RegMR(nil, verbs.AccessOnDemand|verbs.AccessLocalWrite))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, whole.Close()) })
	add("whole address space", make([]byte, n), shapeAccess).lkey = whole.LKey()

	dm := get(e.ctx.AllocDM(verbs.AllocDMAttr{Length: uint64(n)}))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, dm.Close()) })
	mr := get(e.pd.RegDMMR(dm, 0, uint64(n), shapeAccess|verbs.AccessZeroBased))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, mr.Close()) })
	a := &area{"device memory", nil, dm, randomBytes(r, n), mr.LKey(), 0, mr.RKey(), 0, nil, nil}
	must(e.tb, dm.CopyTo(0, a.want))
	return append(all, a)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n+7)
	for i := 0; i < n; i += 8 {
		binary.NativeEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n:n]
}

// shaper makes requests of random shapes between two ends. Each end sends from src and receives in dst.
type shaper struct {
	*testing.T
	r        *rand.Rand
	ends     [2]*end
	src, dst [2][]*area
	mtu      int
	log      []string
}

func newShaper(t *testing.T, a, b *end, seed uint64, from, to int) *shaper {
	s := &shaper{T: t, r: rand.New(rand.NewPCG(seed, 1)), ends: [2]*end{a, b}}
	for i, e := range s.ends {
		s.src[i], s.dst[i] = e.areas(s.r, from), e.areas(s.r, to)
	}
	return s
}

// begin begins a round.
func (s *shaper) begin() {
	s.log = s.log[:0]
	for i := range s.ends {
		for _, a := range slices.Concat(s.src[i], s.dst[i]) {
			a.used, a.any = a.used[:0], a.any[:0]
		}
	}
}

func (s *shaper) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// fail ends the test, with the requests of the round.
func (s *shaper) fail(format string, args ...any) {
	s.Helper()
	for _, l := range s.log {
		s.Log(l)
	}
	s.Fatalf(format, args...)
}

func show(list []verbs.SGE) (text string) {
	for _, g := range list {
		text += fmt.Sprintf(" %#x+%d", g.Addr, g.Length)
	}
	return text
}

// length returns the length of a message, at most most: often one at which the packets change their form.
func (s *shaper) length(most int) int {
	n := s.r.IntN(3000)
	switch s.r.IntN(8) {
	case 0:
		n = s.r.IntN(20)
	case 1:
		n = 240 + s.r.IntN(40)
	case 2:
		n = 490 + s.r.IntN(40)
	case 3:
		n = s.mtu*(1+s.r.IntN(4)) - 2 + s.r.IntN(5)
	case 4:
		n = 4096<<s.r.IntN(6) - 2 + s.r.IntN(5)
	case 5:
		n = s.r.IntN(most + 1)
	}
	return min(n, most)
}

// cut divides n into 1 to 6 numbers, often one, of which some are 0.
func (s *shaper) cut(n int) (parts []int) {
	for k := s.r.IntN(10) - 4; k > 0; k-- {
		part := min(n, s.r.IntN(50))
		switch s.r.IntN(4) {
		case 0:
			part = 0
		case 1:
			part = s.r.IntN(n + 1)
		}
		parts, n = append(parts, part), n-part
	}
	return append(parts, n)
}

// empty is an SGE without bytes, whose key nothing checks.
var empty = verbs.SGE{Addr: 1, LKey: 0x7ffffff0}

// source returns SGEs of n bytes of end i, and the bytes.
func (s *shaper) source(i, n int) (list []verbs.SGE, data []byte) {
	for _, part := range s.cut(n) {
		if part == 0 {
			list = append(list, empty)
			continue
		}
		a := s.src[i][s.r.IntN(len(s.src[i]))]
		off := s.r.IntN(len(a.want) - part + 1)
		list, data = append(list, a.sge(off, part)), append(data, a.want[off:off+part]...)
	}
	return list, data
}

// piece is n bytes of an area.
type piece struct {
	*area
	off, n int
}

// free returns n bytes of an area of list that nothing else of the round uses, at a multiple of align in the addresses
// of peers.
func (s *shaper) free(list []*area, n, align int) piece {
	s.Helper()
	for range 1000 {
		a := list[s.r.IntN(len(list))]
		off := s.r.IntN(len(a.want) - n + 1)
		off -= int((a.peer + uint64(off)) % uint64(align))
		taken := func(u [2]int) bool { return off < u[1] && u[0] < off+n }
		if off >= 0 && !slices.ContainsFunc(a.used, taken) {
			a.used = append(a.used, [2]int{off, off + n})
			return piece{a, off, n}
		}
	}
	s.fail("no room for %d bytes", n)
	return piece{}
}

// sink returns SGEs for n bytes of end i.
func (s *shaper) sink(i, n int) (list []verbs.SGE, to []piece) {
	s.Helper()
	for _, part := range s.cut(n) {
		if part == 0 {
			list = append(list, empty)
			continue
		}
		p := s.free(s.dst[i], part, 1)
		list, to = append(list, p.sge(p.off, part)), append(to, p)
	}
	return list, to
}

// expect makes data the expected bytes of pieces.
func expect(to []piece, data []byte) {
	for _, p := range to {
		data = data[copy(p.want[p.off:p.off+p.n], data):]
	}
}

// undefined makes the first n bytes of pieces undefined.
func undefined(to []piece, n int) {
	for _, p := range to {
		k := min(n, p.n)
		p.any = append(p.any, [2]int{p.off, p.off + k})
		n -= k
	}
}

// check compares all bytes of all areas with those that are expected.
func (s *shaper) check() {
	s.Helper()
	for i := range s.ends {
		for _, a := range slices.Concat(s.src[i], s.dst[i]) {
			now := a.now(s)
			for _, u := range a.any {
				copy(a.want[u[0]:u[1]], now[u[0]:u[1]])
			}
			if bytes.Equal(now, a.want) {
				continue
			}
			at := 0
			for now[at] == a.want[at] {
				at++
			}
			s.fail("end %d, %s: byte %d, address %#x, is %#x, want %#x", i, a.kind, at, a.base+uint64(at), now[at], a.want[at])
		}
	}
}
