package pcap

import (
	"bytes"
	"io"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// capture returns the packet that a sink writes for p.
func capture(t *testing.T, snap int, p *link.RxPacket) (data []byte, length int) {
	t.Helper()
	var out bytes.Buffer
	out.Write(AppendInterface(AppendSection(nil), "x", ""))
	s := NewSink(&out, 0)
	s.SetSnap(snap)
	s.Tap().Received(p, 7, 4096, "; why")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	data, ci, opts, err := r.ReadPacketDataWithOptions()
	if err != nil || ci.CaptureLength != len(data) || len(opts.Comments) != 1 || opts.Comments[0] != "QP 0x000007; why" {
		t.Fatalf("%+v %+v %v", ci, opts, err)
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Fatalf("behind the packet: %v", err)
	}
	return data, ci.Length
}

// With a limit a packet is cut there, with unchanged headers and the full length in its record.
func TestSnap(t *testing.T) {
	payload := make([]byte, 700)
	for i := range payload {
		payload[i] = byte(i)
	}
	v4, v6 := netip.AddrFrom4([4]byte{10, 0, 0, 1}), netip.MustParseAddr("fd00::1")
	for _, addr := range []netip.Addr{v4, v6} {
		for _, n := range []int{0, 1, 2, 3, 60, 61, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 80, 84, 85, 86, 87, 88, 89, 90,
			91, 92, 600} {
			for _, p := range []*link.RxPacket{
				{Data: wire.Fields{Opcode: wire.SendOnly, DestQPN: 7, Payload: payload[:n]}.Build(), Src: addr, Dst: addr},
				{Data: wire.Fields{Opcode: wire.SendOnly, DestQPN: 7}.Build(), Body: payload[:n], Src: addr, Dst: addr},
			} {
				whole, length := capture(t, 0, p)
				if len(whole) != length || length != link.HeadersLen(addr)+12+(n+3)&^3+4 {
					t.Fatalf("%d bytes: %d of %d are written", n, len(whole), length)
				}
				for _, snap := range []int{MinSnap, MinSnap + 1, MinSnap + 3, 500, MaxSnap} {
					part, length := capture(t, snap, p)
					if length != len(whole) || len(part) != min(snap, length) {
						t.Fatalf("%d bytes, up to %d: %d of %d are written", n, snap, len(part), length)
					}
					for i, b := range part {
						if b != whole[i] && (len(part) == length || i < link.HeadersLen(addr)+12+n) { // the ICRC is not made then
							t.Fatalf("%d bytes, up to %d: byte %d is another", n, snap, i)
						}
					}
				}
			}
		}
	}
}

// The memory of pieces is reused, however rarely a piece is written.
func TestPiecesAreReused(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the clock")
	}
	s := NewSink(io.Discard, 0)
	defer s.Close()
	time.Sleep(3 * flushEvery)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	time.Sleep(10 * flushEvery)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 3*pieceLen {
		t.Errorf("%d bytes were allocated while nothing was captured", n)
	}
}

// The number of dropped packets is in the record of the next packet that is written.
func TestDropCount(t *testing.T) {
	var out bytes.Buffer
	out.Write(AppendInterface(AppendSection(nil), "x", ""))
	gate := make(chan struct{})
	s := NewSink(writerFunc(func(b []byte) (int, error) { <-gate; return out.Write(b) }), 0)
	p := &link.RxPacket{
		Data: wire.Fields{Opcode: wire.SendOnly, Payload: make([]byte, 4096)}.Build(),
		Src:  netip.IPv6Loopback(),
		Dst:  netip.IPv6Loopback(),
	}
	tap := s.Tap()
	sent := uint64(0)
	for s.Dropped() < 10 {
		tap.Received(p, 7, 4096, "")
		sent++
	}
	close(gate)
	for drops := s.Dropped(); ; drops = s.Dropped() {
		tap.Received(p, 7, 4096, "")
		if sent++; s.Dropped() == drops {
			break
		}
	}
	drops := s.Dropped()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var packets, told uint64
	for {
		_, _, opts, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packets++
		if opts.DropCount != nil {
			told += *opts.DropCount
		}
	}
	if told != drops || packets+told != sent {
		t.Errorf("%d packets and %d told to be dropped, of %d, of which %d were", packets, told, sent, drops)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// BenchmarkSink measures what capturing a message of 64 KiB costs its sender or its receiver: as packets of 4096
// bytes, and as a train through shared memory.
func BenchmarkSink(b *testing.B) {
	data := make([]byte, 64<<10)
	for _, c := range []struct {
		name  string
		step  int
		train bool
		snap  int
	}{{"packets", 4096, false, 0}, {"train", len(data), true, 0}, {"train-512", len(data), true, 512}} {
		b.Run(c.name, func(b *testing.B) {
			s := NewSink(io.Discard, 0)
			defer s.Close()
			s.SetSnap(c.snap)
			t := s.Tap()
			head := wire.Fields{Opcode: wire.WriteMiddle, DestQPN: 7}.Build()
			p := link.RxPacket{
				Data:  head,
				Src:   netip.AddrFrom4([4]byte{10, 0, 0, 1}),
				Dst:   netip.AddrFrom4([4]byte{10, 0, 0, 2}),
				Train: c.train,
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				for at := 0; at < len(data); at += c.step {
					p.Body = data[at : at+c.step]
					t.Received(&p, 7, 4096, "")
				}
			}
			b.ReportMetric(float64(s.Dropped()), "dropped")
		})
	}
}
