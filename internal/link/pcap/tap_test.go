package pcap

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A record is a packet of a capture, as an independent reader decodes it.
type record struct {
	gopacket.Packet
	info gopacket.CaptureInfo
	opts pcapgo.NgPacketOptions
	roce []byte // BTH to ICRC
}

// written returns the packets that use writes into a sink of the second interface of a capture.
func written(t *testing.T, use func(s *Sink)) (list []record) {
	t.Helper()
	var out bytes.Buffer
	out.Write(AppendInterface(AppendInterface(AppendSection(nil), "first", ""), "second", "process 7"))
	s := NewSink(&out, 1)
	use(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&out, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, info, opts, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		i, err := r.Interface(info.InterfaceIndex)
		if err != nil || i.Name != "second" || i.Description != "process 7" || i.SnapLength != 0 {
			t.Errorf("interface %d: %+v, %v", info.InterfaceIndex, i, err)
		}
		first := gopacket.Decoder(layers.LayerTypeIPv4)
		if b[0]>>4 == 6 {
			first = layers.LayerTypeIPv6
		}
		p := gopacket.NewPacket(b, first, gopacket.Default)
		u, ok := p.TransportLayer().(*layers.UDP)
		if !ok || int(u.Length) != 8+len(u.Payload) {
			t.Fatalf("no UDP: %v", p)
		}
		list = append(list, record{p, info, opts, u.Payload})
	}
}

// The headers of a captured packet are those of its path, also if the next packet's path is another or its length.
func TestHeaders(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	data := func(n int) []byte {
		return wire.Fields{Opcode: wire.SendOnly, DestQPN: 0x54321, PSN: 9, Payload: make([]byte, n)}.Build()
	}
	paths := []*link.Path{
		{Src: v4, Dst: v4.Next(), TClass: 0xB9, HopLimit: 7},
		{Src: v4, Dst: v4.Next()},
		{Src: v6, Dst: v6.Next(), TClass: 0xB9, HopLimit: 255, FlowLabel: 0xABCDE},
		{Src: v6, Dst: v6.Next(), FlowLabel: 1},
	}
	begin := time.Now()
	list := written(t, func(s *Sink) {
		for _, path := range paths {
			for _, n := range []int{8, 8, 64} {
				tap := s.Tap()
				tap.From(0x11, 16) // only trains are cut
				tap.Placed(path, data(n), false)
				tap.Sent()
			}
		}
	})
	if len(list) != 3*len(paths) {
		t.Fatalf("%d packets", len(list))
	}
	for i, r := range list {
		path, n := paths[i/3], []int{8, 8, 64}[i%3]
		hops := path.HopLimit
		if hops == 0 {
			hops = 64
		}
		switch ip := r.NetworkLayer().(type) {
		case *layers.IPv4:
			if ip.TOS != path.TClass || ip.TTL != hops || ip.Id != 0 || ip.Flags != layers.IPv4DontFragment ||
				!ip.SrcIP.Equal(path.Src.AsSlice()) || !ip.DstIP.Equal(path.Dst.AsSlice()) {
				t.Errorf("packet %d: %+v", i, ip)
			}
			if sum(ip.Contents) != 0xffff {
				t.Errorf("packet %d: header checksum %#x", i, ip.Checksum)
			}
		case *layers.IPv6:
			if ip.TrafficClass != path.TClass || ip.HopLimit != hops || ip.FlowLabel != path.FlowLabel ||
				!ip.SrcIP.Equal(path.Src.AsSlice()) || !ip.DstIP.Equal(path.Dst.AsSlice()) {
				t.Errorf("packet %d: %+v", i, ip)
			}
		}
		u := r.TransportLayer().(*layers.UDP)
		if u.DstPort != 4791 || u.SrcPort != 0xC321 || u.Checksum != 0 {
			t.Errorf("packet %d: %+v", i, u)
		}
		flow := wire.NewFlow(path.Src, path.Dst, uint16(u.SrcPort), wire.Port)
		if id, ok := flow.Verify(bytes.Clone(r.roce), 0); !ok || id != 0 {
			t.Errorf("packet %d: wrong ICRC", i)
		}
		if len(r.roce) != wire.BTHLen+n+wire.ICRCLen {
			t.Errorf("packet %d: %d bytes", i, len(r.roce))
		}
		if at := r.info.Timestamp; at.Before(begin.Truncate(time.Microsecond)) || at.After(time.Now()) {
			t.Errorf("packet %d: time %v", i, at)
		}
		if d := r.opts.Flags; d == nil || d.Direction != pcapgo.NgEpbFlagDirectionOutbound {
			t.Errorf("packet %d: direction %+v", i, d)
		}
	}
}

// The comment of a packet names the QP, the work request and why the packet is sent again; of a train, each of those
// that are sent again.
func TestComments(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.1")
	path := &link.Path{Src: v4, Dst: v4}
	single := wire.Fields{Opcode: wire.SendOnly, DestQPN: 5, Payload: make([]byte, 8)}.Build()
	train := wire.Fields{Opcode: wire.SendOnly, DestQPN: 5, Payload: make([]byte, 3000)}.Build()
	head := wire.Fields{Opcode: wire.SendOnly, DestQPN: 5}.Build()
	body := bytes.Repeat([]byte{0xA5}, 4096)
	list := written(t, func(s *Sink) {
		tap := Taps{s.Tap()}
		tap.Sent() // without a packet
		tap.Request(1, 1, "none")
		tap.From(0x1a, 1024)
		tap.Placed(path, single, false)
		tap.Placed(path, single, false)
		tap.Request(77, 0, "")
		tap.Placed(path, train, true)
		tap.Request(78, 2, "no acknowledgement")
		tap.Sent()
		tap.Sent() // nothing new
		tap.Received(&link.RxPacket{Data: train, Src: v4, Dst: v4, Train: true}, 0xfedcba, 2048, "; dropped")
		tap.Received(&link.RxPacket{Data: head, Body: body, Src: v4, Dst: v4, Train: true}, 1, 2048, "")
	})
	want := []string{
		"QP 0x00001a", "QP 0x00001a, WR 77",
		"QP 0x00001a, WR 78; sent again: no acknowledgement", "QP 0x00001a, WR 78; sent again: no acknowledgement",
		"QP 0x00001a, WR 78",
		"QP 0xfedcba; dropped", "QP 0xfedcba; dropped",
		"QP 0x000001", "QP 0x000001",
	}
	if len(list) != len(want) {
		t.Fatalf("%d packets, want %d", len(list), len(want))
	}
	for i, r := range list {
		if len(r.opts.Comments) != 1 || r.opts.Comments[0] != want[i] {
			t.Errorf("packet %d: %q, want %q", i, r.opts.Comments, want[i])
		}
		direction := pcapgo.NgEpbFlagDirectionOutbound
		if i >= 5 {
			direction = pcapgo.NgEpbFlagDirectionInbound
		}
		if r.opts.Flags == nil || r.opts.Flags.Direction != direction {
			t.Errorf("packet %d: direction %+v", i, r.opts.Flags)
		}
	}
	for _, r := range list[len(want)-2:] {
		n := len(r.roce)
		if n != wire.BTHLen+2048+wire.ICRCLen || !bytes.Equal(r.roce[wire.BTHLen:n-wire.ICRCLen], body[:2048]) {
			t.Errorf("a packet of a train of 4096 bytes has %d", n)
		}
	}
}

// A sink whose writer fails writes nothing more, and Close returns the error.
func TestWriteError(t *testing.T) {
	full := errors.New("no space left")
	writes := 0
	s := NewSink(writerFunc(func([]byte) (int, error) { writes++; return 0, full }), 0)
	at := netip.MustParseAddrPort("192.0.2.9:7471")
	for range 3 {
		s.Segment(&Segment{Src: at, Dst: at, Data: []byte("x")})
		Flush()
	}
	if err := s.Err(); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	if err := s.Close(); !errors.Is(err, full) || writes != 1 {
		t.Errorf("%v after %d writes", err, writes)
	}
}

// BlockLen tells packet blocks of bounded length from other bytes, and SetInterface changes one field of them.
func TestBlocks(t *testing.T) {
	var out bytes.Buffer
	s := NewSink(&out, 3)
	at := netip.MustParseAddrPort("192.0.2.9:7471")
	s.Segment(&Segment{Src: at, Dst: at, Data: []byte("x")})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	block := out.Bytes()
	if n, ok := BlockLen(block); n != len(block) || !ok {
		t.Errorf("length %d of %d, %t", n, len(block), ok)
	}
	if n, ok := BlockLen(block[:7]); n != 0 || !ok {
		t.Errorf("of 7 bytes: %d, %t", n, ok)
	}
	for kind, lengths := range map[uint32]map[uint32]bool{
		blockPacket:    {28: false, 31: false, 32: true, 33: false, 34: false, 1 << 20: true, 1<<20 + 4: false},
		blockInterface: {32: false},
	} {
		for n, want := range lengths {
			b := bytes.Clone(block)
			order.PutUint32(b, kind)
			order.PutUint32(b[4:], n)
			if got, ok := BlockLen(b); ok != want || got != int(n) {
				t.Errorf("block of kind %d and %d bytes: %d, %t", kind, n, got, ok)
			}
		}
	}
	other := bytes.Clone(block)
	SetInterface(other, 9)
	if order.Uint32(block[8:]) != 3 || order.Uint32(other[8:]) != 9 {
		t.Errorf("interfaces %d, %d", order.Uint32(block[8:]), order.Uint32(other[8:]))
	}
	copy(other[8:12], block[8:12])
	if !bytes.Equal(block, other) {
		t.Error("SetInterface changes other fields")
	}
}
