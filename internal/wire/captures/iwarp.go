package captures

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// IWARPNames lists the captures of iWARP, in testdata/pcap/iwarp.
func IWARPNames() []string {
	return []string{"rping", "rping_crc", "rping_large", "rping_p2p", "rstream"}
}

// ReadIWARP returns what the client and the server of a capture of iWARP sent over their TCP connection.
func ReadIWARP(t testing.TB, name string) (client, server []byte) {
	t.Helper()
	var streams [2]tcpStream
	file := filepath.Join(dir(), "iwarp", name+".pcap")
	readFile(t, file, func(_ int, _ time.Time, pkt gopacket.Packet) {
		tcp, ok := pkt.TransportLayer().(*layers.TCP)
		if !ok {
			return
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
	})
	if len(streams[0].data) == 0 || len(streams[1].data) == 0 {
		t.Fatalf("%s holds no TCP connection with data", file)
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
