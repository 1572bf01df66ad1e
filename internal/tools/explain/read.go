package explain

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// packet is one RoCEv2 packet of a capture, or one of TCP.
type packet struct {
	at       time.Time
	src, dst netip.Addr
	data     wire.Packet // from BTH to pad
	comment  string
	process  string // that captured it; empty if not known
	outbound bool   // direction in the capture
	inbound  bool
	badICRC  bool
	cut      bool  // truncated: the missing bytes of data are 0
	tcp      *part // instead of data
	ends     *ends // of its flow
}

// source reads the packets of a capture.
type source interface {
	next() (data []byte, at time.Time, link layers.LinkType, comment, process string, direction int, err error)
}

const (
	pcapngMagic = 0x0A0D0D0A
	inbound     = 1
	outbound    = 2
)

// open detects the file format.
func open(r io.Reader) (source, error) {
	b := bufio.NewReaderSize(r, 1<<18)
	head, err := b.Peek(4)
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, errors.New("this is a directory; name a capture file in it")
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("the capture is empty or shorter than its header; is it still being written?")
	}
	if binary.LittleEndian.Uint32(head) == pcapngMagic {
		ng, err := pcapgo.NewNgReader(&checked{r: b, order: binary.LittleEndian},
			pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return nil, fmt.Errorf("no readable pcapng file: %w", err)
		}
		return &ngSource{ng}, nil
	}
	classic, err := pcapgo.NewReader(b)
	if err != nil {
		return nil,
			fmt.Errorf(
				"neither pcapng nor pcap (it begins with %x); record with VERBENA_PCAP, verbena capture, tcpdump or Wireshark",
				head)
	}
	if classic.Snaplen() > mostBlock {
		classic.SetSnaplen(mostBlock) // pcapgo allocates as much memory as a packet claims to need
	}
	return &pcapSource{classic}, nil
}

type ngSource struct{ r *pcapgo.NgReader }

func (s *ngSource) next() (data []byte, at time.Time, link layers.LinkType, comment, process string, direction int,
	err error) {
	data, ci, opts, err := s.r.ReadPacketDataWithOptions()
	if err != nil {
		return nil, at, 0, "", "", 0, err
	}
	link = s.r.LinkType()
	if ifi, err := s.r.Interface(ci.InterfaceIndex); err == nil {
		link, process = ifi.LinkType, ifi.Description
	}
	if len(opts.Comments) > 0 {
		comment = opts.Comments[0]
	}
	if opts.Flags != nil {
		direction = int(opts.Flags.Direction)
	}
	return data, ci.Timestamp, link, comment, process, direction, nil
}

type pcapSource struct{ r *pcapgo.Reader }

func (s *pcapSource) next() (data []byte, at time.Time, link layers.LinkType, comment, process string, direction int,
	err error) {
	data, ci, err := s.r.ReadPacketData()
	return data, ci.Timestamp, s.r.LinkType(), "", "", 0, err
}

// errCut reports that the file ends inside a packet.
var errCut = errors.New("the capture ends in the middle of a packet; the packets before it are shown")

// each calls f for each packet of RoCEv2 or TCP, in the order of their times as far as a sorter with the span can make
// it, and returns the number of other packets. f reports whether a packet of TCP belongs to iWARP. A source that is
// idle for the span has no packets in the sorter.
func each(s source, span time.Duration, f func(*packet) bool) (others int, err error) {
	o := &sorter{span: span, out: func(p *packet) {
		if !f(p) {
			others++
		}
	}}
	idle := time.AfterFunc(span, o.flush)
	skipped, err := read(s, func(p *packet) {
		o.add(p)
		idle.Reset(span)
	})
	idle.Stop()
	o.flush()
	return others + skipped, err
}

// read calls f for each packet of RoCEv2 or TCP and returns the number of other packets.
func read(s source, f func(*packet)) (others int, err error) {
	for {
		data, at, link, comment, process, direction, err := s.next()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return others, errCut
		case errors.Is(err, io.EOF):
			return others, nil
		case err != nil:
			return others, fmt.Errorf("the capture is damaged here: %w", err)
		}
		p, ok := decode(data, link)
		if !ok {
			others++
			continue
		}
		p.process = process
		p.at, p.comment, p.inbound, p.outbound = at, comment, direction == inbound, direction == outbound
		f(p)
	}
}

// decode removes the headers below the BTH.
func decode(data []byte, link layers.LinkType) (*packet, bool) {
	var kind gopacket.Decoder = link
	if link == layers.LinkTypeRaw || link == layers.LinkTypeIPv4 || link == layers.LinkTypeIPv6 {
		kind = layers.LayerTypeIPv4
		if len(data) > 0 && data[0]>>4 == 6 {
			kind = layers.LayerTypeIPv6
		}
	}
	pkt := gopacket.NewPacket(data, kind, gopacket.DecodeOptions{NoCopy: true, Lazy: true})
	if t, ok := pkt.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
		return decodeTCP(pkt, t)
	}
	u, ok := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || u.DstPort != wire.Port {
		return nil, false
	}
	var p packet
	id := uint16(0)
	switch ip := pkt.NetworkLayer().(type) {
	case *layers.IPv4:
		p.src, _ = netip.AddrFromSlice(ip.SrcIP.To4())
		p.dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
		id = ip.Id
	case *layers.IPv6:
		p.src, _ = netip.AddrFromSlice(ip.SrcIP)
		p.dst, _ = netip.AddrFromSlice(ip.DstIP)
	default:
		return nil, false
	}
	b := u.Payload
	n := int(u.Length) - 8 // the length on the wire
	if len(b) < wire.BTHLen || n < wire.BTHLen+wire.ICRCLen || len(b) > n {
		return nil, false
	}
	body := b[:min(len(b), n-wire.ICRCLen)]
	if p.cut = len(b) < n; p.cut {
		body = append(bytes.Clone(body), make([]byte, n-wire.ICRCLen-len(body))...)
	}
	parsed, err := wire.Parse(body)
	if err != nil {
		return nil, false
	}
	p.data = parsed
	if !p.cut {
		flow := wire.NewFlow(p.src, p.dst, uint16(u.SrcPort), uint16(u.DstPort))
		p.badICRC = flow.ICRC(body, id) != binary.LittleEndian.Uint32(b[len(b)-wire.ICRCLen:])
	}
	return &p, true
}

// decodeTCP takes a piece of a stream from a packet.
func decodeTCP(pkt gopacket.Packet, t *layers.TCP) (*packet, bool) {
	var p packet
	switch ip := pkt.NetworkLayer().(type) {
	case *layers.IPv4:
		p.src, _ = netip.AddrFromSlice(ip.SrcIP.To4())
		p.dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
	case *layers.IPv6:
		p.src, _ = netip.AddrFromSlice(ip.SrcIP)
		p.dst, _ = netip.AddrFromSlice(ip.DstIP)
	default:
		return nil, false
	}
	p.tcp = &part{from: netip.AddrPortFrom(p.src, uint16(t.SrcPort)), to: netip.AddrPortFrom(p.dst, uint16(t.DstPort)),
		seq: t.Seq, syn: t.SYN, fin: t.FIN, rst: t.RST, data: t.Payload}
	return &p, true
}
