package udp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
)

// BenchmarkTransfer sends batches of 32 packets and receives them, in one goroutine. One
// operation is one packet. Compare MB/s with BenchmarkTCP of the same run.
func BenchmarkTransfer(b *testing.B) {
	for _, size := range []int{8, 4096} {
		for _, off := range []Config{{}, {NoGSO: true, NoGRO: true}} {
			for _, a := range loopbacks {
				b.Run(fmt.Sprintf("%dB,GSO=%v,%v", size, !off.NoGSO, a), func(b *testing.B) { benchTransfer(b, off, a, size) })
			}
		}
	}
}

const benchBatch = 32

func benchTransfer(b *testing.B, cfg Config, a netip.Addr, size int) {
	l, _ := pair(b, cfg, a, a)
	p := l.Ports()[0]
	path := &link.Path{Src: a, Dst: a}
	tx := link.NewTxBatch(benchBatch, benchBatch*(size+100))
	var rx link.RxBatch
	step := func() {
		for i := range benchBatch {
			pkt := tx.Alloc(path, 1, 12+size)
			fill(pkt[:12], 1, uint32(i))
		}
		p.Send(tx)
		for n := 0; n < benchBatch; {
			n += p.Recv(&rx)
		}
	}
	step()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += benchBatch {
		step()
	}
}

// BenchmarkTurnaround sends one packet of 8 bytes and receives it, in one goroutine: half of a round trip.
func BenchmarkTurnaround(b *testing.B) {
	for _, a := range loopbacks {
		b.Run(a.String(), func(b *testing.B) {
			l, _ := pair(b, Config{}, a, a)
			p := l.Ports()[0]
			path := &link.Path{Src: a, Dst: a}
			tx := link.NewTxBatch(1, 100)
			var rx link.RxBatch
			p.Recv(&rx)
			b.ReportAllocs()
			for b.Loop() {
				fill(tx.Alloc(path, 1, 20)[:12], 1, 1)
				p.Send(tx)
				for p.Recv(&rx) == 0 {
				}
			}
		})
	}
	b.Run("TCP", func(b *testing.B) { benchTCP(b, 8, 1) })
}

// BenchmarkTCP moves the same bytes as BenchmarkTransfer through a TCP connection, in one goroutine too.
func BenchmarkTCP(b *testing.B) {
	for _, size := range []int{8, 4096} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) { benchTCP(b, size, benchBatch) })
	}
}

// benchTCP writes and reads batch times size bytes at a time.
func benchTCP(b *testing.B, size, batch int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	buf := make([]byte, batch*size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdleRecv is one poll of a port at which nothing has come.
func BenchmarkIdleRecv(b *testing.B) {
	for _, addrs := range [][]netip.Addr{{lo4}, {lo4, lo4b}, {lo4, lo4b, lo4c, netip.MustParseAddr("127.0.0.4")}} {
		b.Run(fmt.Sprintf("%d addresses", len(addrs)), func(b *testing.B) {
			l := open(b, Config{Addrs: addrs, Port: testPort(b)})
			p := l.Ports()[0]
			var rx link.RxBatch
			p.Recv(&rx)
			b.ReportAllocs()
			for b.Loop() {
				p.Recv(&rx)
			}
		})
	}
}
