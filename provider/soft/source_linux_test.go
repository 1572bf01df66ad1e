package soft_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestFlowLabelChoosesTheSourcePort: the flow label of a path selects the UDP source port. Without one the numbers of
// the two QPs select it, but on a loopback interface, as here, all packets are sent through one socket.
func TestFlowLabelChoosesTheSourcePort(t *testing.T) {
	e := newEnds(t, &networks[1], 1, nil)[0]
	to := loopback(60)
	sink, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, testPort)))
	must(t, err)
	t.Cleanup(func() { _ = sink.Close() })
	from := func() uint16 {
		t.Helper()
		must(t, sink.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, a, err := sink.ReadFromUDPAddrPort(make([]byte, 2048))
		must(t, err)
		return a.Port()
	}
	const peer = 0x4711
	for i, label := range []uint32{0, 0x12345, 1} {
		q := e.qp(verbs.QPTypeUC, nil)
		must(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1},
			verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
		must(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPNum: peer, AHAttr: verbs.AHAttr{
			PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(to), SGIDIndex: 1, FlowLabel: label},
		}}, verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN))
		must(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN))
		for range 2 {
			must(t, q.PostSend(send(e, 8)))
			e.good(1)
			if got, want := from(), verbs.FlowLabelToUDPSourcePort(label); got != want && label != 0 {
				t.Errorf("QP %d, flow label %#x: source port %#x, want %#x", i, label, got, want)
			}
		}
	}
	// The address handle selects the port of datagrams.
	q := e.qp(verbs.QPTypeUD, nil)
	must(t, q.Connect(verbs.QPInfo{}, nil))
	ah := get(e.pd.CreateAH(&verbs.AHAttr{PortNum: 1, IsGlobal: true,
		GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(to), SGIDIndex: 1, FlowLabel: 0x54321}}))(t)
	wr := send(e, 8)
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, peer, verbs.DefaultQKey
	must(t, q.PostSend(wr))
	e.good(1)
	if got, want := from(), verbs.FlowLabelToUDPSourcePort(0x54321); got != want {
		t.Errorf("datagram: source port %#x, want %#x", got, want)
	}
	must(t, ah.Close())
}
