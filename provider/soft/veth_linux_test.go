package soft_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// pairOf is a veth pair: the device is on the near end, the kernel of another namespace on the far end.
type pairOf struct {
	*station
	in       func(func()) // runs a function in the far namespace
	near     net.HardwareAddr
	far      net.HardwareAddr
	counters func(name string) uint64 // of the far interface
}

var (
	nearIP = [4]byte{192, 0, 2, 1}
	farIP  = [4]byte{192, 0, 2, 2}
)

func run(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", words, err, out)
	}
}

// newPair makes the pair, in a process with a namespace of its own.
func newPair(t *testing.T) *pairOf {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("this test needs the ip command")
	}
	work, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range work {
			f()
			ready <- nil
		}
	}()
	t.Cleanup(func() { close(work) })
	if err := <-ready; err != nil {
		t.Skipf("no second network namespace: %v", err)
	}
	p := &pairOf{in: func(f func()) { work <- f; <-ready }}
	var there string
	p.in(func() { there = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()) })
	if out, err := exec.Command("ip", "link", "add", "vnear", "type", "veth", "peer", "name", "vfar", "netns",
		there).CombinedOutput(); err != nil {
		t.Skipf("cannot make a veth pair: %v: %s", err, out)
	}
	run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "vnear")
	run(t, "ip", "link", "set", "vnear", "up")
	run(t, "ip", "link", "set", "lo", "up")
	p.near = get(net.InterfaceByName("vnear"))(t).HardwareAddr
	p.in(func() {
		run(t, "ip", "addr", "add", "192.0.2.2/24", "dev", "vfar")
		run(t, "ip", "link", "set", "vfar", "up")
		soft.WaitUp(t, "vfar")
		p.far = get(net.InterfaceByName("vfar"))(t).HardwareAddr
		run(t, "ip", "neigh", "add", "192.0.2.1", "lladdr", p.near.String(), "dev", "vfar")
	})
	soft.WaitUp(t, "vnear")
	p.counters = func(name string) (n uint64) {
		p.in(func() {
			out := get(exec.Command("ip", "-s", "-o", "link", "show", "dev", "vfar").Output())(t)
			_, rx, _ := strings.Cut(string(out), "RX:")
			words := strings.Fields(rx[strings.Index(rx, `\`)+1:])
			n = get(strconv.ParseUint(words[map[string]int{"rx_bytes": 0, "rx_packets": 1}[name]], 10, 64))(t)
		})
		return n
	}
	dev := get(soft.New(soft.Config{Name: "vrb_veth", Addrs: []netip.Addr{netip.AddrFrom4(nearIP)}}))(t)
	p.station = stationOf(t, get(dev.Open())(t), nil)
	return p
}

// udpTo makes a UDP frame for the far end, without checksums.
func (p *pairOf) udpTo(port int, data []byte) []byte {
	return eth(p.far, p.near, 0x0800, ip4(17, nearIP, farIP, udpOf(7777, port, data)))
}

// listen opens a socket of the far kernel.
func (p *pairOf) listen(t *testing.T, network string) (conn net.PacketConn) {
	t.Helper()
	p.in(func() { conn = get(net.ListenPacket(network, "192.0.2.2:0"))(t) })
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func portOf(c net.PacketConn) int { return c.LocalAddr().(*net.UDPAddr).Port }

// wait takes a receive completion within 10 s.
func (s *station) wait() ([]byte, *verbs.WC) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if c := s.next(); c != nil && c.Opcode == verbs.WCRecv {
			if c.Status != verbs.WCSuccess {
				s.t.Fatalf("%+v", c)
			}
			at := int(c.WRID) * slotLen
			return s.buf[at : at+int(c.ByteLen)], c
		}
	}
	s.t.Fatal("no frame")
	return nil, nil
}

// TestV_FL_09_V_CNT_01_FramesOfTheKernel: rules, tags and counters see what a socket of the kernel sends.
func TestV_FL_09_V_CNT_01_FramesOfTheKernel(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	p := newPair(t)
	n := get(p.ctx.CreateCounters())(t)
	must(t, n.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterPackets}, nil))
	must(t, n.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterBytes, Index: 1}, nil))
	f := p.rule(verbs.FlowAttr{Specs: []verbs.FlowSpec{
		verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{DstPort: 4000}, Mask: verbs.FlowPortFilter{DstPort: 0xffff}},
		verbs.FlowSpecActionTag{TagID: 77}, verbs.FlowSpecActionCount{Counters: n},
	}})
	conn := p.listen(t, "udp4")
	p.post(p.qp, 0, 8)
	sent := uint64(0)
	for i := range 5 {
		data := bytes.Repeat([]byte{byte(i)}, 20*i+1)
		get(conn.WriteTo(data, &net.UDPAddr{IP: nearIP[:], Port: 4001}))(t) // of no rule
		get(conn.WriteTo(data, &net.UDPAddr{IP: nearIP[:], Port: 4000}))(t)
		got, c := p.wait()
		if !bytes.Equal(got[42:], data) || c.FlowTag != 77 || c.WCFlags&verbs.WCIPCsumOK == 0 ||
			binary.BigEndian.Uint16(got[34:]) != uint16(portOf(conn)) {
			t.Errorf("%+v, % x", c, got)
		}
		sent += uint64(len(got))
	}
	var v [2]uint64
	if must(t, n.Read(v[:], 0)); v != [2]uint64{5, sent} {
		t.Errorf("counters %v, want 5 and %d", v, sent)
	}
	must(t, f.Close())
	must(t, n.Close())
}

// TestV_QPX_05_DatagramsOfTheKernel: a socket of the kernel sends a RoCE datagram for a source QPN, and the rule of a
// UD QP receives it.
func TestV_QPX_05_DatagramsOfTheKernel(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	p := newPair(t)
	const source = 0x123456
	ud := p.newUD(func(i *verbs.QPInitAttr) { i.CreateFlags, i.SourceQPN = verbs.QPCreateSourceQPN, source })
	p.ruleOf(ud, verbs.FlowAttr{Specs: []verbs.FlowSpec{
		verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{DstPort: wire.Port}, Mask: verbs.FlowPortFilter{DstPort: 0xffff}},
		verbs.FlowSpecActionTag{TagID: 3},
	}})
	conn := p.listen(t, "udp4")
	body := append(wire.Fields{Opcode: wire.UD | wire.SendOnly, PKey: 0xffff, DestQPN: source, SrcQPN: 9,
		QKey: verbs.DefaultQKey, Payload: []byte("from the kernel")}.Build(), 0, 0, 0, 0)
	// With IP_PMTUDISC_DO, Linux sends datagrams of a socket that is not connected with DF and the identification 0.
	must(t, get(conn.(*net.UDPConn).SyscallConn())(t).Control(func(fd uintptr) {
		must(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO))
	}))
	wire.NewFlow(netip.AddrFrom4(farIP), netip.AddrFrom4(nearIP), uint16(portOf(conn)), wire.Port).Seal(body, 0)
	p.post(ud, 0, 1)
	get(conn.WriteTo(body, &net.UDPAddr{IP: nearIP[:], Port: wire.Port}))(t)
	if got, c := p.wait(); !bytes.HasPrefix(got[40:], []byte("from the kernel")) || c.FlowTag != 3 ||
		c.QPNum != ud.QPN() {
		t.Errorf("%+v, % x", c, got)
	}
}

// TestV_SEND_13_ChecksumsForTheKernel: the kernel accepts frames with IP_CSUM, and none without.
func TestV_SEND_13_ChecksumsForTheKernel(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	p := newPair(t)
	conn := p.listen(t, "udp4")
	send := func(flags verbs.SendFlags, data string) {
		frame := p.udpTo(portOf(conn), []byte(data))
		must(t, p.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | flags, Inline: frame}))
	}
	before := p.counters("rx_packets")
	send(0, "without")
	send(verbs.SendIPCsum, "with")
	b := make([]byte, 100)
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	n, from, err := conn.ReadFrom(b)
	if err != nil || string(b[:n]) != "with" || from.(*net.UDPAddr).Port != 7777 {
		t.Errorf("%q, %v, %v", b[:n], from, err)
	}
	if got := p.counters("rx_packets") - before; got < 2 {
		t.Errorf("the far interface received %d frames, want 2", got)
	}
}

// TestV_WR_19_SegmentsForTheKernel: the kernel receives the segments of a TSO request, with right checksums.
func TestV_WR_19_SegmentsForTheKernel(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	p := newPair(t)
	var conn *net.IPConn
	p.in(func() { conn = get(net.ListenIP("ip4:tcp", &net.IPAddr{IP: farIP[:]}))(t) })
	defer conn.Close()
	qp := p.newQP(tsoInit)
	defer func() { must(t, qp.Close()) }()
	data := bytes.Repeat([]byte("0123456789abcdef"), 300)
	copy(p.buf, data)
	hdr := eth(p.far, p.near, 0x0800, ip4(6, nearIP, farIP, tcpOf(1000, 2000)))
	must(t, qp.PostSend(verbs.SendWR{Opcode: verbs.WRTSO, SGList: []verbs.SGE{p.mr.SGE(0, len(data))},
		TSO: &verbs.TSO{Hdr: hdr, MSS: 1400}}))
	var got []byte
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	for b := make([]byte, 2000); len(got) < len(data); {
		n, err := conn.Read(b)
		must(t, err)
		frame := eth(p.far, p.near, 0x0800, b[:n]) // with the IP header, whose checksum the kernel has verified
		var h raw.Headers
		raw.Parse(frame, &h)
		s := b[20:n]
		if !raw.VerifyChecksums(frame, &h) || binary.BigEndian.Uint32(s[4:]) != 0x100+uint32(len(got)) {
			t.Fatalf("segment at %d: % x", len(got), b[:40])
		}
		got = append(got, s[20:]...)
	}
	if !bytes.Equal(got, data) {
		t.Error("the segments differ from what was sent")
	}
}

// TestV_RWQ_01_V_WQ_06_QueuesForTheKernel: work queues get the kernel's datagrams by their ports, also those that wait.
func TestV_RWQ_01_V_WQ_06_QueuesForTheKernel(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	p := newPair(t)
	wqs := []*verbs.WQ{p.newWQ(p.cq.CQ, verbs.WQDelayDrop), p.newWQ(p.cq.CQ, verbs.WQPCIWriteEndPadding)}
	qp, table := p.newRSSQP(verbs.RxHashSrcIPv4|verbs.RxHashDstIPv4|verbs.RxHashDstPortUDP, wqs...)
	f := p.ruleOf(qp, verbs.FlowAttr{Specs: []verbs.FlowSpec{verbs.FlowSpecIPv4{
		Val: verbs.FlowIPv4Filter{SrcIP: farIP}, Mask: verbs.FlowIPv4Filter{SrcIP: allIP4}}}})
	conn := p.listen(t, "udp4")
	key := [raw.KeyLen]byte(rssKey)
	seen := map[uint32]int{}
	for port := 5000; port < 5012; port++ {
		want := raw.Toeplitz(&key, cat(farIP[:], nearIP[:], be16(port))) & 1
		for i, wq := range wqs {
			must(t, wq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{p.mr.SGE(i*slotLen, slotLen)}}))
		}
		get(conn.WriteTo([]byte("x"), &net.UDPAddr{IP: nearIP[:], Port: port}))(t)
		if _, c := p.wait(); uint32(c.WRID) != want {
			t.Errorf("port %d: queue %d, want %d", port, c.WRID, want)
		}
		seen[want]++
		for _, wq := range wqs { // empty again
			for _, to := range []verbs.WQState{verbs.WQSErr, verbs.WQSReset, verbs.WQSReady} {
				must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: to}))
			}
		}
		for p.next() != nil {
		}
	}
	if len(seen) != 2 {
		t.Errorf("datagrams by queue: %v", seen)
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	must(t, wqs[0].Close())
	must(t, wqs[1].Close())
}

// TestV_WQ_06_VLANsOfTheKernel: the kernel's VLAN interface sends tagged frames, and the tag is stripped.
func TestV_WQ_06_VLANsOfTheKernel(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	p := newPair(t)
	var err error
	p.in(func() {
		err = exec.Command("ip", "link", "add", "link", "vfar", "name", "vfar.5", "type", "vlan", "id", "5").Run()
	})
	if err != nil {
		t.Skip("the kernel has no VLAN interfaces")
	}
	var conn net.PacketConn
	p.in(func() {
		run(t, "ip", "addr", "add", "198.51.100.2/24", "dev", "vfar.5")
		run(t, "ip", "link", "set", "vfar.5", "up")
		run(t, "ip", "neigh", "add", "198.51.100.1", "lladdr", p.near.String(), "dev", "vfar.5")
		conn = get(net.ListenPacket("udp4", "198.51.100.2:0"))(t)
	})
	defer conn.Close()
	for _, flags := range []verbs.QPCreateFlags{0, verbs.QPCreateCVLANStripping} {
		qp := p.newQP(func(i *verbs.QPInitAttr) { i.CreateFlags = flags })
		f := p.ruleOf(qp, verbs.FlowAttr{Specs: []verbs.FlowSpec{
			verbs.FlowSpecEth{Val: verbs.FlowEthFilter{VLANTag: 5}, Mask: verbs.FlowEthFilter{VLANTag: 0xfff}},
			verbs.FlowSpecUDP{},
		}})
		p.post(qp, 0, 1)
		get(conn.WriteTo([]byte("tagged"), &net.UDPAddr{IP: []byte{198, 51, 100, 1}, Port: 6000}))(t)
		got, c := p.wait()
		tagged := binary.BigEndian.Uint16(got[12:]) == 0x8100
		if tagged != (flags == 0) || (c.CVLAN == 5) == tagged || !bytes.HasSuffix(got, []byte("tagged")) {
			t.Errorf("%v: CVLAN %d, % x", flags, c.CVLAN, got)
		}
		must(t, f.Close())
		must(t, qp.Close())
	}
}
