package soft

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestFaultsVariable(t *testing.T) {
	got, err := parseFaults("loss=0.01, duplicate=0.5,reorder=0,corrupt=1e-3,delay=2ms,jitter=10us,seed=0x10")
	if err != nil {
		t.Fatal(err)
	}
	want := fault.Faults{Loss: 0.01, Duplicate: 0.5, Corrupt: 0.001, Delay: 2 * time.Millisecond,
		Jitter: 10 * time.Microsecond}
	if f := got.Send; f.Loss != want.Loss || f.Duplicate != want.Duplicate || f.Reorder != 0 ||
		f.Corrupt != want.Corrupt ||
		f.Delay != want.Delay || f.Jitter != want.Jitter || got.Seed != 16 {
		t.Errorf("%+v", got)
	}
	if got, err := parseFaults("delay=0s,jitter=1m"); err != nil || got.Send.Delay != 0 || got.Send.Jitter != time.Minute {
		t.Errorf("the least and the largest time: %+v, %v", got, err)
	}
	for _, bad := range []string{"loss", "loss=1", "loss=-0.1", "loss=x", "delay=5", "delay=2m", "delay=-1ms", "seed=-1",
		"lost=0.1", ",", "loss=0.1,loss=0.2"} {
		if _, err := parseFaults(bad); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%q: %v, want EINVAL", bad, err)
		}
	}
}

// TestBadFaultsKeepNoLink: a device that does not open for a wrong value of VERBENA_FAULT closes the link that it had
// opened, so that another device can have its address.
func TestBadFaultsKeepNoLink(t *testing.T) {
	address := loopback.Addr(7)
	t.Setenv("VERBENA_DEVICES", "vrb_misnamed="+address)
	t.Setenv(envFault, "lost=0.1")
	vctx := made(verbs.Open("vrb_misnamed"))(t)
	pd, cq := made(vctx.AllocPD())(t), made(vctx.CreateCQ(1, nil))(t)
	_, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq})
	if !errors.Is(err, verbs.EINVAL) {
		t.Fatalf("%v, want EINVAL", err)
	}
	if err := errors.Join(cq.Close(), pd.Close(), vctx.Close()); err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), wire.Port)))
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	c.Close()
}

// TestDeviceUnderFaults: a device with VERBENA_FAULT delivers all data, by retransmissions.
func TestDeviceUnderFaults(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_faulty="+loopback.Addr(1))
	t.Setenv(envFault, "loss=0.2,duplicate=0.1,reorder=0.1,corrupt=0.05,seed=3")
	vctx, err := verbs.Open("vrb_faulty")
	if err != nil {
		t.Fatal(err)
	}
	pd, _ := vctx.AllocPD()
	cq, _ := vctx.CreateCQ(64, nil)
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}}
	a, err := pd.CreateQP(&init)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pd.CreateQP(&init)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(make([]byte, 200<<10), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, o := range []interface{ Close() error }{a, b, mr, cq, pd, vctx} {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, x := range [][2]*verbs.QP{{a, b}, {b, a}} {
		info, err := x[1].LocalInfo()
		if err != nil {
			t.Fatal(err)
		}
		if err := x[0].Connect(info, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 << 10 {
		mr.Bytes()[i] = byte(i * 7)
	}
	err = a.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{mr.SGE(0, 100<<10)},
		RemoteAddr: mr.Addr() + 100<<10, RKey: mr.RKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var wcs [1]verbs.WC
	for end := time.Now().Add(30 * time.Second); ; {
		n, err := cq.Poll(wcs[:])
		if err != nil || time.Now().After(end) {
			t.Fatal("no completion: ", err)
		}
		if n > 0 {
			break
		}
	}
	if err := wcs[0].Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 << 10 {
		if got := mr.Bytes()[100<<10+i]; got != byte(i*7) {
			t.Fatalf("byte %d is %#x", i, got)
		}
	}
	if c := driver.Of[*device](vctx.Device()).running().Counters(); c.QP.RetransmitPackets == 0 {
		t.Logf("counters %+v", c)
		t.Error("no packet was sent twice: there were no faults")
	}
}
