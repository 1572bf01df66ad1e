//go:build linux && (amd64 || arm64)

package hw_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

// opened opens the device that the environment names.
func opened(t testing.TB) *verbs.Context {
	name := os.Getenv(testDevice)
	if name == "" {
		t.Skip(testDevice + " names no device")
	}
	vctx, err := verbs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return vctx
}

// pair is two connected QPs of a device, with a region.
type pair struct {
	vctx   *verbs.Context
	pd     *verbs.PD
	cq     *verbs.CQ
	buf    []byte
	mr     *verbs.MR
	qa, qb *verbs.QP
}

func must[V any](v V, err error) func(t testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newPair(t testing.TB, buf []byte) *pair {
	t.Helper()
	return newPairWith(t, buf, nil)
}

// newPairWith is newPair with options of the CQ.
func newPairWith(t testing.TB, buf []byte, opts *verbs.CQOptions) *pair {
	t.Helper()
	p := &pair{vctx: opened(t), buf: buf}
	p.pd = must(p.vctx.AllocPD())(t)
	p.cq = must(p.vctx.CreateCQ(256, opts))(t)
	p.mr = must(p.pd.RegMR(p.buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead))(t)
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: p.cq, RecvCQ: p.cq,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	a, b := init, init
	p.qa, p.qb = must(p.pd.CreateQP(&a))(t), must(p.pd.CreateQP(&b))(t)
	ia, ib := must(p.qa.LocalInfo())(t), must(p.qb.LocalInfo())(t)
	for _, err := range []error{p.qa.Connect(ib, nil), p.qb.Connect(ia, nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *pair) close(t testing.TB) {
	t.Helper()
	for _, c := range []interface{ Close() error }{p.qa, p.qb, p.mr, p.cq, p.pd, p.vctx} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// message sends n bytes from the start of the region to its middle, and waits for both completions.
func (p *pair) message(t testing.TB, n int) {
	t.Helper()
	half := len(p.buf) / 2
	if err := p.qb.PostRecv(verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{p.mr.SGE(half, n)}}); err != nil {
		t.Fatal(err)
	}
	wr := verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.mr.SGE(0, n)}}
	if err := p.qa.PostSend(wr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wcs [2]verbs.WC
	for got := 0; got < 2; {
		k, err := p.cq.Wait(ctx, wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		for i := range wcs[:k] {
			if err := wcs[i].Err(); err != nil {
				t.Fatal(err)
			}
		}
		got += k
	}
	if !bytes.Equal(p.buf[:n], p.buf[half:half+n]) {
		t.Fatal("the message differs")
	}
}

// descriptors returns the number of this process's descriptors.
func descriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// locked returns the locked memory of this process in KiB.
func locked(t testing.TB) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"VmPin:", "VmLck:"} {
		_, rest, _ := bytes.Cut(b, []byte(name))
		if f := bytes.Fields(rest); len(f) > 0 {
			if n, _ := strconv.Atoi(string(f[0])); n > 0 {
				return n
			}
		}
	}
	return 0
}

// TestRoundsLeakNothing makes, uses and closes everything many times. ROUNDS in the environment overrides the number.
func TestRoundsLeakNothing(t *testing.T) {
	opened(t).Close()
	rounds := 1000
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	one := func() {
		p := newPair(t, make([]byte, 1<<16))
		p.message(t, 1000)
		p.close(t)
	}
	one()
	fds, mem, routines := descriptors(t), locked(t), runtime.NumGoroutine()
	for range rounds {
		one()
	}
	if n := descriptors(t); n > fds {
		t.Errorf("%d descriptors, before %d", n, fds)
	}
	if n := locked(t); n > mem {
		t.Errorf("%d KiB of locked memory, before %d", n, mem)
	}
	if n := runtime.NumGoroutine(); n > routines {
		t.Errorf("%d goroutines, before %d", n, routines)
	}
}

// TestMemory registers memory of each kind and sends from it.
func TestMemory(t *testing.T) {
	own := must(verbs.AllocBuffer(1 << 16))(t)
	mapped := mapFile(t, 1<<16)
	for name, buf := range map[string][]byte{"heap": make([]byte, 1<<16), "small": make([]byte, 100), "AllocBuffer": own,
		"file": mapped} {
		p := newPair(t, buf)
		for i := range buf {
			buf[i] = byte(i * 7)
		}
		for range 10 { // the collector neither moves nor frees the memory
			runtime.GC()
			garbage(buf)
			p.message(t, len(buf)/2)
		}
		p.close(t)
		t.Log(name)
	}
	if err := verbs.FreeBuffer(own); err != nil {
		t.Error(err)
	}
}

// garbage makes the heap busy.
func garbage(like []byte) {
	var list [][]byte
	for range 100 {
		list = append(list, bytes.Clone(like))
	}
	runtime.KeepAlive(list)
}

// TestNoAllocation posts, polls and requests events without allocating.
func TestNoAllocation(t *testing.T) {
	p := newPair(t, make([]byte, 1<<12))
	defer p.close(t)
	wcs := make([]verbs.WC, 16)
	sge := []verbs.SGE{p.mr.SGE(0, 8)}
	recv := []verbs.RecvWR{{WRID: 1, SGList: sge}}
	send := []verbs.SendWR{{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge},
		{WRID: 2, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline, Inline: p.buf[:8],
			RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}}
	n := testing.AllocsPerRun(200, func() {
		if err := p.qb.PostRecv(recv...); err != nil {
			t.Fatal(err)
		}
		if err := p.cq.ReqNotify(false); err != nil {
			t.Fatal(err)
		}
		if err := p.qa.PostSend(send...); err != nil {
			t.Fatal(err)
		}
		for got, start := 0, time.Now(); got < 3; {
			k, err := p.cq.Poll(wcs)
			if got += k; err != nil || time.Since(start) > 20*time.Second {
				t.Fatalf("%d completions, %v", got, err)
			}
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestInlineOutsideOfARegion posts inline data at addresses that are in no region: C would end the process.
func TestInlineOutsideOfARegion(t *testing.T) {
	p := newPair(t, make([]byte, 1<<12))
	defer p.close(t)
	for _, sge := range []verbs.SGE{{Addr: 8, Length: 8, LKey: p.mr.LKey()}, {Addr: p.mr.Addr(), Length: 8, LKey: 1},
		{Addr: p.mr.Addr() + 4095, Length: 8, LKey: p.mr.LKey()}, {Addr: ^uint64(3), Length: 8, LKey: p.mr.LKey()}} {
		err := p.qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: []verbs.SGE{sge}})
		if !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%+v: %v", sge, err)
		}
	}
}

// BenchmarkCalls measures what a call costs.
func BenchmarkCalls(b *testing.B) {
	p := newPair(b, make([]byte, 1<<12))
	defer p.close(b)
	var wcs [16]verbs.WC
	b.Run("EmptyPoll", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.cq.Poll(wcs[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ReqNotify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := p.cq.ReqNotify(false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("WriteAndPoll", func(b *testing.B) {
		b.ReportAllocs()
		wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.mr.SGE(0, 8)},
			RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}
		for b.Loop() {
			if err := p.qa.PostSend(wr); err != nil {
				b.Fatal(err)
			}
			for {
				n, err := p.cq.Poll(wcs[:])
				if err != nil {
					b.Fatal(err)
				}
				if n > 0 {
					break
				}
			}
		}
	})
}

// mapFile maps a temporary file.
func mapFile(t *testing.T, n int) []byte {
	f := must(os.CreateTemp(t.TempDir(), "memory"))(t)
	defer f.Close()
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	mem := must(unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// TestUnplugged has the device removed while it is in use. VERBENA_TEST_UNPLUG is a shell command that does it.
func TestUnplugged(t *testing.T) {
	command := os.Getenv("VERBENA_TEST_UNPLUG")
	if command == "" {
		t.Skip("VERBENA_TEST_UNPLUG is not set")
	}
	p := newPair(t, make([]byte, 1<<12))
	p.message(t, 100)
	removed := make(chan error, 1)
	go func() { removed <- exec.Command("sh", "-c", command).Run() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for {
		ev, err := p.vctx.GetAsyncEvent(ctx)
		if err != nil {
			t.Logf("no event of the removal: %v", err) // the kernel's driver waits for the program instead
			break
		}
		t.Logf("event %v", ev.Type)
		ev.Ack()
		if ev.Type == verbs.EventDeviceFatal {
			break
		}
	}
	t.Logf("a request after it: %v", p.qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend,
		SGList: []verbs.SGE{p.mr.SGE(0, 1)}}))
	for _, c := range []interface{ Close() error }{p.qa, p.qb, p.mr, p.cq, p.pd, p.vctx} {
		if err := c.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if _, err := verbs.Open(os.Getenv(testDevice)); !errors.Is(err, verbs.ENODEV) {
		t.Errorf("opening it again: %v", err)
	}
}
