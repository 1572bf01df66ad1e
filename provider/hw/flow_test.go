//go:build linux && (amd64 || arm64)

package hw_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/provider/hw"
	"github.com/verbena-rdma/verbena/verbs"
)

// frame is a UDP datagram in an Ethernet frame, over IPv4 or IPv6. The last byte of the destination address is n, the
// destination port 7000 + n.
func frame(six bool, n uint16) []byte {
	ip, ethertype := make([]byte, 20), uint16(0x0800)
	ip[0], ip[3], ip[8], ip[9], ip[12], ip[15], ip[16], ip[19] = 0x45, 20+8+8, 64, 17, 127, 1, 127, byte(n)
	if six {
		ip, ethertype = make([]byte, 40), 0x86dd
		ip[0], ip[5], ip[6], ip[7], ip[23], ip[39] = 0x60, 8+8, 17, 64, 1, byte(n)
	}
	b := binary.BigEndian.AppendUint16(make([]byte, 12), ethertype)
	b = binary.BigEndian.AppendUint16(append(b, ip...), 6000)
	b = binary.BigEndian.AppendUint16(b, 7000+n)
	return append(b, "\x00\x10\x00\x00payload."...)
}

// flowRig is a RAW_PACKET QP on the loopback interface, which receives what it sends.
type flowRig struct {
	t    *testing.T
	vctx *verbs.Context
	cq   *verbs.CQ
	qp   *verbs.QP
	mem  []byte
	mr   *verbs.MR
}

const slotLen = 256

func newFlowRig(t *testing.T) *flowRig {
	r := &flowRig{t: t, vctx: opened(t), mem: make([]byte, 8*slotLen)}
	pd := must(r.vctx.AllocPD())(t)
	r.mr = must(pd.RegMR(r.mem, verbs.AccessLocalWrite))(t)
	r.cq = must(r.vctx.CreateCQ(64, nil))(t)
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: r.cq, RecvCQ: r.cq,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if errors.Is(err, unix.EPERM) {
		t.Skipf("no RAW_PACKET QP: %v", err)
	}
	r.qp = must(qp, err)(t)
	for _, state := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		mask := verbs.QPAttrState
		if state == verbs.QPSInit {
			mask |= verbs.QPAttrPort
		}
		r.isGood(r.qp.Modify(&verbs.QPAttr{QPState: state, PortNum: 1}, mask))
	}
	t.Cleanup(func() {
		for _, o := range []interface{ Close() error }{r.qp, r.cq, r.mr, pd, r.vctx} {
			r.isGood(o.Close())
		}
	})
	return r
}

func (r *flowRig) isGood(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// copies is the number of times that a frame arrives: once as that of a QP of the device, since the C library's rules
// see those too, and once when the interface returns it.
const copies = 2

// exchange sends four frames. It returns those that arrive until one has arrived often enough, and shortly afterwards.
func (r *flowRig) exchange(six bool) (arrived [][]byte) {
	for i := range uint64(4) {
		r.isGood(r.qp.PostRecv(verbs.RecvWR{WRID: i, SGList: []verbs.SGE{r.mr.SGE(int(i)*slotLen, slotLen)}}))
	}
	for n := range 4 {
		at := (4 + n) * slotLen
		size := copy(r.mem[at:], frame(six, uint16(n)))
		r.isGood(r.qp.PostSend(verbs.SendWR{WRID: 100, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{r.mr.SGE(at, size)}}))
	}
	sent, wcs := 0, make([]verbs.WC, 8)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		for _, wc := range wcs[:must(r.cq.Poll(wcs))(r.t)] {
			if wc.Status != verbs.WCSuccess {
				r.t.Fatalf("%v", wc.Status)
			}
			if wc.WRID == 100 {
				sent++
				continue
			}
			at := int(wc.WRID) * slotLen
			arrived = append(arrived, bytes.Clone(r.mem[at:at+int(wc.ByteLen)]))
		}
		if sent == 4 && len(arrived) >= copies {
			sent = 5 // frames that should not arrive have some time yet
			end = time.Now().Add(50 * time.Millisecond)
		}
	}
	return arrived
}

// TestFlowRules sends frames of which a rule selects one, by each kind of header, and counts it. Of the libraries in
// tests only Verbena's own has rules.
func TestFlowRules(t *testing.T) {
	if os.Getenv(hw.TestOwn) == "" {
		t.Skip(hw.TestOwn + " is not set")
	}
	for _, c := range []struct {
		name string
		six  bool
		spec verbs.FlowSpec
	}{
		{"UDP", false, verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{DstPort: 7002},
			Mask: verbs.FlowPortFilter{DstPort: 0xFFFF}}},
		{"IPv4", false, verbs.FlowSpecIPv4{Val: verbs.FlowIPv4Filter{DstIP: [4]byte{127, 0, 0, 2}},
			Mask: verbs.FlowIPv4Filter{DstIP: [4]byte{255, 255, 255, 255}}}},
		{"IPv6", true, verbs.FlowSpecIPv6{Val: verbs.FlowIPv6Filter{DstIP: [16]byte{15: 2}},
			Mask: verbs.FlowIPv6Filter{DstIP: [16]byte{15: 255}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFlowRig(t)
			counters := must(r.vctx.CreateCounters())(t)
			t.Cleanup(func() { r.isGood(counters.Close()) })
			for i, desc := range []verbs.CounterDescription{verbs.CounterPackets, verbs.CounterBytes} {
				r.isGood(counters.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: desc, Index: uint32(i)}, nil))
			}
			rule := must(r.qp.CreateFlow(&verbs.FlowAttr{Port: 1,
				Specs: []verbs.FlowSpec{c.spec, verbs.FlowSpecActionCount{Counters: counters}}}))(t)
			t.Cleanup(func() { r.isGood(rule.Close()) })
			want, got := frame(c.six, 2), r.exchange(c.six)
			if len(got) != copies || !bytes.Equal(got[0], want) || !bytes.Equal(got[1], want) {
				t.Errorf("%d frames arrived, %x: want the one that the rule selects, %d times", len(got), got, copies)
			}
			values := make([]uint64, 2)
			r.isGood(counters.Read(values, 0))
			if values[0] != copies || values[1] != uint64(copies*len(want)) {
				t.Errorf("%d frames and %d bytes were counted, want %d frames of %d bytes", values[0], values[1], copies,
					len(want))
			}
		})
	}
}
