package soft

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_PORT_04_MTUFollowsTheInterface: the active MTU of a port is that of its interface at the time, and limits the
// messages of existing UD and RAW_PACKET QPs. No event reports the change, as rxe has none either.
func TestV_PORT_04_MTUFollowsTheInterface(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	apart.Interface(t, "lo", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) })
	apart.Interface(t, "lo", unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(1500) })
	ctx := must2(must2(New(Config{Name: "vrb_lo", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}))(t).Open())(t)
	pd, cq := must2(ctx.AllocPD())(t), must2(ctx.CreateCQ(16, nil))(t)
	mr := must2(pd.RegMR(make([]byte, 8192), verbs.AccessLocalWrite))(t)
	create := func(typ verbs.QPType) *verbs.QP {
		return must2(pd.CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, SigAll: true,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	}
	ud, raw := create(verbs.QPTypeUD), create(verbs.QPTypeRawPacket)
	check(t, ud.Connect(verbs.QPInfo{}, nil))
	attr := must2(ud.AHAttrTo(must2(ud.LocalInfo())(t), nil))(t)
	ah := must2(pd.CreateAH(&attr))(t)
	defer func() {
		for _, c := range []interface{ Close() error }{ah, ud, raw, mr, cq, pd, ctx} {
			check(t, c.Close())
		}
	}()
	check(t, raw.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort))
	check(t, raw.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState))
	check(t, raw.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))

	// sends posts a message, takes its completion, and ends SQE.
	sends := func(qp *verbs.QP, n int, want verbs.WCStatus) {
		t.Helper()
		wr := verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(0, n)}}
		if qp == ud {
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, ud.QPN(), verbs.DefaultQKey
		}
		check(t, qp.PostSend(wr))
		var wcs [1]verbs.WC
		for begin := time.Now(); must2(cq.Poll(wcs[:]))(t) == 0; time.Sleep(50 * time.Microsecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatal("no completion")
			}
		}
		if wcs[0].Status != want {
			t.Errorf("%d bytes by QP %#x: %v, want %v", n, qp.QPN(), wcs[0].Err(), want)
		}
		if wcs[0].Status != verbs.WCSuccess {
			check(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))
		}
	}
	const frame = 14
	for _, c := range []struct {
		mtu    int
		active verbs.MTU
	}{{1500, verbs.MTU1024}, {9000, verbs.MTU4096}, {2500, verbs.MTU2048}, {4500, verbs.MTU4096}} {
		apart.Interface(t, "lo", unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(uint32(c.mtu)) })
		for begin := time.Now(); must2(ctx.QueryPort(1))(t).ActiveMTU != c.active; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("MTU %d: active MTU %v", c.mtu, must2(ctx.QueryPort(1))(t).ActiveMTU)
			}
		}
		sends(ud, c.active.Bytes(), verbs.WCSuccess)
		sends(ud, c.active.Bytes()+1, verbs.WCLocLenErr)
		if c.mtu+frame <= 8192 {
			sends(raw, c.mtu+frame, verbs.WCSuccess)
			sends(raw, c.mtu+frame+5, verbs.WCLocLenErr)
		}
	}
	if ev, err := ctx.TryGetAsyncEvent(); err == nil {
		t.Errorf("event %v", ev.Type)
	}
}
