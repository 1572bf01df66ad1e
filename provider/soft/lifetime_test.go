package soft_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd on this system")
	}
	return len(list)
}

// TestV_CTX_05_ClosedDevicesLeakNothing: a closed device leaves no goroutine and no descriptor.
func TestV_CTX_05_ClosedDevicesLeakNothing(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		use := func() {
			t.Run("use", func(t *testing.T) {
				ends := newEnds(t, n, 2, nil)
				a, b := newSleeper(t, ends[0]), ends[1]
				qa, qb := connect(a.end, b, verbs.QPTypeRC, nil)
				must(t, qb.PostRecv(recv(b, 1, 10)))
				must(t, qa.PostSend(send(a.end, 10)))
				a.good(1)
				b.good(1)
			})
		}
		use() // the runtime opens its own descriptors the first time
		goroutines, fds := runtime.NumGoroutine(), descriptors(t)
		for range 3 {
			use()
		}
		waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
		if now := descriptors(t); now > fds {
			t.Errorf("%d descriptors, %d before", now, fds)
		}
	})
}

// TestV_CTX_01_ContextsShareTheDevice: contexts of one device share its engine: QPs of both can be connected, and the
// port is bound once, from the first QP until the last context is closed.
func TestV_CTX_01_ContextsShareTheDevice(t *testing.T) {
	dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{loopback(0)}}, softlink.Links{Open: testUDP})))(t)
	newEnd(t, dev)
	free := func() bool {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback(0), testPort)))
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	if !free() {
		t.Error("the port is taken before the first QP")
	}
	t.Run("use", func(t *testing.T) {
		a, b := newEnd(t, dev), newEnd(t, dev)
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		if qa.QPN() == qb.QPN() {
			t.Errorf("both QPs have number %d", qa.QPN())
		}
		must(t, qb.PostRecv(recv(b, 1, 10)))
		must(t, qa.PostSend(send(a, 10)))
		a.good(1)
		b.good(1)
	})
	if free() {
		t.Error("the port is free while there are contexts")
	}
}

const testPort = 14791

func testUDP(addrs []netip.Addr, ports int) (link.Link, error) {
	return udp.Open(udp.Config{Addrs: addrs, Ports: ports, Port: testPort})
}

// testShm opens UDP with shared memory between devices of different addresses, where the system supports it.
func testShm(addrs []netip.Addr, ports int) (link.Link, error) {
	l, err := testUDP(addrs, ports)
	if err != nil {
		return nil, err
	}
	return shm.Near(l, addrs, testPort), nil
}

// TestDeviceReopens: a device whose last context was closed can be opened again.
func TestDeviceReopens(t *testing.T) {
	dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{loopback(0)}}, softlink.Links{Open: testUDP})))(t)
	for range 3 {
		t.Run("use", func(t *testing.T) {
			a := newEnd(t, dev)
			qa, qb := connect(a, a, verbs.QPTypeRC, nil)
			must(t, qb.PostRecv(recv(a, 1, 10)))
			must(t, qa.PostSend(send(a, 10)))
			a.good(2)
		})
	}
}

func TestPortTakenByAnotherProgram(t *testing.T) {
	c := get(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback(0), testPort))))(t)
	dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{loopback(0)}}, softlink.Links{Open: testUDP})))(t)
	e := newEnd(t, dev) // opening the device does not bind the port
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq}
	_, err := e.pd.CreateQP(&init)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), loopback(0).String()) {
		t.Errorf("CreateQP: %v", err)
	}
	must(t, c.Close())
	qp := get(e.pd.CreateQP(&init))(t) // the port is free now
	must(t, qp.Close())
}

func TestV_QP_06_UnsupportedTypes(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	for _, typ := range []verbs.QPType{verbs.QPTypeRawPacket} {
		_, err := e.pd.CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: e.cq, RecvCQ: e.cq})
		if !errors.Is(err, verbs.ENOSYS) {
			t.Errorf("%v: %v", typ, err)
		}
	}
	_, err := e.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxInlineData: 1 << 20}})
	if !errors.Is(err, verbs.EINVAL) {
		t.Errorf("1 MiB inline: %v", err)
	}
	if _, err := e.pd.RegMR(e.buf, verbs.AccessFlushPersistent); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("persistent memory: %v", err)
	}
}

func TestWrongConfigs(t *testing.T) {
	one := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	for name, c := range map[string]soft.Config{
		"no address":        {},
		"name":              {Name: "a b", Addrs: one},
		"shards":            {Shards: 65, Addrs: one},
		"negative shards":   {Shards: -1, Addrs: one},
		"multicast address": {Addrs: []netip.Addr{netip.MustParseAddr("239.1.1.1")}},
		"zero address":      {Addrs: []netip.Addr{{}}},
	} {
		if _, err := soft.New(c); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEventAfterPolling: a program that polls and then blocks receives its event, however long it polled.
func TestEventAfterPolling(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := newSleeper(t, ends[0]), newSleeper(t, ends[1])
		qa, qb := connect(a.end, b.end, verbs.QPTypeRC, nil)
		for i := range 30 {
			poll(t, b.end, time.Duration(i%4)*700*time.Microsecond)
			must(t, qb.PostRecv(recv(b.end, 1, 10)))
			must(t, b.cq.ReqNotify(false))
			must(t, qa.PostSend(send(a.end, 10)))
			b.wait()
			b.good(1)
			a.good(1)
		}
	})
}

// TestConcurrentOpenAndClose: contexts of one device are opened and closed by several goroutines; the device works in
// each.
func TestConcurrentOpenAndClose(t *testing.T) {
	dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{loopback(0)}}, softlink.Links{Open: testUDP})))(t)
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 20 {
				if err := openAndClose(dev); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
}

func openAndClose(dev *soft.Device) error {
	vctx, err := dev.Open()
	if err != nil {
		return err
	}
	pd, err1 := vctx.AllocPD()
	cq, err2 := vctx.CreateCQ(1, nil)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	return errors.Join(qp.Close(), cq.Close(), pd.Close(), vctx.Close())
}

// TestImportedDomainAtWork: two contexts of a program move data through the same PD and the same memory.
func TestImportedDomainAtWork(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("this system cannot identify descriptors")
	}
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	part := &end{tb: t, buf: a.buf}
	part.ctx = get(verbs.ImportDevice(get(a.ctx.CmdFD())(t)))(t)
	t.Cleanup(func() { must(t, part.ctx.Close()) })
	part.pd = get(part.ctx.ImportPD(a.pd.Handle()))(t)
	t.Cleanup(func() { must(t, part.pd.Close()) })
	part.mr = get(part.pd.ImportMR(a.mr.Handle()))(t)
	t.Cleanup(func() { must(t, part.mr.Close()) })
	part.cq = get(part.ctx.CreateCQ(16, nil))(t)
	t.Cleanup(func() { must(t, part.cq.Close()) })
	qp, qb := connect(part, b, verbs.QPTypeRC, nil)
	a.fill(3)
	must(t, qb.PostRecv(recv(b, 1, 100)))
	must(t, qp.PostSend(send(part, 100)))
	part.good(1)
	b.good(1)
	if !bytes.Equal(a.buf[:100], b.buf[:100]) {
		t.Error("the bytes differ")
	}
	// Peers can access the imported region.
	must(t, qb.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{b.mr.SGE(200, 50)},
		RemoteAddr: part.mr.Addr(), RKey: part.mr.RKey(),
	}))
	b.good(1)
	if !bytes.Equal(a.buf[:50], b.buf[200:250]) {
		t.Error("the READ bytes differ")
	}
}

func TestECEOfTheDevice(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	qp := e.qp(verbs.QPTypeRC, nil)
	must(t, qp.SetECE(verbs.ECE{VendorID: 0x15b3}))
	if err := qp.SetECE(verbs.ECE{VendorID: 0x15b3, Options: 1}); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("options of a vendor: %v", err)
	}
	if got := get(qp.QueryECE())(t); got != (verbs.ECE{}) {
		t.Errorf("%+v", got)
	}
}
