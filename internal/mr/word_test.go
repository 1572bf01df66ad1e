package mr

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// The processor accesses aligned words only.
func TestWordsAreAligned(t *testing.T) {
	var words [3]uint64
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words)), 24)
	for at := range 17 {
		p := word(b[at : at+8 : at+8])
		if at%8 != 0 && p != nil || at%8 == 0 && p != &words[at/8] {
			t.Errorf("offset %d: %p, the memory begins at %p", at, p, &words)
		}
	}
}

// Only atomics on unaligned words wait for each other: a program's atomics on aligned ones do not take the lock.
func TestAtomicsThatTakeTheLock(t *testing.T) {
	for at, locked := range map[int]bool{0: false, 8: false, 1: true, 12: true} {
		for name, f := range map[string]func(b []byte){
			"fetch and add":    func(b []byte) { FetchAdd(b, 1) },
			"compare and swap": func(b []byte) { CompareSwap(b, 0, 1) },
			"set":              func(b []byte) { Set(b, 1) },
		} {
			var words [3]uint64
			done := make(chan struct{})
			unaligned.Lock()
			go func() {
				f(unsafe.Slice((*byte)(unsafe.Pointer(&words)), 24)[at:][:8])
				close(done)
			}()
			ended := false
			if locked {
				ended = endsWithin(done, 10*time.Millisecond)
			} else if ended = endsWithin(done, 20*time.Second); !ended {
				t.Errorf("%s at offset %d takes the lock", name, at)
			}
			if locked && ended {
				t.Errorf("%s at offset %d takes no lock", name, at)
			}
			unaligned.Unlock()
			<-done
		}
	}
}

// endsWithin reports whether the channel is closed within a time.
func endsWithin(done chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// contended calls f until the program has changed the word between two looks of f 1000 times, for a second at most.
// f reports whether it saw a change. The program adds 1 to the word all the time; contended returns how often.
func contended(word *uint64, f func() bool) (added uint64) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; !stop.Load(); added++ {
			atomic.AddUint64(word, 1)
		}
	})
	end := time.Now().Add(time.Second)
	for seen := 0; seen < 1000 && time.Now().Before(end); {
		if f() {
			seen++
		}
	}
	stop.Store(true)
	wg.Wait()
	return added
}

// A compare and swap that returns the compared value has stored, whatever the program does at that time.
func TestCompareSwapStoresOrFails(t *testing.T) {
	var word uint64
	b := unsafe.Slice((*byte)(unsafe.Pointer(&word)), 8)
	swapped := uint64(0)
	added := contended(&word, func() bool {
		v := Load(b)
		if compareSwap(b, v, v+1) != v {
			return true
		}
		swapped++
		return false
	})
	if word != added+swapped {
		t.Errorf("%d of %d additions and %d swaps", word, added, swapped)
	}
}

// Set stores also if the program changes the word at that time. The program's additions reach the low 32 bits only.
func TestSetAgainstTheCPU(t *testing.T) {
	var word uint64
	b := unsafe.Slice((*byte)(unsafe.Pointer(&word)), 8)
	round, lost := uint64(0), 0
	contended(&word, func() bool {
		before := Load(b)
		round++
		Set(b, round<<32)
		after := Load(b)
		if after>>32 != round {
			lost++
		}
		return uint32(before) != 0 && uint32(after) != 0
	})
	if lost > 0 {
		t.Errorf("%d of %d values were not stored", lost, round)
	}
}

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
