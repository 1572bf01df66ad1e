package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"
)

// memory allocates n bytes at the beginning of a cache line.
func memory(n int) []byte {
	b := make([]byte, n+Line)
	off := -uintptr(unsafe.Pointer(&b[0])) & (Line - 1)
	return b[off : int(off)+n : int(off)+n]
}

func pair(t testing.TB, n int) (*Producer, *Consumer, []byte, *atomic.Uint64) {
	t.Helper()
	mem, head := memory(n), new(atomic.Uint64)
	p, err := NewProducer(mem, head)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(mem, head)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, mem, head
}

func TestSizes(t *testing.T) {
	for _, n := range []int{0, 64, 2048, 4095, 4097, 6144} {
		if _, err := NewProducer(memory(n), nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a producer of %d bytes: %v", n, err)
		}
		if _, err := NewConsumer(memory(n), nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a consumer of %d bytes: %v", n, err)
		}
	}
	if _, err := NewProducer(memory(8192)[8:4104], nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("memory in the middle of a line: %v", err)
	}
}

func TestNothingIsSeenBeforePublish(t *testing.T) {
	p, c, _, _ := pair(t, MinSize)
	for round := range 200 {
		for i := range 3 {
			copy(p.Put(1, uint32(i), 100), bytes.Repeat([]byte{byte(round + i)}, 100))
		}
		if _, ok := c.Next(); ok || c.Ready() {
			t.Fatal("a record before Publish")
		}
		p.Publish()
		for i := range 3 {
			r, ok := c.Next()
			if !ok || r.Kind != 1 || r.Aux != uint32(i) || len(r.Data) != 100 || r.Data[99] != byte(round+i) {
				t.Fatalf("round %d: %+v %v", round, r, ok)
			}
		}
		if _, ok := c.Next(); ok {
			t.Fatal("a fourth record")
		}
		c.Release(true)
		if !p.Empty() {
			t.Fatal("not empty")
		}
	}
}

func TestFull(t *testing.T) {
	p, c, _, _ := pair(t, MinSize)
	n := 0
	for p.Put(1, 0, 8) != nil {
		n++
	}
	if want := MinSize/Line - 1; n != want {
		t.Errorf("%d records fit, want %d", n, want)
	}
	p.Publish()
	if p.Put(1, 0, 8) != nil {
		t.Error("room without a Release")
	}
	if p.Empty() {
		t.Error("empty")
	}
	c.Next()
	c.Release(true)
	if p.Put(1, 0, 8) == nil {
		t.Error("no room after a Release")
	}
	if p.Put(1, 0, 8) != nil {
		t.Error("room for two")
	}
}

// The producer writes only to space that the consumer has released: records that were not released keep their bytes.
func TestUnreleasedRecordsStay(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	p, c, mem, head := pair(t, MinSize)
	type kept struct {
		at   uint64
		data []byte
	}
	var unreleased []kept
	for i := range 20000 {
		n := rnd.IntN(200)
		if b := p.Put(1, uint32(i), n); b != nil {
			for j := range b {
				b[j] = byte(i + j)
			}
		}
		if rnd.IntN(3) == 0 {
			p.Publish()
		}
		for rnd.IntN(2) == 0 {
			at := c.Position()
			r, ok := c.Next()
			if !ok {
				break
			}
			if r.Data != nil {
				unreleased = append(unreleased, kept{at, bytes.Clone(mem[at%MinSize : at%MinSize+8])})
			}
		}
		if rnd.IntN(8) == 0 {
			c.Release(true)
			unreleased = unreleased[:0]
		}
		for _, k := range unreleased {
			if k.at >= head.Load() && !bytes.Equal(mem[k.at%MinSize:k.at%MinSize+8], k.data) {
				t.Fatalf("the word at %d has changed before the release", k.at)
			}
		}
		if c.Err() != nil || p.Err() != nil {
			t.Fatal(c.Err(), p.Err())
		}
	}
}

func TestReleaseRarelyStoresTheHead(t *testing.T) {
	p, c, _, head := pair(t, MinSize)
	stores, last := 0, uint64(0)
	for range 1000 {
		p.Put(1, 0, 8)
		p.Publish()
		c.Next()
		c.Release(false)
		if h := head.Load(); h != last {
			stores, last = stores+1, h
		}
	}
	if stores == 0 || stores > 1000/(MinSize/8/Line)+1 {
		t.Errorf("%d stores of the head for 1000 records", stores)
	}
}

// Two goroutines exchange records of all lengths: they arrive in order and complete.
func TestStream(t *testing.T) {
	p, c, _, _ := pair(t, 1<<14)
	const records = 20000
	go func() {
		rnd := rand.New(rand.NewPCG(1, 2))
		for i := range records {
			n := 8 + rnd.IntN(p.MaxRecord()-8)
			if i%4 != 0 {
				n = 8 + rnd.IntN(100)
			}
			var b []byte
			for b = p.Put(Kind(1+i%3), uint32(i), n); b == nil; b = p.Put(Kind(1+i%3), uint32(i), n) {
				p.Publish()
			}
			binary.NativeEndian.PutUint64(b, uint64(i))
			for j := 8; j < n; j++ {
				b[j] = byte(i + j)
			}
			if i%5 == 0 {
				p.Publish()
			}
		}
		p.Publish()
	}()
	for i := 0; i < records; {
		r, ok := c.Next()
		if !ok {
			if err := c.Err(); err != nil {
				t.Fatal(err)
			}
			c.Release(true)
			continue
		}
		if r.Kind != Kind(1+i%3) || r.Aux != uint32(i)&MaxAux || binary.NativeEndian.Uint64(r.Data) != uint64(i) {
			t.Fatalf("record %d: kind %d, aux %d", i, r.Kind, r.Aux)
		}
		for j := 8; j < len(r.Data); j++ {
			if r.Data[j] != byte(i+j) {
				t.Fatalf("record %d: byte %d", i, j)
			}
		}
		c.Release(false)
		i++
	}
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

func TestInvalidHead(t *testing.T) {
	for name, bad := range map[string]uint64{
		"not a line":     8,
		"ahead":          10 * Line,
		"far ahead":      1 << 63,
		"before the end": ^uint64(0) &^ (Line - 1),
	} {
		p, _, _, head := pair(t, MinSize)
		for range 5 {
			p.Put(1, 0, 8)
		}
		p.Publish()
		head.Store(bad)
		for p.Put(1, 0, 8) != nil {
		}
		if !errors.Is(p.Err(), ErrCorrupt) {
			t.Errorf("%s: %v", name, p.Err())
		}
		head.Store(0)
		if p.Put(1, 0, 1000) != nil || p.Err() == nil {
			t.Errorf("%s: the error is forgotten", name)
		}
	}
}

func TestInvalidRecord(t *testing.T) {
	for name, word := range map[string]uint64{
		"no kind":          makeWord(8, 0, 0) | 1<<50,
		"behind the end":   makeWord(MinSize, 1, 0),
		"huge":             makeWord(0, 1, 0) | 0xffffffff,
		"nearly 2^32":      makeWord(0, 1, 0) | 0xfffffff8,
		"a skip with data": makeWord(1, skip, 0),
	} {
		_, c, mem, _ := pair(t, MinSize)
		binary.NativeEndian.PutUint64(mem, word)
		if r, ok := c.Next(); ok || !errors.Is(c.Err(), ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, r, c.Err())
		}
		binary.NativeEndian.PutUint64(mem, makeWord(8, 1, 0))
		if _, ok := c.Next(); ok || c.Ready() {
			t.Errorf("%s: the error is forgotten", name)
		}
	}
}

// With a producer that never stops, the consumer stops after one round.
func TestEndlessProducer(t *testing.T) {
	_, c, mem, _ := pair(t, MinSize)
	for off := 0; off < len(mem); off += Line {
		binary.NativeEndian.PutUint64(mem[off:], makeWord(8, 1, 0))
	}
	n := 0
	for {
		if _, ok := c.Next(); !ok {
			break
		}
		n++
	}
	if n != MinSize/Line || c.Err() == nil {
		t.Errorf("%d records, %v", n, c.Err())
	}
}

// FuzzConsumer gives the consumer memory with any content: returned records lie in it, and the consumer terminates.
func FuzzConsumer(f *testing.F) {
	p, _, mem, _ := pair(f, MinSize)
	for i := range 20 {
		p.Put(Kind(1+i%3), uint32(i), i*8)
	}
	p.Publish()
	f.Add(bytes.Clone(mem), uint8(3))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, uint8(0))
	f.Fuzz(func(t *testing.T, content []byte, release uint8) {
		_, c, mem, head := pair(t, MinSize)
		copy(mem, content)
		for n := 0; ; n++ {
			r, ok := c.Next()
			if !ok {
				break
			}
			if n > 4*MinSize/Line {
				return // the same content again
			}
			if len(r.Data) > MinSize {
				t.Fatalf("%d bytes", len(r.Data))
			}
			for i := range r.Data {
				_ = r.Data[i]
			}
			if release > 0 && n%int(release) == 0 {
				c.Release(n%2 == 0)
				if head.Load()%Line != 0 {
					t.Fatal("the head is not at a line")
				}
			}
		}
	})
}

func BenchmarkPutNext(b *testing.B) {
	p, c, _, _ := pair(b, 1<<18)
	b.ReportAllocs()
	for b.Loop() {
		p.Put(1, 0, 28)
		p.Publish()
		c.Next()
		c.Release(false)
	}
}

// TestExtend: a record that has room left in its lines gets more bytes, kind and aux, until it is published.
func TestExtend(t *testing.T) {
	for _, before := range []int{0, 1} { // records in front of it
		p, c, _, _ := pair(t, MinSize)
		for round := range 300 { // around the end of the ring, too
			for range before {
				p.Put(3, 0, 10)
			}
			if n := p.LastLen(); n != 10*before {
				t.Fatalf("%d bytes in the last record", n)
			}
			first := p.Put(1, 7, 20)
			copy(first, bytes.Repeat([]byte{byte(round)}, 20))
			if p.Extend(2, 8, Line-wordLen-19) != nil {
				t.Fatal("extended beyond its line")
			}
			copy(p.Extend(2, 9, 30), bytes.Repeat([]byte{byte(round + 1)}, 30))
			if n := p.LastLen(); n != 50 {
				t.Fatalf("%d bytes in the last record", n)
			}
			if _, ok := c.Next(); ok {
				t.Fatal("a record before Publish")
			}
			p.Publish()
			if p.LastLen() != 0 || p.Extend(2, 9, 1) != nil {
				t.Fatal("extended after Publish")
			}
			for range before {
				c.Next()
			}
			r, ok := c.Next()
			want := append(bytes.Repeat([]byte{byte(round)}, 20), bytes.Repeat([]byte{byte(round + 1)}, 30)...)
			if !ok || r.Kind != 2 || r.Aux != 9 || !bytes.Equal(r.Data, want) {
				t.Fatalf("round %d: %v, %+v", round, ok, r)
			}
			c.Release(true)
		}
	}
}

// TestWaits: a record waits from Put to Publish, wherever in the memory it is.
func TestWaits(t *testing.T) {
	p, c, _, _ := pair(t, MinSize)
	if p.Waits(p.Position()) {
		t.Error("an empty ring has a record")
	}
	for i := range 200 {
		n := i * 37 % 300
		if p.Put(1, 0, n) == nil {
			t.Fatalf("record %d: no room", i)
		}
		at := p.Position()
		if !p.Waits(at) {
			t.Errorf("record %d does not wait", i)
		}
		if p.Put(1, 0, 8) == nil || !p.Waits(at) || p.Position() == at {
			t.Errorf("record %d does not wait when it has a follower", i)
		}
		p.Publish()
		if p.Waits(at) || p.Waits(p.Position()) {
			t.Errorf("record %d waits after Publish", i)
		}
		for {
			if _, ok := c.Next(); !ok {
				break
			}
		}
		c.Release(true)
	}
}
