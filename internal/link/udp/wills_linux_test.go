package udp

import (
	"bytes"
	"net/netip"
	"os"
	"testing"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// willEnv makes TestSharedHelper leave a last will for lo4b.
const willEnv = "VERBENA_TEST_WILL"

// willMAD is the datagram of the last will: a DREQ of a connection of the slot of a QP. verbena serve sends no other.
func willMAD(qpn uint32) []byte {
	const dreq = 0x15
	id, _ := host.CommIDs(host.SlotOf(qpn))
	m := make([]byte, wire.MADLen)
	copy(m, mad(dreq, 0, id|5, 6)[wire.BTHLen+wire.DETHLen:][:96])
	return m
}

// leaveWill sets the last will of the helper, if that has one.
func leaveWill(t *testing.T, l *Link) {
	if os.Getenv(willEnv) == "" {
		return
	}
	w := l.NewLastWill(&link.Path{Src: lo4, Dst: lo4b, TClass: 8, HopLimit: 9, PKey: 0x8001})
	if w == nil {
		t.Fatal("no place for a last will")
	}
	w.Set(willMAD(l.qpn(0)))
}

// TestLastWillsAreSent checks that a process that leads, and verbena serve, send the last will of a process that was
// killed, as a datagram from its address to QP 1 of the peer.
func TestLastWillsAreSent(t *testing.T) {
	for name, lead := range map[string]func(t *testing.T, port uint16){
		"a process leads": func(t *testing.T, port uint16) { openShared(t, port, 1, lo4) },
		"verbena serve": func(t *testing.T, port uint16) {
			needBatched(t)
			runDir(t)
			serve(t, port, lo4, 0o700, -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			port := testPort(t)
			lead(t, port)
			peer := open(t, Config{Addrs: []netip.Addr{lo4b}, Port: port})
			t.Setenv(willEnv, "1")
			h := startHelper(t, os.Args[0], port, nil)
			_ = h.cmd.Process.Kill()
			got := receive(t, peer.Ports()[0], 1)[0]
			bth := wire.BTH(got.Data)
			if got.Src != lo4 || got.TClass != 8 || got.HopLimit != 9 || bth.PKey() != 0x8001 ||
				bth.DestQPN() != wire.GSIQPN || !bytes.Equal(wire.Packet(got.Data).Payload(), willMAD(h.qpn)) {
				t.Errorf("the last will came as %+v", got)
			}
		})
	}
}
