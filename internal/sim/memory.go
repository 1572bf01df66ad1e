package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// The memory of an end of an RC pair, in one region:
//
//	guard | source | guard | target | guard | landing | guard | receives | guard | words | guard
//
// source is random and never changes. The peer WRITEs to target. Data of READs goes to landing, that of SENDs to
// receives; atomics of the peer use words. Guards must never change.
const (
	guardSize = 64
	sourceSz  = 32 << 10
	targetSz  = 32 << 10
	landSize  = 64 << 10
	recvSize  = 12 << 10 // of one receive; only a SEND that must fail is longer
	recvSlots = 8
	wordSlots = 4

	sourceAt = guardSize
	targetAt = sourceAt + sourceSz + guardSize
	landAt   = targetAt + targetSz + guardSize
	recvAt   = landAt + landSize + guardSize
	wordAt   = recvAt + recvSlots*recvSize + guardSize
	memSize  = wordAt + wordSlots*8 + guardSize

	guardByte = 0xA5
)

var guards = [...]int{
	0, targetAt - guardSize, landAt - guardSize, recvAt - guardSize, wordAt - guardSize, memSize - guardSize,
}

// noise is the source of all random data.
var noise = sync.OnceValue(func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
})

// memories are buffers of one length that are kept for later runs. Those of AllocBuffer are cheap to register, and
// between devices that share memory long messages may go by reference.
type memories struct {
	size int
	mu   sync.Mutex
	free [][]byte
}

func (m *memories) get() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.free); n > 0 {
		b := m.free[n-1]
		m.free = m.free[:n-1]
		return b, nil
	}
	return verbs.AllocBuffer(m.size)
}

func (m *memories) put(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, b)
}

// ends are the memories of the ends of RC pairs.
var ends = memories{size: memSize}

// newMemory returns initialized memory for an end.
func newMemory(r *rand.Rand) ([]byte, error) {
	m, err := ends.get()
	if err != nil {
		return nil, err
	}
	m[0] = guardByte
	for n := 1; n < memSize; n *= 2 {
		copy(m[n:], m[:n])
	}
	copy(m[sourceAt:sourceAt+sourceSz], noise()[r.IntN(len(noise())-sourceSz):])
	clear(m[targetAt : targetAt+targetSz])
	clear(m[wordAt : wordAt+8*wordSlots])
	return m, nil
}

// An image is the expected content of the target and the words of an end.
type image struct {
	target [targetSz]byte
	words  [wordSlots]uint64
}

var images = sync.Pool{New: func() any { return new(image) }}

func newImage() *image {
	m := images.Get().(*image)
	*m = image{}
	return m
}

// An effect is the change that a request makes to the image of the peer.
type effect struct {
	at      int
	data    []byte // bytes of target from at on
	hasWord bool
	word    int // index of the word that gets value
	value   uint64
}

func (m *image) apply(e *effect) {
	copy(m.target[e.at:], e.data)
	if e.hasWord {
		m.words[e.word] = e.value
	}
}

// take sets the image to the content of mem.
func (m *image) take(mem []byte) {
	copy(m.target[:], mem[targetAt:])
	for i := range m.words {
		m.words[i] = wordOf(mem, i)
	}
}

func wordOf(mem []byte, i int) uint64 { return binary.NativeEndian.Uint64(mem[wordAt+8*i:]) }

// differs returns an error with the first difference between mem and the image, nil if there is none.
func (m *image) differs(mem []byte) error {
	if got := mem[targetAt : targetAt+targetSz]; !bytes.Equal(got, m.target[:]) {
		return fmt.Errorf("memory differs from what was written, at byte %d", differ(got, m.target[:]))
	}
	for i, want := range m.words {
		if got := wordOf(mem, i); got != want {
			return fmt.Errorf("word %d is %#x, want %#x", i, got, want)
		}
	}
	return nil
}

// partly reports whether mem is the image with the first bytes of e's data in place, or all of them.
func (m *image) partly(mem []byte, e *effect) bool {
	for i, want := range m.words {
		if wordOf(mem, i) != want {
			return false
		}
	}
	got, end := mem[targetAt:targetAt+targetSz], e.at+len(e.data)
	if !bytes.Equal(got[:e.at], m.target[:e.at]) || !bytes.Equal(got[end:], m.target[end:]) {
		return false
	}
	// The longest prefix of the data that is in place; no data may be behind it. Bytes that are equal in both
	// count as either.
	k := differ(got[e.at:end], e.data)
	return bytes.Equal(got[e.at+k:end], m.target[e.at+k:end])
}

func checkGuards(mem []byte) error {
	for _, at := range guards {
		for i, b := range mem[at : at+guardSize] {
			if b != guardByte {
				return fmt.Errorf("a byte outside of all targets was written, at offset %d", at+i)
			}
		}
	}
	return nil
}

// differ returns the index of the first byte in which a and b differ.
func differ(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
