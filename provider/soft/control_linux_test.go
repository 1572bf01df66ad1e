package soft_test

import (
	"bufio"
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
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// newVisible makes two ends on devices that tools see, with unique names.
func newVisible(t *testing.T) (x, y *end) {
	t.Helper()
	ends := newEnds(t, &networks[1], 2, func(c *soft.Config) {
		softlink.Set(c, softlink.Links{})
		c.Name = strings.ReplaceAll(t.Name(), "/", "-") + c.Name
	})
	return ends[0], ends[1]
}

// ownReport returns this process's report of a device.
func ownReport(t *testing.T, e *end) (d control.Device) {
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

// TestCountersAnswerForTheDevice: the question counters has the values of the device that it names, and no others.
func TestCountersAnswerForTheDevice(t *testing.T) {
	x, y := newVisible(t)
	qx, _ := connect(x, y, verbs.QPTypeRC, nil)
	const size = 1000
	before := askCounters(t, y.dev.Name())["hw_counters/rx_write_requests"]
	wr := rdma(x, y, verbs.WRRDMAWrite, size)
	must(t, qx.PostSend(wr))
	x.good(1)
	now := askCounters(t, y.dev.Name())
	if n := now["hw_counters/rx_write_requests"]; before != 0 || n != 1 {
		t.Errorf("%d and %d WRITE requests in %v: must be 0 and 1", before, n, now)
	}
	if n := now["counters/port_rcv_data"]; n < size/4 || n > size {
		t.Errorf("%d words received: must be those of %d bytes and headers", n, size)
	}
	if list := askCounters(t, "vrb_none"); len(list) != 0 {
		t.Errorf("counters of a device that is not open: %v", list)
	}
}

// askCounters asks this process for the counters of a device.
func askCounters(t *testing.T, device string) map[string]uint64 {
	t.Helper()
	c, err := net.Dial("unix", control.Name(os.Geteuid(), os.Getpid()))
	must(t, err)
	defer c.Close()
	fmt.Fprintf(c, "counters %s\n", device)
	list := make(map[string]uint64)
	for r := bufio.NewReader(c); ; {
		var name string
		var value uint64
		if _, err := fmt.Fscanln(r, &name, &value); err != nil {
			return list
		}
		list[name] = value
	}
}

// TestReportsHaveObjects: reports have every object with its number, its owner and its users.
func TestReportsHaveObjects(t *testing.T) {
	x, y := newVisible(t)
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
	domain := get(x.ctx.OpenXRCD(&verbs.XRCDInitAttr{OFlags: os.O_CREATE}))(t)
	t.Cleanup(func() { must(t, domain.Close()) })
	xsrq := get(pd.CreateSRQ(&verbs.SRQInitAttr{
		Type: verbs.SRQTypeXRC, XRCD: domain, CQ: cq, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1},
	}))(t)
	t.Cleanup(func() { must(t, xsrq.Close()) })

	d := ownReport(t, x)
	if d.Contexts != 1 || d.PDs != 2 || d.CQs != 2 || d.MRs != 2 || d.SRQs != 2 || len(d.QPs) != 4 {
		t.Errorf("%+v", d)
	}
	want := &control.Objects{
		Contexts: []uint32{1},
		PDs:      []control.PD{{Num: 1, Users: 6, Context: 1}, {Num: 2, Users: 2, Context: 1}},
		CQs: []control.CQ{{Num: 1, CQE: x.cq.Cap(), Users: 2 + 3, Context: 1},
			{Num: 2, CQE: cq.Cap(), Users: 3, Context: 1}},
		MRs: []control.MR{
			{Num: 1, LKey: x.mr.LKey(), RKey: x.mr.RKey(), Len: 1 << 20, PD: 1},
			{Num: 2, LKey: mr.LKey(), RKey: mr.RKey(), Len: 100, PD: 2},
		},
		SRQs: []control.SRQ{{Num: 1, Type: "BASIC", QPs: numbers, PD: 1},
			{Num: 2, Type: "XRC", QPs: []uint32{}, PD: 2, CQ: 2}},
	}
	if !reflect.DeepEqual(d.Objects, want) {
		t.Errorf("%+v\nwant\n%+v", d.Objects, want)
	}
	i := slices.IndexFunc(d.QPs, func(q control.QP) bool { return q.Num == qx.QPN() })
	if i < 0 || d.QPs[i].Dest != qy.QPN() || d.QPs[i].State != "RTS" || d.QPs[i].Type != "RC" || d.QPs[i].PD != 1 ||
		d.QPs[i].Peer == "" {
		t.Errorf("%+v", d.QPs)
	}
}

// TestReportsOmitClosedObjects: reports do not have closed objects and devices. Without an open device the process
// does not answer.
func TestReportsOmitClosedObjects(t *testing.T) {
	before := descriptorsOf(t)
	t.Run("open", func(t *testing.T) {
		x, _ := newVisible(t)
		cq := get(x.ctx.CreateCQ(5, nil))(t)
		pd := get(x.ctx.AllocPD())(t)
		mr := get(pd.RegMR(make([]byte, 100), 0))(t)
		must(t, mr.Close())
		must(t, pd.Close())
		must(t, cq.Close())
		if d := ownReport(t, x); d.PDs != 1 || d.CQs != 1 || d.MRs != 1 {
			t.Errorf("%+v", d)
		}
	})
	names, err := control.Processes()
	must(t, err)
	if slices.Contains(names, control.Name(os.Geteuid(), os.Getpid())) {
		t.Errorf("this process is still in %q", names)
	}
	waitFor(t, "descriptors to be closed", func() bool { return descriptorsOf(t) <= before })
}

func descriptorsOf(t *testing.T) int {
	t.Helper()
	list := get(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

// TestCaptureClientsMisbehave: clients that request captures without reading, or send invalid requests, do not delay
// traffic or the closing of the devices.
func TestCaptureClientsMisbehave(t *testing.T) {
	var slowest time.Duration
	t.Run("open", func(t *testing.T) {
		var closing time.Time
		t.Cleanup(func() { slowest = max(slowest, time.Since(closing)) }) // runs last
		x, y := newVisible(t)
		qx, _ := connect(x, y, verbs.QPTypeRC, nil)
		t.Cleanup(func() { closing = time.Now() })
		name := control.Name(os.Geteuid(), os.Getpid())
		for _, request := range []string{
			"capture %s\n", "capture %s @verbena-capture/0/1\n", "capture nothing\n", "capture\n", "capture %s\nand more\n",
			"junk", "objects\n",
		} {
			c := get(net.Dial("unix", name))(t)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(time.Minute)))
			if n := len(request); n > 10 && request[8] == '%' {
				request = fmt.Sprintf(request, x.dev.Name())
			}
			get(io.WriteString(c, request))(t)
		}
		for i := range 300 {
			wr := verbs.SendWR{
				Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{x.mr.SGE(0, 256<<10)},
				RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
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
		t.Errorf("the slowest step took %v", slowest)
	}
	t.Logf("the slowest step took %v", slowest)
}
