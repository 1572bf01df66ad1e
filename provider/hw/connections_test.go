//go:build linux && (amd64 || arm64)

package hw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/provider/hw"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// eventLimit is how long a test waits for an event of the kernel's connection manager.
const eventLimit = 30 * time.Second

// party is an asynchronous ID with its channel.
type party struct {
	*rdmacm.ID
	ch *rdmacm.EventChannel
	t  *testing.T
}

// next waits for the next event of the channel, which must be of a type, and acknowledges it.
func (p *party) next(want rdmacm.EventType) *rdmacm.Event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventLimit)
	defer cancel()
	ev, err := p.ch.GetEvent(ctx)
	if err != nil {
		p.t.Fatalf("waiting for %v: %v", want, err)
	}
	if ev.Type != want {
		p.t.Fatalf("%v (%v) instead of %v", ev.Type, ev.Err(), want)
	}
	p.ok(ev.Ack())
	return ev
}

func (p *party) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// newParty makes an asynchronous ID that the test's end closes.
func newParty(t *testing.T) *party {
	t.Helper()
	ch := must(rdmacm.CreateEventChannel())(t)
	t.Cleanup(func() { _ = ch.Close() })
	return &party{must(rdmacm.CreateID(ch, rdmacm.PSTCP, nil))(t), ch, t}
}

// deviceAddrs are the addresses of the test's device, of both families.
func deviceAddrs(t *testing.T) []netip.Addr {
	t.Helper()
	if os.Getenv(hw.TestOwn) != "" {
		t.Skip("a software device has no connection manager of the kernel")
	}
	vctx := opened(t)
	defer vctx.Close()
	ifi := must(net.InterfaceByName(vctx.Device().Interface()))(t)
	var list []netip.Addr
	for _, a := range must(ifi.Addrs())(t) {
		if p := netip.MustParsePrefix(a.String()); !p.Addr().IsLinkLocalUnicast() {
			list = append(list, p.Addr())
		}
	}
	if len(list) == 0 {
		t.Fatalf("%s has no address", ifi.Name)
	}
	return list
}

// listening returns a listener on a free port of an address.
func listening(t *testing.T, a netip.Addr, backlog int) *party {
	t.Helper()
	l := newParty(t)
	l.ok(l.BindAddr(netip.AddrPortFrom(a, 0)))
	l.ok(l.Listen(backlog))
	return l
}

// asking returns an ID that has resolved address and route of a listener.
func asking(t *testing.T, l *party) *party {
	t.Helper()
	c := newParty(t)
	c.ok(c.ResolveAddr(context.Background(), netip.AddrPort{}, l.LocalAddr(), eventLimit))
	c.next(rdmacm.EventAddrResolved)
	c.ok(c.ResolveRoute(context.Background(), eventLimit))
	c.next(rdmacm.EventRouteResolved)
	return c
}

func sizes() *verbs.QPInitAttr {
	return &verbs.QPInitAttr{SigAll: true, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// talk sends a message from one ID to another, which has posted a receive into got.
func talk(t *testing.T, from, to *rdmacm.ID, got []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventLimit)
	defer cancel()
	text := []byte("over the kernel's connection")
	mr := must(from.RegMsgs(text))(t)
	if err := from.PostSend(1, text, mr, 0); err != nil {
		t.Fatal(err)
	}
	if wc := must(from.GetSendComp(ctx))(t); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
	if wc := must(to.GetRecvComp(ctx))(t); wc.Err() != nil || !bytes.Equal(got[:wc.ByteLen], text) {
		t.Fatalf("%v: %q", wc.Err(), got)
	}
	_ = mr.Close()
}

// TestConnections connects two IDs over each address of the device, the receiver with an SRQ if the device has some.
func TestConnections(t *testing.T) {
	for _, a := range deviceAddrs(t) {
		for _, shared := range []bool{false, true} {
			name := a.String()
			if shared {
				name += "/SRQ"
			}
			t.Run(name, func(t *testing.T) { connects(t, a, shared) })
		}
	}
}

func connects(t *testing.T, a netip.Addr, shared bool) {
	l := listening(t, a, 4)
	c := asking(t, l)
	bg := context.Background()
	got := make([]byte, 64)
	if shared {
		c.ok(c.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1}}))
	}
	c.ok(c.CreateQP(nil, sizes()))
	mr := must(c.RegMsgs(got))(t)
	c.ok(c.PostRecv(7, got, mr))
	c.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("who"), RetryCount: 3}))
	ev := l.next(rdmacm.EventConnectRequest)
	if !bytes.HasPrefix(ev.Conn.PrivateData, []byte("who")) || ev.ListenID != l.ID {
		t.Errorf("the request has %+v", ev.Conn)
	}
	s := &party{ev.ID, l.ch, t}
	s.ok(s.CreateQP(nil, sizes()))
	s.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: []byte("me")}))
	if ev = c.next(rdmacm.EventEstablished); !bytes.HasPrefix(ev.Conn.PrivateData, []byte("me")) {
		t.Errorf("the reply has %+v", ev.Conn)
	}
	s.next(rdmacm.EventEstablished)
	if c.PeerAddr() != s.LocalAddr() || s.PeerAddr().Addr() != a {
		t.Errorf("addresses: %v to %v, %v to %v", c.LocalAddr(), c.PeerAddr(), s.LocalAddr(), s.PeerAddr())
	}
	talk(t, s.ID, c.ID, got)
	s.ok(s.Disconnect(bg))
	c.next(rdmacm.EventDisconnected)
	c.ok(c.Disconnect(bg)) // the answer that s waits for on RoCE
	s.next(rdmacm.EventDisconnected)
	c.ok(s.DestroyQP())
	c.ok(c.DestroyQP())
	if shared {
		c.ok(c.DestroySRQ())
	}
	c.ok(mr.Close())
	c.ok(s.Close())
	c.ok(c.Close())
	c.ok(l.Close())
}

// TestPathMTU connects with a path MTU that the client fixes, and is refused by a listener that fixes a smaller one.
func TestPathMTU(t *testing.T) {
	for _, a := range deviceAddrs(t) {
		for _, limit := range []verbs.MTU{verbs.MTU256, verbs.MTU512, 0} {
			t.Run(fmt.Sprint(a, " ", limit), func(t *testing.T) { connectsWithMTU(t, a, limit) })
		}
	}
}

// connectsWithMTU connects with 512 to a listener with a limit; 0 means none.
func connectsWithMTU(t *testing.T, a netip.Addr, limit verbs.MTU) {
	l := newParty(t)
	defer l.Close()
	l.ok(l.BindAddr(netip.AddrPortFrom(a, 0)))
	if limit != 0 {
		l.ok(l.SetPathMTU(limit))
	}
	l.ok(l.Listen(4))
	c := newParty(t)
	defer c.Close()
	bg := context.Background()
	c.ok(c.ResolveAddr(bg, netip.AddrPort{}, l.LocalAddr(), eventLimit))
	c.next(rdmacm.EventAddrResolved)
	c.ok(c.SetPathMTU(verbs.MTU512))
	err := c.ResolveRoute(bg, eventLimit)
	if c.Verbs().Device().TransportType() == verbs.TransportIWARP {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%v, want EOPNOTSUPP", err)
		}
		return
	}
	c.ok(err)
	c.next(rdmacm.EventRouteResolved)
	got := make([]byte, 64)
	c.ok(c.CreateQP(nil, sizes()))
	defer c.DestroyQP()
	mr := must(c.RegMsgs(got))(t)
	c.ok(c.PostRecv(7, got, mr))
	c.ok(c.Connect(bg, nil))
	if limit == verbs.MTU256 {
		if ev := c.next(rdmacm.EventRejected); ev.Status != 28 {
			t.Errorf("reason %d, want 28", ev.Status)
		}
		return
	}
	s := &party{l.next(rdmacm.EventConnectRequest).ID, l.ch, t}
	defer s.Close()
	s.ok(s.CreateQP(nil, sizes()))
	defer s.DestroyQP()
	s.ok(s.Accept(bg, nil))
	c.next(rdmacm.EventEstablished)
	s.next(rdmacm.EventEstablished)
	for _, id := range []*rdmacm.ID{c.ID, s.ID} {
		if attr, _, err := id.QP().Query(0); err != nil || attr.PathMTU != verbs.MTU512 {
			t.Errorf("path MTU %v, %v", attr.PathMTU, err)
		}
	}
	talk(t, s.ID, c.ID, got)
}

// TestOwnQP has a client connect with a QP that is not the ID's, and move it by itself. On iWARP the kernel moves QPs,
// so that there the ID must have it.
func TestOwnQP(t *testing.T) {
	l := listening(t, deviceAddrs(t)[0], 4)
	c := asking(t, l)
	if c.Verbs().Device().TransportType() == verbs.TransportIWARP {
		t.Log("an iWARP device: the ID must have the QP")
		return
	}
	bg := context.Background()
	init := sizes()
	init.Type = verbs.QPTypeRC
	init.SendCQ = must(c.Verbs().CreateCQ(4, nil))(t)
	init.RecvCQ = init.SendCQ
	own := must(c.PD().CreateQP(init))(t)
	c.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: own.QPN()}))
	s := &party{l.next(rdmacm.EventConnectRequest).ID, l.ch, t}
	s.ok(s.CreateQP(nil, sizes()))
	s.ok(s.Accept(bg, nil))
	if ev := c.next(rdmacm.EventConnectResponse); ev.Conn.QPNum != s.QP().QPN() {
		t.Errorf("the reply has %+v", ev.Conn)
	}
	for _, state := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		a := verbs.QPAttr{QPState: state}
		mask, err := c.InitQPAttr(&a)
		c.ok(err)
		c.ok(own.Modify(&a, mask))
	}
	c.ok(c.Establish())
	s.next(rdmacm.EventEstablished)
	if err := s.Notify(verbs.EventCommEst); !errors.Is(err, unix.EISCONN) {
		t.Errorf("Notify of an established connection: %v", err)
	}
	c.ok(c.Disconnect(bg))
	s.next(rdmacm.EventDisconnected)
	s.ok(s.Disconnect(bg))
	c.next(rdmacm.EventDisconnected)
	s.ok(s.DestroyQP())
	c.ok(own.Close())
	c.ok(init.SendCQ.Close())
	s.ok(s.Close())
	c.ok(c.Close())
	c.ok(l.Close())
}

// TestBacklog has more clients ask than the listener holds: those beyond it are refused at once, and the others are
// served.
func TestBacklog(t *testing.T) {
	const held, asked = 2, 6
	l := listening(t, deviceAddrs(t)[0], held)
	ctx, cancel := context.WithTimeout(context.Background(), eventLimit)
	defer cancel()
	clients := make([]*party, asked)
	for i := range clients {
		clients[i] = asking(t, l)
		clients[i].ok(clients[i].CreateQP(nil, sizes()))
		clients[i].ok(clients[i].Connect(ctx, nil))
	}
	outcome := make(chan rdmacm.EventType, asked)
	for _, c := range clients {
		go func() {
			ev, err := c.ch.GetEvent(ctx)
			if err != nil {
				outcome <- 0xff
				return
			}
			outcome <- ev.Type
			_ = ev.Ack()
		}()
	}
	for range asked - held {
		if got := <-outcome; got != rdmacm.EventRejected {
			t.Fatalf("%v before a request was accepted, want %v", got, rdmacm.EventRejected)
		}
	}
	var served []*party
	for range held {
		served = append(served, &party{l.next(rdmacm.EventConnectRequest).ID, l.ch, t})
	}
	for _, s := range served {
		s.ok(s.CreateQP(nil, sizes()))
		s.ok(s.Accept(ctx, nil))
		if got := <-outcome; got != rdmacm.EventEstablished {
			t.Fatalf("%v after a request was accepted", got)
		}
		s.next(rdmacm.EventEstablished)
	}
}
