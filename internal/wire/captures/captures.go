// Package captures reads testdata/pcap: RoCEv2 and iWARP traffic of Linux peers, recorded on the wire. Tests compare
// Verbena with it. Only tests import the package. It imports internal/wire and gopacket.
package captures

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Packet is one RoCEv2 packet of a capture.
type Packet struct {
	N        int // position in the file, as other tools count: from 1, packets of other protocols included
	Time     time.Time
	IP       []byte // the IP header
	UDP      []byte // the UDP header
	Data     []byte // BTH to ICRC
	Src, Dst netip.Addr
	SrcPort  uint16
	ID       uint16 // the IPv4 identification; 0 for IPv6
}

// Body is the packet from BTH to pad.
func (p *Packet) Body() []byte { return p.Data[:len(p.Data)-wire.ICRCLen] }

// Flow is the Flow that the packet belongs to.
func (p *Packet) Flow() wire.Flow { return wire.NewFlow(p.Src, p.Dst, p.SrcPort, wire.Port) }

// Names lists the captures, without path and ".pcap".
func Names(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir(), "*.pcap"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s (%v)", dir(), err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".pcap")
	}
	return files
}

// Read reads all RoCEv2 packets of a capture. The test ends if it cannot be read or has none.
func Read(t testing.TB, name string) []Packet {
	t.Helper()
	var all []Packet
	file := filepath.Join(dir(), name+".pcap")
	readFile(t, file, func(n int, at time.Time, pkt gopacket.Packet) {
		if p, ok := decode(pkt); ok {
			p.N, p.Time = n, at
			all = append(all, p)
		}
	})
	if len(all) == 0 {
		t.Fatalf("%s holds no RoCEv2 packet", file)
	}
	return all
}

// readFile calls f with each packet of a file, and its number from 1 on.
func readFile(t testing.TB, name string, f func(n int, at time.Time, pkt gopacket.Packet)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewReader(file)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for n := 1; ; n++ {
		frame, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: packet %d: %v", name, n, err)
		}
		f(n, info.Timestamp, gopacket.NewPacket(frame, r.LinkType(), gopacket.Default))
	}
}

// decode finds the RoCEv2 packet in a frame.
func decode(pkt gopacket.Packet) (p Packet, ok bool) {
	udp, ok := pkt.TransportLayer().(*layers.UDP)
	if !ok || udp.DstPort != wire.Port || pkt.NetworkLayer() == nil {
		return p, false
	}
	p.IP, p.UDP, p.SrcPort = pkt.NetworkLayer().LayerContents(), udp.Contents, uint16(udp.SrcPort)
	// The packet's end follows from the UDP length, since short frames are padded.
	p.Data = udp.Payload[:binary.BigEndian.Uint16(udp.Contents[4:])-8]
	switch ip := pkt.NetworkLayer().(type) {
	case *layers.IPv4:
		p.ID = ip.Id
		p.Src, p.Dst = addr(ip.SrcIP), addr(ip.DstIP)
	case *layers.IPv6:
		p.Src, p.Dst = addr(ip.SrcIP), addr(ip.DstIP)
	}
	return p, true
}

func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// dir returns the project's testdata/pcap, which is in a parent of the test's directory.
func dir() string {
	const sub = "testdata/pcap"
	up := "."
	for range 10 {
		d := filepath.Join(up, filepath.FromSlash(sub))
		if _, err := os.Stat(d); err == nil {
			return d
		}
		up = filepath.Join(up, "..")
	}
	return sub
}
