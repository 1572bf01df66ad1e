package captures

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// IWARPNames lists the captures of iWARP, in testdata/pcap/iwarp.
func IWARPNames() []string {
	return []string{"rping", "rping_crc", "rping_large", "rping_p2p", "rstream"}
}

// ReadIWARP returns what the client and the server of a capture of iWARP sent over their TCP connection.
func ReadIWARP(t testing.TB, name string) (client, server []byte) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir(), "iwarp", name+".pcap"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", f.Name(), err)
	}
	var streams [2]tcpStream
	for n := 1; ; n++ {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: packet %d: %v", f.Name(), n, err)
		}
		pkt := gopacket.NewPacket(frame, r.LinkType(), gopacket.Default)
		tcp, ok := pkt.TransportLayer().(*layers.TCP)
		if !ok {
			continue
		}
		switch {
		case tcp.SYN && !tcp.ACK:
			streams[0].begin(tcp)
		case tcp.SYN:
			streams[1].begin(tcp)
		}
		for i := range streams {
			if streams[i].port == tcp.SrcPort {
				streams[i].add(tcp)
			}
		}
	}
	if len(streams[0].data) == 0 || len(streams[1].data) == 0 {
		t.Fatalf("%s holds no TCP connection with data", f.Name())
	}
	return streams[0].data, streams[1].data
}

// tcpStream is one direction of a connection.
type tcpStream struct {
	port layers.TCPPort // of the sender
	isn  uint32
	data []byte
}

func (s *tcpStream) begin(t *layers.TCP) { s.port, s.isn = t.SrcPort, t.Seq+1 }

func (s *tcpStream) add(t *layers.TCP) {
	if len(t.Payload) == 0 {
		return
	}
	at := int(t.Seq - s.isn)
	if end := at + len(t.Payload); end > len(s.data) {
		s.data = append(s.data, make([]byte, end-len(s.data))...)
	}
	copy(s.data[at:], t.Payload)
}
