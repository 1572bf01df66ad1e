package iwarp_test

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// A program may poll, stop without a word, and wait for an event: no message stays in a socket.
func TestMessagesAfterPollingHasStopped(t *testing.T) {
	const rounds = 300
	c, s := connect(t)
	r := rand.New(rand.NewPCG(1, 2))
	var wcs [4]verbs.WC
	polls := func() {
		for d, start := time.Duration(r.IntN(3000))*time.Microsecond, time.Now(); time.Since(start) < d; runtime.Gosched() {
			_, err := s.RecvCQ().Poll(wcs[:])
			must(t, err)
		}
	}
	for i := range rounds {
		polls()
		*(*uint64)(unsafe.Pointer(&c.mem[0])) = uint64(i + 1)
		must(t, c.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, 8), RemoteAddr: s.mr.Addr() + 8,
			RKey: s.mr.RKey()}))
		word := (*uint64)(unsafe.Pointer(&s.mem[8]))
		for start := time.Now(); atomic.LoadUint64(word) != uint64(i+1); time.Sleep(20 * time.Microsecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("round %d: nothing has arrived", i)
			}
		}
		c.wait(c.SendCQ())
	}
}

// A program that polls memory which a WRITE over TCP changes is correct: the race detector must not object.
func TestPollingOfWrittenMemory(t *testing.T) {
	t.Setenv("VERBENA_SHM", "0")
	const step = 4 << 10
	c, s := connect(t)
	for i := range byte(4) {
		fill(c.mem, i)
		must(t, c.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, memSize),
			RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()}))
		start := time.Now()
		for at := 0; at < memSize; at += step {
			want, got := *(*uint64)(unsafe.Pointer(&c.mem[at])), (*uint64)(unsafe.Pointer(&s.mem[at]))
			for ; atomic.LoadUint64(got) != want; runtime.Gosched() {
				if time.Since(start) > 20*time.Second {
					t.Fatalf("WRITE %d has not arrived at %d", i, at)
				}
			}
		}
		c.wait(c.SendCQ())
	}
}
