package rdmacm_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/umad"
)

// victimPKey is the only P_Key of a victim's device; without it that is the default one.
const victimPKey = "VERBENA_TEST_PKEY"

// partitionedHost is a host of a software device over UDP; several of one address share it.
func partitionedHost(w *world, name string, addr netip.Addr, pkeys ...uint16) (*rdmacm.Host, *soft.Device) {
	w.Helper()
	dev := must(soft.New(soft.Config{Name: name, Addrs: []netip.Addr{addr}, PKeys: pkeys}))(w)
	return rdmacm.NewHost(dev.Device), dev
}

// TestV_PKEY_05_PartitionsOfASharedAddress: each process at an address uses its own P_Key table. The process that owns
// the socket passes on what comes in partitions that it is not in, and sends the last will of a connection in the
// partition of that connection.
func TestV_PKEY_05_PartitionsOfASharedAddress(t *testing.T) {
	if beVictim(t) {
		return
	}
	t.Setenv("VERBENA_SHM", "0")
	_, addr := udpHost(t, 14)
	shared, far := addr, addr.Next()
	w := &world{T: t}
	bystander(w, shared) // owns the socket; its table has the default partition only
	t.Setenv(victimPKey, fmt.Sprint(0x8003))
	v := newVictim(w, t.Name(), "server", shared, "-")
	_ = os.Unsetenv(victimPKey)
	server := netip.MustParseAddrPort(shared.String() + ":" + v.says("port "))

	h, _ := partitionedHost(w, "far", far, 0x0003) // drops what comes in the default partition
	w.a = h
	c := w.resolved(rdmacm.PSTCP, server) // in the first partition of the table
	w.ok(c.CreateQP(nil, qpInit()))
	w.ok(c.Connect(bg, nil))
	c.soon(rdmacm.EventEstablished, 0)
	v.says("established")
	v.kill()
	c.soon(rdmacm.EventDisconnected, 0)
	c.over()
	w.ok(h.Close())
}

// TestV_PKEY_05_OtherTableAtASharedAddress: a request in a partition of the process that owns the socket does not reach
// the listener of another process at the address that is not in the partition.
func TestV_PKEY_05_OtherTableAtASharedAddress(t *testing.T) {
	if beVictim(t) {
		return
	}
	t.Setenv("VERBENA_SHM", "0")
	_, addr := udpHost(t, 16)
	w := &world{T: t}
	t.Setenv(victimPKey, fmt.Sprint(0x8003))
	bystander(w, addr)
	_ = os.Unsetenv(victimPKey)
	h, dev := partitionedHost(w, "near", addr)
	w.b = h
	l := w.listen(netip.AddrPortFrom(addr, 0), 0)

	out := must(soft.New(soft.Config{Name: "far", Addrs: []netip.Addr{addr.Next()}, PKeys: []uint16{0x8003}}))(w)
	p := must(umad.Open(out.Device))(w)
	agent := must(p.Register(umad.Registration{}))(w)
	mad, m := message(cmmsg.KindREQ, 1)
	cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
		LocalID: 1, ServiceID: cmmsg.PSTCP.Service(l.LocalAddr().Port()), LocalGUID: 0x3333, LocalQPN: 9, PKey: 0x8003,
		MTU: 3, Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(addr.Next()), RemoteGID: cmmsg.GID(addr)},
	})
	m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(addr.Next(), 4000), addr))
	dropped := func() (n uint64) {
		for _, c := range dev.Counters() {
			if c.Name == "bad_pkey" {
				n = c.Value
			}
		}
		return n
	}
	for start := time.Now(); dropped() == 0; time.Sleep(10 * time.Millisecond) {
		w.ok(agent.Send(&umad.Address{Local: addr.Next(), Remote: addr}, mad))
		if time.Since(start) > deathBound {
			t.Fatal("the request has not come to the process of the listener")
		}
	}
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	if ev, err := l.ch.GetEvent(ctx); err == nil {
		t.Errorf("%v came", ev.Type)
		_ = ev.Ack()
	}
	l.close()
	w.ok(agent.Close())
	w.ok(p.Close())
	w.ok(h.Close())
}
