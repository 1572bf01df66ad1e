package soft_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// congested is a link that marks the ECN capable packets which it receives, as a switch with a long queue does.
type congested struct {
	link.Link
}

type congestedPort struct{ link.Port }

func (l congested) Ports() (ports []link.Port) {
	for _, p := range l.Link.Ports() {
		ports = append(ports, congestedPort{p})
	}
	return ports
}

func (p congestedPort) Recv(b *link.RxBatch) int {
	n := p.Port.Recv(b)
	for i := range b.Packets {
		if p := &b.Packets[i]; p.TClass&3 != 0 {
			p.TClass |= 3
		}
	}
	return n
}

// With VERBENA_ECN=1 the packets of RC QPs are ECN capable. A marked one is answered by a congestion notification,
// which reaches the QP that has sent it. The program's own ECN bits stay, and UC and UD packets have none.
func TestCongestionNotifications(t *testing.T) {
	for _, c := range []struct {
		env    string
		typ    verbs.QPType
		tclass uint8
		sent   uint8 // traffic class of the packets
		told   bool
	}{
		{"1", verbs.QPTypeRC, 0x68, 0x6A, true},
		{"1", verbs.QPTypeRC, 1, 1, true},
		{"1", verbs.QPTypeUC, 0x68, 0x68, false},
		{"", verbs.QPTypeRC, 0x68, 0x68, false},
		{"", verbs.QPTypeRC, 2, 2, true},
	} {
		onEach(t, func(t *testing.T, n *network) {
			file := filepath.Join(t.TempDir(), "x.pcapng")
			t.Setenv("VERBENA_ECN", c.env)
			t.Setenv("VERBENA_PCAP", file)
			var counts [2][3]uint64
			t.Run("traffic", func(t *testing.T) {
				open := n.open(t)
				bad := func(addrs []netip.Addr, ports int) (link.Link, error) {
					l, err := open(addrs, ports)
					return congested{l}, err
				}
				ends := newEnds(t, n, 2, func(c *soft.Config) { softlink.Set(c, softlink.Links{Open: bad}) })
				x, y := ends[0], ends[1]
				opts := &verbs.ConnectOptions{TrafficClass: c.tclass}
				qx, _ := connect(x, y, c.typ, opts)
				for range 20 {
					must(t, qx.PostSend(verbs.SendWR{
						Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{x.mr.SGE(0, 5000)},
						RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
					}))
					x.good(1)
				}
				for i, e := range ends {
					for j, name := range []string{"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"} {
						counts[i][j] = counter(e.dev, name)
					}
				}
			})
			x, y := counts[0], counts[1]
			if told := y[0] > 0 && y[1] > 0 && x[2] > 0; told != c.told || !c.told && (x != [3]uint64{} || y != x) {
				t.Errorf("%+v: marked, notifications sent, handled: %v and %v", c, x, y)
			}
			for _, tclass := range trafficClasses(t, file) {
				if tclass != c.sent && tclass != c.sent|3 {
					t.Errorf("%+v: a packet has traffic class %#x", c, tclass)
				}
			}
		})
	}
}

// trafficClasses returns the traffic classes of the IPv4 packets in a capture.
func trafficClasses(t *testing.T, file string) (list []uint8) {
	t.Helper()
	r := get(pcapgo.NewNgReader(bytes.NewReader(get(os.ReadFile(file))(t)), pcapgo.DefaultNgReaderOptions))(t)
	for {
		data, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		list = append(list, data[1])
	}
}
