package soft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// network is a kind of link for the devices of a test.
type network struct {
	name string
	addr func(i int) netip.Addr
	open func(tb testing.TB) opener
}

// plain reports whether the packets of the network travel through plain sockets.
func (n *network) plain() bool {
	if runtime.GOOS != "linux" {
		return n.name != "mem"
	}
	return n.name == "udp" && os.Getenv("VERBENA_UDP") == "plain"
}

type opener = func(addrs []netip.Addr, ports int) (link.Link, error)

// lossy is a network that loses packets.
var lossy = fault.Faults{Loss: 0.1, Duplicate: 0.05, Reorder: 0.05, Corrupt: 0.05, Jitter: 100 * time.Microsecond,
	ReorderDelay: 200 * time.Microsecond}

// networks are the kinds of link that the tests run on. The UDP port is not 4791, which other programs of the host
// may use.
var networks = []network{
	{
		"mem",
		func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) },
		func(testing.TB) opener { return mem.NewFabric(mem.Config{}).Open },
	},
	{
		"udp",
		loopback,
		func(testing.TB) opener { return testUDP },
	},
	{
		"shm",
		loopback,
		func(testing.TB) opener { return testShm },
	},
}

// loopback returns addresses that concurrent runs of these tests do not use.
func loopback(i int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), byte(i + 11)})
}

func onEach(t *testing.T, f func(t *testing.T, n *network)) {
	for i := range networks {
		t.Run(networks[i].name, func(t *testing.T) { f(t, &networks[i]) })
	}
}

// end is one side of a test: a device, a context, and one object of each kind.
type end struct {
	tb  testing.TB
	dev *soft.Device
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	buf []byte
	mr  *verbs.MR
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		must(tb, err)
		return v
	}
}

// newEnds makes n ends on one network.
func newEnds(tb testing.TB, net *network, n int, change func(*soft.Config)) []*end {
	open := net.open(tb)
	var ends []*end
	for i := range n {
		c := softlink.On(soft.Config{Name: fmt.Sprintf("vrb_test%d", i), Addrs: []netip.Addr{net.addr(i)}, Shards: 2},
			softlink.Links{Open: open})
		if change != nil {
			change(&c)
		}
		ends = append(ends, newEnd(tb, get(soft.New(c))(tb)))
	}
	return ends
}

func newEnd(tb testing.TB, dev *soft.Device) *end {
	e := &end{tb: tb, dev: dev}
	e.ctx = get(dev.Open())(tb)
	tb.Cleanup(func() { must(tb, e.ctx.Close()) })
	e.pd = get(e.ctx.AllocPD())(tb)
	tb.Cleanup(func() { must(tb, e.pd.Close()) })
	e.cq = get(e.ctx.CreateCQ(256, nil))(tb)
	tb.Cleanup(func() { must(tb, e.cq.Close()) })
	e.buf = make([]byte, 1<<20)
	e.mr = get(e.pd.RegMR(e.buf, allAccess))(tb)
	tb.Cleanup(func() { must(tb, e.mr.Close()) })
	return e
}

func (e *end) qp(t verbs.QPType, change func(*verbs.QPInitAttr)) *verbs.QP {
	e.tb.Helper()
	init := verbs.QPInitAttr{
		Type: t, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
	}
	if change != nil {
		change(&init)
	}
	qp := get(e.pd.CreateQP(&init))(e.tb)
	e.tb.Cleanup(func() {
		if err := qp.Close(); !errors.Is(err, verbs.ErrClosed) { // the test may have closed it
			must(e.tb, err)
		}
	})
	return qp
}

// connect makes a connected pair of QPs.
func connect(a, b *end, t verbs.QPType, opts *verbs.ConnectOptions) (*verbs.QP, *verbs.QP) {
	a.tb.Helper()
	qa, qb := a.qp(t, nil), b.qp(t, nil)
	join(a.tb, qa, qb, opts)
	return qa, qb
}

func join(tb testing.TB, qa, qb *verbs.QP, opts *verbs.ConnectOptions) {
	tb.Helper()
	ia, ib := get(qa.LocalInfo())(tb), get(qb.LocalInfo())(tb)
	must(tb, qa.Connect(ib, opts))
	must(tb, qb.Connect(ia, opts))
}

// poll waits for n completions and returns them.
func (e *end) poll(n int) []verbs.WC {
	e.tb.Helper()
	var all []verbs.WC
	wcs := make([]verbs.WC, n)
	for start := time.Now(); len(all) < n; {
		got, err := e.cq.Poll(wcs[:n-len(all)])
		must(e.tb, err)
		all = append(all, wcs[:got]...)
		if time.Since(start) > 30*time.Second {
			e.tb.Fatalf("%d of %d completions after 30 s: %+v", len(all), n, all)
		}
	}
	return all
}

// good waits for n completions, which must be successful.
func (e *end) good(n int) []verbs.WC {
	e.tb.Helper()
	wcs := e.poll(n)
	for i := range wcs {
		must(e.tb, wcs[i].Err())
	}
	return wcs
}

// counter returns one of a device's counters.
func counter(d *soft.Device, name string) uint64 {
	for _, c := range d.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}

func (e *end) fill(seed byte) {
	for i := range e.buf {
		e.buf[i] = byte(i)*7 + byte(i>>8) + seed
	}
}
