package rsocket_test

import (
	"io"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// benchNetworks are the networks that benchmarks run on.
var benchNetworks = []struct {
	name string
	open func(testing.TB) *places
}{
	{"memory", func(tb testing.TB) *places { return memory(tb, rdmatest.Faults{}) }},
	{"udp", overUDP},
	{"shm", overShm},
}

// One goroutine writes 64 KiB at a time, another one of the same process reads.
func BenchmarkStream(b *testing.B) {
	const size = 64 << 10
	o := rsocket.Options{SendBuf: 1 << 20, RecvBuf: 1 << 20, Polling: 100 * time.Microsecond}
	for _, n := range benchNetworks {
		b.Run(n.name, func(b *testing.B) {
			p := n.open(b)
			defer p.Close()
			c, s := p.pair(o, o)
			defer c.Close()
			defer s.Close()
			b.SetBytes(size)
			b.ReportAllocs()
			done := make(chan error)
			buf := make([]byte, size)
			b.ResetTimer()
			go func() {
				in := make([]byte, size)
				var err error
				for i := 0; i < b.N && err == nil; i++ {
					_, err = io.ReadFull(s, in)
				}
				done <- err
			}()
			for range b.N {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			p.OK(<-done)
			b.StopTimer()
		})
	}
}

// A request of 64 bytes and its answer, between goroutines of one process.
func BenchmarkRequest(b *testing.B) {
	o := rsocket.Options{Polling: time.Millisecond}
	for _, n := range benchNetworks {
		b.Run(n.name, func(b *testing.B) {
			p := n.open(b)
			defer p.Close()
			c, s := p.pair(o, o)
			defer c.Close()
			go func() { _, _ = io.Copy(s, s); s.Close() }()
			buf := make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Sending and receiving on a connection allocate nothing.
func TestDataPathDoesNotAllocate(t *testing.T) {
	p := memory(t, rdmatest.Faults{})
	c, s := p.pair(rsocket.Options{}, rsocket.Options{})
	for _, size := range []int{64, 20000} {
		buf := make([]byte, size)
		n := testing.AllocsPerRun(200, func() {
			if _, err := c.Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s, buf); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%v allocations for each %d bytes", n, size)
		}
	}
	p.OK(c.Close())
	p.OK(s.Close())
	p.Close()
}
