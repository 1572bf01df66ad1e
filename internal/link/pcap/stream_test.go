package pcap

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// The packets of a stream have its bytes, and right checksums.
func TestSegments(t *testing.T) {
	for _, addr := range []string{"192.0.2.9", "2001:db8::9"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), 7471)
		for _, n := range []int{0, 1, 2, 777, MaxSegment} {
			var out bytes.Buffer
			out.Write(AppendInterface(AppendSection(nil), "x", ""))
			s := NewSink(&out, 0)
			data := bytes.Repeat([]byte{0xA5}, n)
			s.Segment(&Segment{Src: at, Dst: netip.AddrPortFrom(at.Addr(), 9), Seq: 1 << 31, Ack: 7, Flags: FlagACK, QPN: 5,
				Sent: n > 0, Data: data})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
			if err != nil {
				t.Fatal(err)
			}
			b, _, opts, err := r.ReadPacketDataWithOptions()
			if err != nil || opts.Comments[0] != "QP 0x000005" {
				t.Fatal(opts, err)
			}
			if inbound := opts.Flags.Direction == pcapgo.NgEpbFlagDirectionInbound; inbound != (n == 0) {
				t.Errorf("%d bytes: direction %v", n, opts.Flags.Direction)
			}
			first := gopacket.Decoder(layers.LayerTypeIPv4)
			if at.Addr().Is6() {
				first = layers.LayerTypeIPv6
			}
			p := gopacket.NewPacket(b, first, gopacket.Default)
			tcp, ok := p.TransportLayer().(*layers.TCP)
			if !ok || tcp.Seq != 1<<31 || tcp.Ack != 7 || !tcp.ACK || tcp.SYN || !bytes.Equal(tcp.Payload, data) {
				t.Fatalf("%s, %d bytes: %v", addr, n, p)
			}
			hops := b[8] // of IPv4
			if at.Addr().Is6() {
				hops = b[7]
			}
			if hops != 64 {
				t.Errorf("%s: hop limit %d", addr, hops)
			}
			if err := tcp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
			if err, wrong := p.VerifyChecksums(); err != nil || len(wrong) > 0 {
				t.Errorf("%s, %d bytes: checksums %v, %v", addr, n, wrong, err)
			}
		}
	}
}

// Flush writes at once what the sinks hold, and does not wait for those that are closed.
func TestFlush(t *testing.T) {
	var open, closed bytes.Buffer
	at := netip.MustParseAddrPort("192.0.2.9:7471")
	g := &Segment{Src: at, Dst: at, Flags: FlagACK, Data: []byte("payload")}
	a, b := NewSink(&open, 0), NewSink(&closed, 0)
	for i := range 100 {
		a.Segment(g)
		Flush()
		if n := bytes.Count(open.Bytes(), g.Data); n != i+1 {
			t.Fatalf("%d segments, want %d", n, i+1)
		}
	}
	b.Segment(g)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	Flush()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	Flush()
}
