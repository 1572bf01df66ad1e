package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// flood is a device that sends requests as fast as it can, to a listener and to ports without one.
type flood struct {
	from, to netip.Addr
	port     uint16
}

func (f *flood) request(n uint32) umad.MAD {
	mad := request(n)
	r := cmmsg.REQ(cmmsg.Msg(mad).Data())
	service := PSTCP.service(f.port)
	if n%4 == 0 {
		service = PSTCP.service(f.port + 1)
	}
	r.Put(cmmsg.REQFields{
		LocalID: n, ServiceID: service, LocalGUID: 0x3333, LocalQPN: n&0x7FFFFF<<1 | 1, RemoteTimeout: 20, LocalTimeout: 20,
		MaxRetries: 15, PKey: 0xFFFF, MTU: 3,
		Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(f.from), RemoteGID: cmmsg.GID(f.to), HopLimit: 64, AckTimeout: 17},
	})
	cmmsg.Msg(mad).SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(f.from, uint16(n)), f.to))
	return mad
}

// Requests of one sender fill only the backlog of a listener whose program retrieves no event. Established connections
// still work, and when the program retrieves events again, others can connect.
func TestFloodOverTheNetwork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address")
	}
	const backlog, rounds = 32, 300
	ok := FatalOn(t)
	device := func(i int) (*verbs.Device, netip.Addr) {
		pid := os.Getpid()
		addr := netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x80, byte(pid), byte(i + 61)})
		dev, err := soft.New(soft.Config{Name: fmt.Sprintf("flood%d", i), Addrs: []netip.Addr{addr}})
		ok(err)
		return dev.Device, addr
	}
	devA, _ := device(0)
	devB, addrB := device(1)
	devC, addrC := device(2)
	a, b := NewHost(devA), NewHost(devB)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := Listen(ctx, ":0", &Options{Host: b, Backlog: backlog})
	ok(err)
	accepted := make(chan *ID, 1)
	go func() {
		id, err := l.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- id
	}()
	to := netip.AddrPortFrom(addrB, l.Addr().Port()).String()
	client, err := Dial(ctx, to, &Options{Host: a})
	ok(err)
	server := <-accepted

	// The requests continue while the ends exchange messages, and until enough of both kinds have arrived.
	p, err := umad.Open(devC)
	ok(err)
	agent, err := p.Register(umad.Registration{})
	ok(err)
	f := &flood{from: addrC, to: addrB, port: l.Addr().Port()}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := uint32(1); ; n++ {
			select {
			case <-stop:
				return
			default:
				_ = agent.Send(&umad.Address{Local: addrC, Remote: addrB}, f.request(n))
			}
		}
	}()
	ends := [2]*ID{client, server}
	var mrs [2]*verbs.MR
	for i, id := range ends {
		mrs[i], err = id.RegMsgs(make([]byte, 8))
		ok(err)
	}
	count := func() Counters { return b.Counters(server.Verbs()) }
	enough := func() bool {
		c := count().CM
		return c.BacklogFull > 1000 && c.Tx.Of(cmmsg.KindREJ) > 300
	}
	round := 0
	for ; round < rounds || !enough(); round++ {
		from, at := ends[round%2], ends[(round+1)%2]
		mr := mrs[(round+1)%2]
		ok(at.PostRecv(uint64(round), mr.Bytes(), mr))
		ok(from.PostSend(uint64(round), []byte("ping"), nil, verbs.SendInline|verbs.SendSignaled))
		wc, err := at.GetRecvComp(ctx)
		if err != nil || wc.Status != verbs.WCSuccess || wc.WRID != uint64(round) {
			t.Fatalf("round %d, %+v: %+v, %v", round, count().CM, wc, err)
		}
		_, err = from.GetSendComp(ctx)
		ok(err)
	}
	close(stop)
	<-stopped
	if used := l.ID().backlog.Used(); used != backlog {
		t.Errorf("%d requests wait, want %d", used, backlog)
	}
	// The program retrieves requests and rejects all but that of its own client.
	done := make(chan error, 1)
	go func() {
		for {
			id, err := l.Request(ctx)
			if err == nil && id.PeerAddr().Addr() == addrC {
				err = id.Close()
			} else if err == nil {
				if err = id.Accept(ctx, nil); err == nil {
					err = id.Close()
				}
				done <- err
				return
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for last := uint64(0); l.ID().backlog.Used() > 0 || count().MAD.Received != last; time.Sleep(20 * time.Millisecond) {
		last = count().MAD.Received // a client repeats a request that found the backlog full 4.6 s later
	}
	late, err := Dial(ctx, to, &Options{Host: a})
	ok(err)
	ok(<-done)
	ok(late.Close())
	for i, id := range ends {
		ok(mrs[i].Close())
		ok(id.Close())
	}
	ok(agent.Close())
	ok(p.Close())
	ok(l.Close())
	ok(a.Close())
	ok(b.Close())
}
