package soft_test

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// pacedPair is two devices in virtual time, with objects for one QP each.
type pacedPair struct {
	t   *testing.T
	f   *rdmatest.Fabric
	pd  [2]*verbs.PD
	cq  [2]*verbs.CQ
	mr  [2]*verbs.MR
	qp  [2]*verbs.QP
	wcs []verbs.WC
}

func newPacedPair(t *testing.T, typ verbs.QPType) *pacedPair {
	p := &pacedPair{t: t, f: rdmatest.New(rdmatest.Config{}), wcs: make([]verbs.WC, 64)}
	for i, name := range []string{"a", "b"} {
		vctx := get(p.f.Open(name))(t)
		p.pd[i] = get(vctx.AllocPD())(t)
		p.cq[i] = get(vctx.CreateCQ(1024, nil))(t)
		p.mr[i] = get(p.pd[i].RegMR(make([]byte, 1<<20), allAccess))(t)
		p.qp[i] = get(p.pd[i].CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: p.cq[i], RecvCQ: p.cq[i],
			Cap: verbs.QPCap{MaxSendWR: 512, MaxRecvWR: 512, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	}
	join(t, p.qp[0], p.qp[1], nil)
	t.Cleanup(func() {
		for i := range p.qp {
			for _, c := range []interface{ Close() error }{p.qp[i], p.mr[i], p.cq[i], p.pd[i]} {
				must(t, c.Close())
			}
		}
		must(t, p.f.Close())
	})
	return p
}

// static sets the static rate of the path of a QP.
func (p *pacedPair) static(qp *verbs.QP, rate verbs.StaticRate) {
	p.t.Helper()
	toSQD(p.t, qp)
	attr, _, err := qp.Query(verbs.QPAttrAV)
	must(p.t, err)
	attr.AHAttr.StaticRate = rate
	must(p.t, qp.Modify(&verbs.QPAttr{AHAttr: attr.AHAttr}, verbs.QPAttrAV))
	backToRTS(p.t, qp)
}

// takes runs until n requests of a are complete and returns the time.
func (p *pacedPair) takes(n int, wrs ...verbs.SendWR) time.Duration {
	p.t.Helper()
	start := p.f.Now()
	must(p.t, p.qp[0].PostSend(wrs...))
	done := func() bool {
		for n > 0 {
			got := get(p.cq[0].Poll(p.wcs))(p.t)
			for i := range p.wcs[:got] {
				must(p.t, p.wcs[i].Err())
			}
			if n -= got; got == 0 {
				break
			}
		}
		return n <= 0
	}
	if !p.f.Run(done, time.Minute) {
		p.t.Fatalf("%d requests are not complete after a minute", n)
	}
	return p.f.Now() - start
}

// near reports a time that differs from the one at a rate by more than 2 %.
func near(t *testing.T, what string, took time.Duration, bytes int, mbps float64) {
	t.Helper()
	want := time.Duration(float64(bytes) * 8 / mbps * 1000)
	if took < want*98/100 || took > want*102/100 {
		t.Errorf("%s: %v, want %v: %.0f Mb/s instead of %.0f", what, took, want, float64(bytes)*8000/float64(took), mbps)
	}
}

// Headers of packets over IPv4, bytes: IP, UDP, BTH, ICRC; of a READ response and a datagram in addition.
const (
	pacedHeaders = 20 + 8 + 12 + 4
	detHeader    = 8
)

// TestV_AH_01_StaticRateInVirtualTime: the packets of RC, UC and UD QPs leave at the static rate of their path, and
// READ responses at that of the responder's.
func TestV_AH_01_StaticRateInVirtualTime(t *testing.T) {
	const size, mtu = 1 << 20, 4096
	wire := size + size/mtu*pacedHeaders
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		p := newPacedPair(t, typ)
		if took := p.takes(1, p.write(size)); took > time.Millisecond {
			t.Errorf("%v without a rate: %v", typ, took)
		}
		for rate, mbps := range map[verbs.StaticRate]float64{verbs.Rate2500Mbps: 2500, verbs.Rate10Gbps: 10000,
			verbs.Rate14Gbps: 14062} {
			p.static(p.qp[0], rate)
			near(t, typ.String()+" "+rate.String(), p.takes(2, p.write(size), p.write(size)), 2*wire, mbps)
		}
		if typ == verbs.QPTypeRC {
			p.static(p.qp[0], verbs.RateMax)
			p.static(p.qp[1], verbs.Rate5Gbps)
			read := p.write(size)
			read.Opcode = verbs.WRRDMARead
			near(t, "READ responses", p.takes(1, read), wire, 5000)
			if took := p.takes(1, p.write(size)); took > time.Millisecond {
				t.Errorf("a WRITE is as slow as the peer: %v", took)
			}
		}
	}
	p := newPacedPair(t, verbs.QPTypeUD)
	attr := get(p.qp[0].AHAttrTo(get(p.qp[1].LocalInfo())(t), nil))(t)
	attr.StaticRate = verbs.Rate2500Mbps
	ah := get(p.pd[0].CreateAH(&attr))(t)
	defer ah.Close()
	var wrs []verbs.SendWR
	for range 200 {
		wrs = append(wrs, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: p.qp[1].QPN(),
			RemoteQKey: verbs.DefaultQKey, SGList: []verbs.SGE{p.mr[0].SGE(0, 4096)}})
	}
	near(t, "UD", p.takes(200, wrs...), 199*(4096+pacedHeaders+detHeader), 2500) // the last one completes when it is sent
}

// write is a WRITE of n bytes.
func (p *pacedPair) write(n int) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.mr[0].SGE(0, n)},
		RemoteAddr: p.mr[1].Addr(), RKey: p.mr[1].RKey()}
}

// TestX_QPM_01_RateLimitInVirtualTime: modify_qp_rate_limit holds for a connected QP, the lower of it and the static
// rate counts, the burst leaves at once, and RESET removes the limit.
func TestX_QPM_01_RateLimitInVirtualTime(t *testing.T) {
	const size, mtu = 1 << 20, 4096
	wire := size + size/mtu*pacedHeaders
	p := newPacedPair(t, verbs.QPTypeRC)
	must(t, p.qp[0].ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 100_000}))
	near(t, "100 Mb/s", p.takes(1, p.write(size)), wire, 100)
	if attr, _, err := p.qp[0].Query(0); err != nil || attr.RateLimit != 100_000 {
		t.Errorf("rate_limit %d, %v", attr.RateLimit, err)
	}
	p.static(p.qp[0], verbs.Rate2500Mbps)
	near(t, "100 Mb/s below the static rate", p.takes(1, p.write(size)), wire, 100)
	must(t, p.qp[0].ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 5_000_000}))
	near(t, "the static rate", p.takes(1, p.write(size)), wire, 2500)
	p.static(p.qp[0], verbs.RateMax)
	must(t, p.qp[0].ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 100_000, MaxBurstSz: size / 2}))
	p.f.Run(func() bool { return false }, time.Second)
	near(t, "half of it at once", p.takes(1, p.write(size)), wire-size/2, 100)
	must(t, p.qp[0].ModifyRateLimit(&verbs.QPRateLimitAttr{}))
	if took := p.takes(1, p.write(size)); took > time.Millisecond {
		t.Errorf("without a limit: %v", took)
	}
}

// TestRateOverUDP: over sockets, whose timers are late, nothing leaves earlier than the rate allows.
func TestRateOverUDP(t *testing.T) {
	ends := newEnds(t, &networks[1], 2, nil)
	a, b := ends[0], ends[1]
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	const n, size, mbps = 100, 8192, 50
	must(t, qa.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: mbps * 1000}))
	start := time.Now()
	for i := range n {
		wr := send(a, size)
		wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
		must(t, qa.PostSend(wr))
		if i >= 10 {
			a.good(1)
		}
	}
	a.good(10)
	took := time.Since(start)
	least := time.Duration(float64((n-1)*size*8)/mbps*1000) - 2*time.Millisecond
	t.Logf("%d bytes in %v: %.1f Mb/s", n*size, took, float64(n*size*8000)/float64(took))
	if took < least {
		t.Errorf("%v, must be at least %v", took, least)
	}
}
