package soft_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// onLoopback makes a device of the loopback interface, which has a packet socket.
func onLoopback(t testing.TB) (*verbs.Context, *verbs.PD, *verbs.CQ) {
	t.Helper()
	dev := get(soft.New(soft.Config{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}}))(t)
	vctx := get(dev.Open())(t)
	t.Cleanup(func() { must(t, vctx.Close()) })
	pd := get(vctx.AllocPD())(t)
	t.Cleanup(func() { must(t, pd.Close()) })
	cq := get(vctx.CreateCQ(16, nil))(t)
	t.Cleanup(func() { must(t, cq.Close()) })
	return vctx, pd, cq
}

func TestV_FL_09_FramesOfARealInterface(t *testing.T) {
	_, pd, cq := onLoopback(t)
	qp, err := pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRawPacket, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxRecvSGE: 1, MaxInlineData: 200},
	})
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("this test needs CAP_NET_RAW: %v", err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, qp.Close()) })
	toRTS(t, qp)
	buf := make([]byte, 2000)
	mr := get(pd.RegMR(buf, verbs.AccessLocalWrite))(t)
	t.Cleanup(func() { must(t, mr.Close()) })
	must(t, qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 2000)}}))
	mac := [6]byte{2, 0xfe, byte(os.Getpid() >> 8), byte(os.Getpid()), 0, 1} // a locally administered address
	f := get(qp.CreateFlow(&verbs.FlowAttr{Port: 1, Specs: []verbs.FlowSpec{
		verbs.FlowSpecEth{Val: verbs.FlowEthFilter{DstMAC: mac}, Mask: verbs.FlowEthFilter{DstMAC: allMAC}},
	}}))(t)
	t.Cleanup(func() { must(t, f.Close()) })
	frame := eth(mac[:], macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, []byte("over the loopback interface"))))
	must(t, qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendIPCsum, Inline: frame}))
	var wcs [1]verbs.WC
	for end := time.Now().Add(10 * time.Second); ; {
		n, err := cq.Poll(wcs[:])
		must(t, err)
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no frame")
		}
	}
	if wc := wcs[0]; wc.Status != verbs.WCSuccess || !bytes.Equal(buf[:wc.ByteLen], summed(frame)) ||
		wc.WCFlags != verbs.WCIPCsumOK {
		t.Errorf("%+v, % x", wc, buf[:wc.ByteLen])
	}
}

func TestV_QP_06_RawPacketsWithoutCapability(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	must(t, unix.Capset(&hdr, &none[0]))
	_, pd, cq := onLoopback(t)
	_, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: cq, RecvCQ: cq})
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") || !strings.Contains(err.Error(),
		"setcap") {
		t.Errorf("%v", err)
	}
}

// TestV_QPS_18_RawPacketsWhileStatesChange: both stations send to each other and to themselves while QPs change state
// and rules are added and removed: no deadlock, no race and no lost queue slot.
func TestV_QPS_18_RawPacketsWhileStatesChange(t *testing.T) {
	_, list := fabricOf(t, 2, nil)
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	var busy sync.WaitGroup
	var rules []*verbs.Flow
	for _, s := range list {
		rules = append(rules, s.rule(verbs.FlowAttr{Flags: verbs.FlowAllowLoopBack}))
		busy.Go(func() {
			var wcs [16]verbs.WC
			for range 2000 {
				_ = s.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.SGE(0, slotLen)}})
				_ = s.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: frame})
				_, _ = s.cq.Poll(wcs[:])
			}
		})
		busy.Go(func() {
			for range 100 {
				must(t, s.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
				reset(t, s.qp)
				f := get(s.qp.CreateFlow(&verbs.FlowAttr{Port: 1, Type: verbs.FlowAttrSniffer}))(t)
				must(t, f.Close())
			}
		})
	}
	busy.Wait()
	for i, s := range list {
		must(t, rules[i].Close())
		reset(t, s.qp)
		for range 32 { // all slots are free
			must(t, s.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.SGE(0, slotLen)}}))
		}
		s.send(frame)
	}
}
