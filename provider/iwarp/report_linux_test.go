package iwarp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// ask asks this process a question of the tools.
func ask(question string, answer func(*bufio.Reader) error) error {
	c, err := net.Dial("unix", control.Name(os.Geteuid(), os.Getpid()))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, question); err != nil {
		return err
	}
	return answer(bufio.NewReader(c))
}

// tryReport returns this process's report of the device.
func tryReport() (control.Device, error) {
	var r control.Report
	err := ask(control.AskObjects, func(b *bufio.Reader) error { return json.NewDecoder(b).Decode(&r) })
	i := slices.IndexFunc(r.Devices, func(d control.Device) bool { return d.Name == "vrw_lo" })
	if i < 0 {
		return control.Device{}, fmt.Errorf("no vrw_lo in %+v: %w", r, err)
	}
	return r.Devices[i], err
}

func report(t *testing.T) control.Device {
	t.Helper()
	d, err := tryReport()
	must(t, err)
	return d
}

// qpOf returns a QP of a report.
func qpOf(t *testing.T, d control.Device, e *end) control.QP {
	t.Helper()
	i := slices.IndexFunc(d.QPs, func(q control.QP) bool { return q.Num == e.QP().QPN() })
	if i < 0 {
		t.Fatalf("no QP %d in %+v", e.QP().QPN(), d.QPs)
	}
	return d.QPs[i]
}

// value returns a counter.
func value(list []control.Counter, name string) uint64 {
	for _, c := range list {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}

// Reports have the QPs with their connection, and what uses their PDs and CQs.
func TestReportsHaveQPs(t *testing.T) {
	c, s := connect(t)
	d := report(t)
	for _, e := range []*end{c, s} {
		q := qpOf(t, d, e)
		if q.Type != "RC" || q.State != "RTS" || q.Mig != "MIGRATED" || q.Dest != 0 ||
			q.Local != e.LocalAddr().String() || q.Peer != e.PeerAddr().String() {
			t.Errorf("%+v: must be from %v to %v", q, e.LocalAddr(), e.PeerAddr())
		}
		if i := slices.IndexFunc(d.Objects.PDs, func(p control.PD) bool { return p.Num == q.PD }); i < 0 ||
			d.Objects.PDs[i].Users < 2 {
			t.Errorf("PD %d: must have the QP and a region in %+v", q.PD, d.Objects.PDs)
		}
	}
	uses := 0
	for _, cq := range d.Objects.CQs {
		uses += cq.Users
	}
	if uses != 2*len(d.QPs) {
		t.Errorf("%d uses of CQs by %d QPs: %+v", uses, len(d.QPs), d.Objects.CQs)
	}
	must(t, c.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
	if q := qpOf(t, report(t), c); q.State != "ERR" || q.Peer == "" {
		t.Errorf("after a failure: %+v", q)
	}
	must(t, c.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	if q := qpOf(t, report(t), c); q.State != "RESET" || q.Peer != "" || q.Local != "" {
		t.Errorf("after a reset: %+v", q)
	}
}

// The counters of a QP are those of its traffic, and those of the device are their sums, also after the QP is gone.
func TestCountersOfTraffic(t *testing.T) {
	c, s := connect(t)
	before := report(t).Counters
	const size, times = 100_000, 5
	for range times {
		c.sent(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, size), RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()})
	}
	c.sent(verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: c.sge(0, size), RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()})
	check := func(where string, list []control.Counter, wants map[string]uint64) {
		t.Helper()
		for name, want := range wants {
			if n := value(list, name); n < want || n > want+want/100 { // headers, and repetitions of READs
				t.Errorf("%s: %s is %d: must be %d", where, name, n, want)
			}
		}
	}
	d := report(t)
	of := map[string]uint64{"tx_data_bytes": times * size, "rx_data_bytes": size, "tx_bytes": times * size,
		"rx_bytes": size, "rx_write_requests": 0}
	check("client", qpOf(t, d, c).Counters, of)
	check("server", qpOf(t, d, s).Counters, map[string]uint64{"tx_data_bytes": size, "rx_data_bytes": times * size,
		"rx_write_requests": times, "rx_read_requests": 1})
	if n := value(qpOf(t, d, c).Counters, "sent_pkts"); n == 0 {
		t.Error("TCP has sent no segment")
	}
	var own []control.Counter
	for _, n := range soft.QPCounters(c.QP()) {
		own = append(own, control.Counter(n))
	}
	check("soft.QPCounters", own, of)
	must(t, c.DestroyQP())
	must(t, s.DestroyQP())
	d = report(t)
	for name, want := range map[string]uint64{"tx_data_bytes": (times + 1) * size, "rx_data_bytes": (times + 1) * size,
		"rx_write_requests": times, "rx_read_requests": 1} {
		if n := value(d.Counters, name) - value(before, name); n != want {
			t.Errorf("device: %s has grown by %d: must be %d", name, n, want)
		}
	}
	files := make(map[string]uint64)
	must(t, ask(control.AskCounters+" vrw_lo", func(b *bufio.Reader) error {
		for {
			var name string
			var n uint64
			if _, err := fmt.Fscanln(b, &name, &n); err != nil {
				return nil // the end
			}
			files[name] = n
		}
	}))
	if files["counters/port_xmit_data"]*4 < (times+1)*size || files["hw_counters/rx_write_requests"] < times {
		t.Errorf("files %v", files)
	}
}

// The counters of a device begin at 0 when it is opened.
func TestCountersBeginAtZero(t *testing.T) {
	t.Run("first", func(t *testing.T) {
		c, s := connect(t)
		c.sent(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, 100), RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()})
	})
	ctx, err := device(t).Open()
	must(t, err)
	defer func() { must(t, ctx.Close()) }()
	for _, n := range soft.Counters(ctx.Device()) {
		if n.Value != 0 {
			t.Errorf("%s is %d", n.Name, n.Value)
		}
	}
	if len(soft.Counters(ctx.Device())) == 0 {
		t.Error("no counters")
	}
}

// Reports may be made while QPs work, fail and go.
func TestReportsOfQPsThatWork(t *testing.T) {
	var asked sync.WaitGroup
	stop := make(chan struct{})
	listen(t, newHost(t)) // the device stays open
	asked.Go(func() {
		for last := uint64(0); ; {
			select {
			case <-stop:
				return
			default:
			}
			d, err := tryReport()
			if err != nil {
				t.Error(err)
				return
			}
			n := value(d.Counters, "tx_data_bytes")
			if n < last {
				t.Errorf("tx_data_bytes fell from %d to %d", last, n)
			}
			last = n
		}
	})
	defer asked.Wait()
	defer close(stop)
	for range 5 {
		t.Run("", func(t *testing.T) {
			c, s := connect(t)
			for range 20 {
				c.sent(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, 50_000), RemoteAddr: s.mr.Addr(),
					RKey: s.mr.RKey()})
			}
		})
	}
}
