package cm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// The largest value of each parameter is accepted, the next one is not.
func TestEdgesOfConnectParams(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, set := range map[string]func(p *ConnectParams, more uint32){
		"QPN":             func(p *ConnectParams, more uint32) { p.QPN = 0xFFFFFF + more },
		"MTU":             func(p *ConnectParams, more uint32) { p.Path.MTU = 5 + uint8(more) },
		"retries":         func(p *ConnectParams, more uint32) { p.RetryCount = 7 + uint8(more) },
		"RNR retries":     func(p *ConnectParams, more uint32) { p.RNRRetry = 7 + uint8(more) },
		"remote time-out": func(p *ConnectParams, more uint32) { p.RemoteTimeout = 31 + uint8(more) },
		"local time-out":  func(p *ConnectParams, more uint32) { p.LocalTimeout = 31 + uint8(more) },
		"CM retries":      func(p *ConnectParams, more uint32) { p.MaxRetries = 15 + uint8(more) },
		"life time":       func(p *ConnectParams, more uint32) { p.Path.LifeTime = 31 + uint8(more) },
		"SL":              func(p *ConnectParams, more uint32) { p.Path.SL = 15 + uint8(more) },
		"rate":            func(p *ConnectParams, more uint32) { p.Path.Rate = 63 + uint8(more) },
		"flow label":      func(p *ConnectParams, more uint32) { p.Path.FlowLabel = 0xFFFFF + more },
	} {
		for more := range uint32(2) {
			p := ConnectParams{QPN: 1, Transport: cmmsg.RC}
			p.Path.Src, p.Path.Dst, p.Path.MTU = a, b, 3
			set(&p, more)
			if err := p.check("connect"); (err != nil) != (more == 1) || err != nil && !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s, %d above the largest value: %v", name, more, err)
			}
		}
	}
	for _, addrs := range [][2]netip.Addr{{a, {}}, {{}, b}, {a, netip.MustParseAddr("2001:db8::1")}} {
		p := Path{}
		p.Src, p.Dst = addrs[0], addrs[1]
		if err := p.check("connect"); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("path from %v to %v: %v", addrs[0], addrs[1], err)
		}
	}
}

// A path with at most one hop stays in the subnet and has no LID for routers.
func TestHopLimitOfTheSubnet(t *testing.T) {
	for limit, local := range map[uint8]bool{0: true, 1: true, 2: false, 64: false} {
		p := Path{}
		p.HopLimit = limit
		f := p.fields(17)
		if f.SubnetLocal != local || (f.LocalLID == cmmsg.LIDPermissive) == local || f.LocalLID != f.RemoteLID {
			t.Errorf("hop limit %d: %+v", limit, f)
		}
	}
}

// A request that was dropped in a flood is a repetition from 0.3 s to 30 s after the first drop. Others are none, even
// if they have its place in the table.
func TestRefusals(t *testing.T) {
	f := refusals{key: 0x1234567890abcdef}
	request := func(id uint32) uint64 {
		m := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindREQ, 1)
		cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{LocalID: id, LocalQPN: id & 0xFFFFFF, LocalGUID: 0x77, MTU: 3})
		return f.hash(m)
	}
	for _, start := range []int64{0, 400 * 1000 * millisecond} { // the clock of the table wraps at 409.6 s
		f.table.Store(nil)
		r := request(1)
		if f.has(start, r) {
			t.Fatal("an empty table has it")
		}
		f.add(start, r)
		f.add(start+29000*millisecond, r) // keeps the time of the first
		for after, want := range map[int64]bool{0: false, 200: false, 300: true, 1000: true, 30000: true, 30100: false} {
			if got := f.has(start+after*millisecond, r); got != want {
				t.Errorf("%d ms later: %v, want %v", after, got, want)
			}
		}
		f.add(start+30000*millisecond, r) // too old: this is the first of a new series
		for after, want := range map[int64]bool{30200: false, 30300: true, 60000: true, 60100: false} {
			if got := f.has(start+after*millisecond, r); got != want {
				t.Errorf("%d ms after the first of two: %v, want %v", after, got, want)
			}
		}
		// Another request in the same place.
		i, tag := f.at(r)
		other := uint32(2)
		for ; ; other++ {
			if j, g := f.at(request(other)); i == j && g != tag {
				break
			}
		}
		if f.has(start+31000*millisecond, request(other)) {
			t.Error("the table has a request that it has not seen")
		}
		f.add(start+31000*millisecond, request(other)) // takes the place
		if f.has(start+31500*millisecond, r) || !f.has(start+31500*millisecond, request(other)) {
			t.Error("the older of two requests with one place stays")
		}
	}
}

// Requests that differ in one field have places and tags that are spread.
func TestRefusalsAreSpread(t *testing.T) {
	f := refusals{key: 1}
	seen := map[[2]uint32]bool{}
	tags := map[uint32]bool{}
	for id := range uint32(1000) {
		m := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindREQ, 1)
		cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{LocalID: id, LocalGUID: 0x77, MTU: 3})
		i, tag := f.at(f.hash(m))
		if i < 0 || i >= refusalsLen || tag>>20 != 0 || tag == 0 {
			t.Fatalf("place %d, tag %#x", i, tag)
		}
		seen[[2]uint32{uint32(i), tag}] = true
		tags[tag] = true
	}
	if len(seen) != 1000 || len(tags) < 990 {
		t.Errorf("%d places with tags and %d tags of 1000 requests", len(seen), len(tags))
	}
}

// A batch keeps its memory.
func TestBatchKeepsItsMemory(t *testing.T) {
	var b Batch
	path := Path{}
	first := b.add(&path.Path)
	b.Reset()
	if b.add(&path.Path) != first {
		t.Error("the second datagram has memory of its own")
	}
	if n := testing.AllocsPerRun(100, func() { b.Reset(); b.add(&path.Path) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An ID is never 0 and never that of another ID, whatever the source of numbers says.
func TestT_05_IDsThatAreTaken(t *testing.T) {
	m := New(Config{Seed: [32]byte{1}})
	numbers := []uint32{0, 7, 7, 0, 8}
	m.newID = func() uint32 {
		n := numbers[0]
		numbers = numbers[1:]
		return n
	}
	a, b := m.NewID(nil), m.NewID(nil)
	if !m.enroll(a) || !m.enroll(b) || a.localID != 7 || b.localID != 8 {
		t.Errorf("IDs %d and %d, want 7 and 8", a.localID, b.localID)
	}
}
