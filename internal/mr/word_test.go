package mr

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// A program that reads its memory while a peer's atomic changes it is correct: the race detector must not object,
// and no addition of the program may be lost.
func TestAtomicsAgainstTheCPU(t *testing.T) {
	const n = 10000
	var word uint64
	b := unsafe.Slice((*byte)(unsafe.Pointer(&word)), 8)
	binary.NativeEndian.PutUint64(b, 0) // the detector sees a plain write
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range n {
				fetchAdd(b, 1)
			}
		})
		wg.Go(func() {
			for range n {
				for v := Load(b); ; {
					old := compareSwap(b, v, v+1)
					if old == v {
						break
					}
					v = old
				}
			}
		})
		wg.Go(func() {
			for range n {
				atomic.AddUint64(&word, 1)
			}
		})
	}
	wg.Wait()
	if word != 6*n {
		t.Errorf("%d of %d additions", word, 6*n)
	}
	if old := compareSwap(b, 1, 2); old != 6*n || word != 6*n {
		t.Errorf("a comparison that fails: returned %d, stored %d", old, word)
	}
}

func TestAtomicsAreInvisibleToTheRaceDetector(t *testing.T) {
	var word uint64
	b := unsafe.Slice((*byte)(unsafe.Pointer(&word)), 8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000 {
			fetchAdd(b, 1)
			compareSwap(b, Load(b), 5)
		}
	})
	seen := uint64(0)
	for range 1000 {
		seen |= word // as a program does that waits for a peer's atomic
	}
	wg.Wait()
	_ = seen
}
