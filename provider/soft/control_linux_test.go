package soft_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// visible makes two ends on devices that tools see, under names of their own.
func visible(t *testing.T) (x, y *end) {
	t.Helper()
	ends := newEnds(t, &networks[1], 2, func(c *soft.Config) { c.Link, c.Name = nil, strings.ReplaceAll(t.Name(), "/", "-")+c.Name })
	return ends[0], ends[1]
}

// mine is what this process tells of a device.
func mine(t *testing.T, e *end) (d control.Device) {
	t.Helper()
	reports, _, err := control.Reports(true)
	must(t, err)
	n := 0
	for _, r := range reports {
		for _, o := range r.Devices {
			if r.PID == os.Getpid() && o.Name == e.dev.Name() {
				n++
				d = o
			}
		}
	}
	if n != 1 {
		t.Fatalf("the device is in %d reports of %+v", n, reports)
	}
	return d
}

// Tools are told of every object, with its owner, who uses it, and its numbers.
func TestReportsHaveObjects(t *testing.T) {
	x, y := visible(t)
	qx, qy := connect(x, y, verbs.QPTypeRC, nil)
	cq := get(x.ctx.CreateCQ(5, nil))(t)
	t.Cleanup(func() { must(t, cq.Close()) })
	srq := newSRQ(t, x, 8, 1)
	var numbers []uint32
	for range 3 {
		q := x.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ, init.SendCQ = srq, cq })
		numbers = append(numbers, q.QPN())
	}
	slices.Sort(numbers)
	pd := get(x.ctx.AllocPD())(t)
	t.Cleanup(func() { must(t, pd.Close()) })
	mr := get(pd.RegMR(make([]byte, 100), verbs.AccessRemoteRead))(t)
	t.Cleanup(func() { must(t, mr.Close()) })
	domain := get(x.ctx.OpenXRCD(&verbs.XRCDInitAttr{CompMask: verbs.XRCDInitFD | verbs.XRCDInitOFlags, FD: -1, OFlags: os.O_CREATE}))(t)
	t.Cleanup(func() { must(t, domain.Close()) })
	xsrq := get(x.ctx.CreateSRQEx(&verbs.SRQInitAttrEx{
		CompMask: verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitXRCD | verbs.SRQInitCQ,
		Type:     verbs.SRQTypeXRC, PD: pd, XRCD: domain, CQ: cq, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1},
	}))(t)
	t.Cleanup(func() { must(t, xsrq.Close()) })

	d := mine(t, x)
	if d.Contexts != 1 || d.PDs != 2 || d.CQs != 2 || d.MRs != 2 || d.SRQs != 2 || len(d.QPs) != 4 {
		t.Errorf("%+v", d)
	}
	want := &control.Objects{
		Contexts: []uint32{1},
		PDs:      []control.PD{{Num: 1, Users: 6, Context: 1}, {Num: 2, Users: 2, Context: 1}},
		CQs:      []control.CQ{{Num: 1, CQE: x.cq.Cap(), Users: 2 + 3, Context: 1}, {Num: 2, CQE: cq.Cap(), Users: 3, Context: 1}},
		MRs: []control.MR{
			{Num: x.mr.LKey() >> 8, LKey: x.mr.LKey(), RKey: x.mr.RKey(), Len: 1 << 20, PD: 1},
			{Num: mr.LKey() >> 8, LKey: mr.LKey(), RKey: mr.RKey(), Len: 100, PD: 2},
		},
		SRQs: []control.SRQ{{Num: 1, Type: "BASIC", QPs: numbers, PD: 1}, {Num: 2, Type: "XRC", QPs: []uint32{}, PD: 2, CQ: 2}},
	}
	if !reflect.DeepEqual(d.Objects, want) {
		t.Errorf("%+v\nwant\n%+v", d.Objects, want)
	}
	i := slices.IndexFunc(d.QPs, func(q control.QP) bool { return q.Num == qx.QPN() })
	if i < 0 || d.QPs[i].Dest != qy.QPN() || d.QPs[i].State != "RTS" || d.QPs[i].Type != "RC" || d.QPs[i].PD != 1 || d.QPs[i].Peer == "" {
		t.Errorf("%+v", d.QPs)
	}
}

// Objects that are gone are not told of, and a device that is closed is not; its process does not answer then.
func TestReportsForget(t *testing.T) {
	before := descriptorsOf(t)
	t.Run("open", func(t *testing.T) {
		x, _ := visible(t)
		cq := get(x.ctx.CreateCQ(5, nil))(t)
		pd := get(x.ctx.AllocPD())(t)
		mr := get(pd.RegMR(make([]byte, 100), 0))(t)
		must(t, mr.Close())
		must(t, pd.Close())
		must(t, cq.Close())
		if d := mine(t, x); d.PDs != 1 || d.CQs != 1 || d.MRs != 1 {
			t.Errorf("%+v", d)
		}
	})
	names, err := control.Processes()
	must(t, err)
	if slices.Contains(names, control.Name(os.Geteuid(), os.Getpid())) {
		t.Errorf("it is still in %q", names)
	}
	if after := descriptorsOf(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func descriptorsOf(t *testing.T) int {
	t.Helper()
	list := get(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

// Clients that ask for captures and never read, or talk junk, harm nobody: traffic goes on, and the devices close at once.
func TestCaptureClientsMisbehave(t *testing.T) {
	var slowest time.Duration
	t.Run("open", func(t *testing.T) {
		var closing time.Time
		t.Cleanup(func() { slowest = max(slowest, time.Since(closing)) }) // the last one to run
		x, y := visible(t)
		qx, _ := connect(x, y, verbs.QPTypeRC, nil)
		t.Cleanup(func() { closing = time.Now() })
		name := control.Name(os.Geteuid(), os.Getpid())
		for _, says := range []string{
			"capture %s\n", "capture %s @verbena-capture/0/1\n", "capture nothing\n", "capture\n", "capture %s\nand more\n", "junk", "objects\n",
		} {
			c := get(net.Dial("unix", name))(t)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(time.Minute)))
			if n := len(says); n > 10 && says[8] == '%' {
				says = fmt.Sprintf(says, x.dev.Name())
			}
			get(io.WriteString(c, says))(t)
		}
		for i := range 300 {
			wr := verbs.SendWR{
				Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{x.mr.SGE(0, 256<<10)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
			}
			begun := time.Now()
			must(t, qx.PostSend(wr))
			x.good(1)
			if d := time.Since(begun); i > 10 {
				slowest = max(slowest, d)
			}
		}
	})
	if slowest > 5*time.Second {
		t.Errorf("something took %v", slowest)
	}
	t.Logf("nothing took more than %v", slowest)
}
