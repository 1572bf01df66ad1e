package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// E-18: a flow rule that steers to a QP the frames for one MAC address from one IPv4 address, as the manual's text
// says. The manual's code also masks the source MAC, with the value zero, which no frame has.
func Example_e18FlowRule() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx := must(f.Open("vrb_a"))
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(8, nil))
	buf := make([]byte, 2048)
	mr := must(pd.RegMR(buf, verbs.AccessLocalWrite))
	qp := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
	check(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort))
	check(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState))
	check(qp.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, len(buf))}}))

	local := [6]byte{0x66, 0x11, 0x22, 0x33, 0x44, 0x55}
	host := [4]byte{0x0b, 0x86, 0xc8, 0x06} // 11.134.200.6
	flow := must(qp.CreateFlow(&verbs.FlowAttr{
		Type: verbs.FlowAttrNormal, Priority: 0, Port: 1,
		Specs: []verbs.FlowSpec{
			verbs.FlowSpecEth{
				Val:  verbs.FlowEthFilter{DstMAC: local},
				Mask: verbs.FlowEthFilter{DstMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
			},
			verbs.FlowSpecIPv4{
				Val:  verbs.FlowIPv4Filter{SrcIP: host},
				Mask: verbs.FlowIPv4Filter{SrcIP: [4]byte{0xff, 0xff, 0xff, 0xff}},
			},
		},
	}))

	f.InjectFrame(frame([6]byte{2, 0, 0, 0, 0, 1}, host, "for another MAC address"))
	f.InjectFrame(frame(local, [4]byte{11, 134, 200, 7}, "from another host"))
	f.InjectFrame(frame(local, host, "for us"))

	wc := poll(cq, 1)[0]
	fmt.Printf("%d bytes: %s\n", wc.ByteLen, buf[14+20+8:wc.ByteLen])
	fmt.Println("more:", must(cq.Poll(make([]verbs.WC, 1))))
	closeAll(flow, qp, mr, cq, pd, vctx, f)
	// Output:
	// 48 bytes: for us
	// more: 0
}

// frame returns an Ethernet frame with UDP over IPv4. Fields that the rule does not compare are mostly 0.
func frame(dst [6]byte, src [4]byte, text string) []byte {
	b := make([]byte, 14+20+8, 64)
	copy(b, dst[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 9, 0x08, 0x00}) // from, IPv4
	ip, udp := b[14:34], b[34:]
	ip[0], ip[3], ip[8], ip[9] = 0x45, byte(20+8+len(text)), 64, 17 // version and length of the header, length, TTL, UDP
	copy(ip[12:], src[:])
	copy(ip[16:], []byte{11, 134, 200, 1})
	udp[5] = byte(8 + len(text))
	return append(b, text...)
}
