package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	"github.com/verbena-rdma/verbena/internal/lookup"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// streamWorld is a host with an iWARP device on the loopback address.
type streamWorld struct {
	*testing.T
	h  *Host
	ch *EventChannel
}

func inStream(t *testing.T, f func(w *streamWorld)) {
	t.Helper()
	t.Setenv("VERBENA_DEVICES", "tcp=127.0.0.1")
	list, err := driver.Streams()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(driver.NewDevice(list[0]))
	w := &streamWorld{t, h, newChannel(h)}
	f(w)
	w.ok(w.ch.Close())
	if left := h.Left(); left != "" {
		t.Error("left: " + left)
	}
	w.ok(h.Close())
}

func (w *streamWorld) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *streamWorld) errno(err error, want syscall.Errno) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("%v, want %v", err, want)
	}
}

func (w *streamWorld) next(ch *EventChannel, want EventType) *Event {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	ev, err := ch.GetEvent(ctx)
	if err != nil {
		w.Fatalf("waiting for %v: %v", want, err)
	}
	if ev.Type != want {
		w.Fatalf("%v (%v) instead of %v", ev.Type, ev.Err(), want)
	}
	w.ok(ev.Ack())
	return ev
}

func (w *streamWorld) id(ch *EventChannel) *ID {
	w.Helper()
	id, err := w.h.CreateID(ch, PSTCP, nil)
	w.ok(err)
	return id
}

// listen makes a listener at a port of its own.
func (w *streamWorld) listen(backlog int) (*ID, netip.AddrPort) {
	w.Helper()
	l := w.id(w.ch)
	w.ok(l.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")))
	w.ok(l.Listen(backlog))
	return l, l.LocalAddr()
}

func streamQP() *verbs.QPInitAttr { return &verbs.QPInitAttr{Cap: kernelCaps} }

// routed makes an ID that may Connect, on a channel of its own.
func (w *streamWorld) routed(to netip.AddrPort, bare bool) *ID {
	w.Helper()
	id := w.id(newChannel(w.h))
	w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, to, time.Second))
	w.next(id.ch, EventAddrResolved)
	w.ok(id.ResolveRoute(w.Context(), time.Second))
	w.next(id.ch, EventRouteResolved)
	if !bare {
		w.ok(id.CreateQP(nil, streamQP()))
	}
	return id
}

// discard closes IDs with their QPs.
func (w *streamWorld) discard(ids ...*ID) {
	w.Helper()
	for _, id := range ids {
		if id.QP() != nil {
			w.ok(id.DestroyQP())
		}
		w.ok(id.Close())
	}
}

// requested connects an ID and takes the request.
func (w *streamWorld) requested(to netip.AddrPort, p *ConnParam) (active, passive *ID, request *Event) {
	w.Helper()
	active = w.routed(to, false)
	w.ok(active.Connect(w.Context(), p))
	request = w.next(w.ch, EventConnectRequest)
	w.ok(request.ID.CreateQP(nil, streamQP()))
	return active, request.ID, request
}

// The numbers and the data of both sides arrive at the other side.
func TestStreamCountsIDs(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, _ := w.listen(1)
		if c := w.h.Counters(l.Verbs()); c.IDs != 1 {
			t.Errorf("%d IDs, want 1", c.IDs)
		}
		w.ok(l.Close())
	})
}

func TestStreamParameters(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		w.ok(l.SetTOS(3))
		active, passive, request := w.requested(to, &ConnParam{PrivateData: []byte("ask"), ResponderResources: 3,
			InitiatorDepth: 5})
		if c := request.Conn; string(c.PrivateData) != "ask" || c.ResponderResources != 5 || c.InitiatorDepth != 3 ||
			request.ListenID != l || passive.tos != 3 || !passive.passive || active.passive {
			t.Errorf("%+v", c)
		}
		if p := passive.Route().PathRec; len(p) != 1 || p[0].SGID != verbs.GIDFromAddr(to.Addr()) {
			t.Errorf("%+v", p)
		}
		w.errno(active.Disconnect(w.Context()), syscall.EINVAL) // too early
		w.errno(passive.Accept(w.Context(), &ConnParam{PrivateData: make([]byte, iwarp.MaxPrivate+1)}), syscall.EINVAL)
		w.ok(passive.Accept(w.Context(), &ConnParam{PrivateData: []byte("yes"), ResponderResources: 4, InitiatorDepth: 2}))
		ev := w.next(active.ch, EventEstablished)
		if c := ev.Conn; string(c.PrivateData) != "yes" || c.ResponderResources != 3 || c.InitiatorDepth != 5 {
			t.Errorf("%+v", c)
		}
		// The resources are as many as the peer asked for: MPA lets the passive side raise them.
		if c := w.next(w.ch, EventEstablished).Conn; c.ResponderResources != 5 || c.InitiatorDepth != 2 {
			t.Errorf("%+v", c)
		}
		if passive.LocalAddr() != to || passive.PeerAddr() != active.LocalAddr() || active.PeerAddr() != to {
			t.Errorf("%v to %v, %v to %v", active.LocalAddr(), active.PeerAddr(), passive.LocalAddr(), passive.PeerAddr())
		}
		w.errno(passive.Accept(w.Context(), nil), syscall.EINVAL)
		w.errno(passive.Reject(nil), syscall.EINVAL)
		if passive.incoming != nil {
			t.Error("the ID keeps the request that it has answered")
		}
		for _, id := range []*ID{active, passive} {
			w.ok(id.Notify(verbs.EventCommEst))
			if a, _, err := id.QP().Query(0); err != nil || a.QPState != verbs.QPSRTS {
				t.Errorf("%+v, %v", a, err)
			}
		}
		w.ok(active.Disconnect(w.Context()))
		if ev := w.next(active.ch, EventDisconnected); ev.Status != 0 {
			t.Errorf("status %d", ev.Status)
		}
		if ev := w.next(w.ch, EventDisconnected); ev.Status != 0 || ev.ID != passive {
			t.Errorf("%+v", ev)
		}
		for _, id := range []*ID{active, passive} { // repeating it does no harm
			w.ok(id.Disconnect(w.Context()))
		}
		if active.conn != connDisconnected || passive.conn != connPeerLeft {
			t.Errorf("%v and %v", active.conn, passive.conn)
		}
		w.discard(active, passive, l)
	})
}

// A bad request of the peer is not an orderly end, although the stream ends with it: the wait for a message says that
// the QP has failed, also when the end of the stream was noticed first.
func TestStreamFaultBeforeItsEnd(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		opts := &Options{Host: w.h}
		l, err := Listen(w.Context(), "127.0.0.1:0", opts)
		w.ok(err)
		accepted := make(chan *ID, 1)
		go func() {
			id, err := l.Accept(w.Context())
			if err != nil {
				t.Error(err)
			}
			accepted <- id
		}()
		active, err := Dial(w.Context(), l.Addr().String(), opts)
		w.ok(err)
		passive := <-accepted
		w.ok(active.PostWrite(1, []byte("x"), nil, verbs.SendInline, 1, 0xbad))
		left := func() bool {
			passive.mu.Lock()
			defer passive.mu.Unlock()
			return passive.conn == connPeerLeft
		}
		for end := time.Now().Add(20 * time.Second); !left() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			_, err := passive.GetRecvComp(w.Context())
			w.errno(err, syscall.EIO)
		}
		w.ok(passive.Close())
		w.ok(active.Close())
		w.ok(l.Close())
	})
}

// A peer that answers fewer READs than this side wants outstanding, and has fewer outstanding, decides.
func TestStreamPeerWithFewerResources(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		done := make(chan error, 1)
		l, err := iwtcp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), false, func(r *iwtcp.Request) {
			o, err := streamOptions()
			if err != nil {
				t.Error(err)
			}
			o.IRD, o.MaxIRD, o.ORD = 2, 2, 1
			c, err := r.Accept(o)
			if err == nil {
				defer c.Close()
			}
			done <- err
		})
		w.ok(err)
		defer l.Close()
		id := w.routed(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.Port()), false)
		w.ok(id.Connect(w.Context(), &ConnParam{ResponderResources: 7, InitiatorDepth: 9}))
		w.ok(<-done)
		c := w.next(id.ch, EventEstablished).Conn
		if c.ResponderResources != 7 || c.InitiatorDepth != 2 {
			t.Errorf("%+v, want 2 outstanding", c)
		}
		w.next(id.ch, EventDisconnected)
		w.discard(id)
	})
}

// An endpoint puts the prefix of its address before the program's data.
func TestStreamPrefix(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		res, err := GetAddrInfo(w.Context(), to.Addr().String(), "", nil)
		w.ok(err)
		res.DstAddr, res.Connect = to, []byte("prefix:")
		id, err := w.h.CreateEP(w.Context(), res, nil, streamQP())
		w.ok(err)
		done := make(chan error, 1)
		go func() { done <- id.Connect(context.Background(), &ConnParam{PrivateData: []byte("mine")}) }()
		request := w.next(w.ch, EventConnectRequest)
		if got := string(request.Conn.PrivateData); got != "prefix:mine" {
			t.Errorf("%q", got)
		}
		w.ok(request.ID.Reject(nil))
		w.errno(<-done, syscall.ECONNREFUSED)
		w.ok(id.Close())
		w.discard(request.ID, l)
	})
}

// A request is refused with the program's data, once.
func TestStreamRejects(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		active, passive, _ := w.requested(to, nil)
		w.errno(passive.Reject(make([]byte, iwarp.MaxPrivate+1)), syscall.EINVAL)
		w.ok(passive.Reject([]byte("no")))
		if ev := w.next(active.ch, EventRejected); string(ev.Conn.PrivateData) != "no" || !errors.Is(ev.Err(),
			syscall.ECONNREFUSED) {
			t.Errorf("%+v", ev)
		}
		if passive.conn != connRefused || active.conn != connFailed || passive.incoming != nil {
			t.Errorf("%v and %v; the ID keeps the request: %v", passive.conn, active.conn, passive.incoming != nil)
		}
		w.errno(passive.Reject(nil), syscall.EINVAL)
		w.errno(passive.Accept(w.Context(), nil), syscall.EINVAL)
		w.discard(active, passive)

		active, passive, _ = w.requested(to, nil) // Close refuses too
		w.discard(passive)
		w.next(active.ch, EventRejected)
		w.discard(active)
		w.discard(l)
	})
}

// Nobody listens at the port.
func TestStreamRefused(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		w.discard(l)
		id := w.routed(to, false)
		w.errno(id.Connect(w.Context(), &ConnParam{PrivateData: make([]byte, iwarp.MaxPrivate+1)}), syscall.EINVAL)
		w.ok(id.Connect(w.Context(), &ConnParam{PrivateData: make([]byte, iwarp.MaxPrivate)}))
		if ev := w.next(id.ch, EventRejected); !errors.Is(ev.Err(), syscall.ECONNREFUSED) {
			t.Errorf("%v", ev.Err())
		}
		w.discard(id)
		id = w.routed(to, true)
		w.errno(id.Connect(w.Context(), &ConnParam{QPNum: 999}), syscall.EINVAL)
		w.errno(id.Establish(), syscall.EINVAL)
		w.discard(id)
	})
}

// The event of a connection that is not made is that of the errno.
func TestStreamFailures(t *testing.T) {
	for _, c := range []struct {
		err    error
		event  EventType
		status syscall.Errno
		state  connState
	}{
		{syscall.ECONNREFUSED, EventRejected, syscall.ECONNREFUSED, connFailed},
		{syscall.ETIMEDOUT, EventUnreachable, syscall.ETIMEDOUT, connFailed},
		{syscall.EHOSTUNREACH, EventUnreachable, syscall.EHOSTUNREACH, connFailed},
		{syscall.ENETUNREACH, EventUnreachable, syscall.ENETUNREACH, connFailed},
		{syscall.EPROTO, EventConnectError, syscall.EPROTO, connBroken},
		{errors.New("other"), EventConnectError, syscall.EIO, connBroken},
	} {
		ch := newChannel(nil)
		id := &ID{ps: PSTCP, state: stConnect, reporting: reporting{ch: ch}}
		id.conn = connRequesting
		id.mu.Lock()
		id.failStream(&net.OpError{Op: "dial", Err: c.err})
		id.mu.Unlock()
		ev, err := ch.TryGetEvent()
		if err != nil || ev.Type != c.event || ev.Status != -int(c.status) || id.conn != c.state {
			t.Errorf("%v: %+v, %v, %v", c.err, ev, err, id.conn)
		}
	}
}

// Requests beyond the backlog are dropped; retrieving an event frees a place.
func TestStreamBacklog(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		a := w.routed(to, false)
		w.ok(a.Connect(w.Context(), nil))
		for l.tcp.held.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		b := w.routed(to, false)
		w.ok(b.Connect(w.Context(), nil))
		if ev := w.next(b.ch, EventRejected); ev.Status >= 0 {
			t.Errorf("%+v", ev)
		}
		passive := w.next(w.ch, EventConnectRequest).ID
		if held := l.tcp.held.Load(); held != 0 {
			t.Errorf("%d places are taken", held)
		}
		w.discard(passive)
		w.next(a.ch, EventRejected)
		w.discard(a, b, l)
	})
}

// Clients whose requests the program does not take leave it most of its descriptors, whatever the backlog.
func TestStreamRequestsLeaveDescriptors(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(0)
		used, err := os.ReadDir("/proc/self/fd")
		w.ok(err)
		var before syscall.Rlimit
		w.ok(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
		few := before
		few.Cur = min(before.Cur, uint64(2*len(used)+200))
		w.ok(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
		defer func() { w.ok(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }()
		places := int64(few.Cur / 4)
		for i := range places + 10 {
			c, err := net.Dial("tcp", to.String())
			w.ok(err)
			defer c.Close()
			_, out := iwarp.Initiate(0, iwarp.Options{})
			_, err = c.Write(out)
			w.ok(err)
			if i >= places {
				w.ok(c.SetReadDeadline(time.Now().Add(20 * time.Second)))
				if _, err := c.Read(out); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			for end := time.Now().Add(20 * time.Second); i < places && l.tcp.held.Load() != i+1; {
				if time.Sleep(time.Millisecond); time.Now().After(end) {
					t.Fatalf("%d requests, %d wait", i+1, l.tcp.held.Load())
				}
			}
		}
		w.discard(l)
	})
}

// The environment determines the start-up and the devices.
func TestStreamEnvironment(t *testing.T) {
	for _, c := range []struct {
		name, value string
		crc, p2p    bool
		errno       syscall.Errno
	}{
		{envCRC, "", false, true, 0}, {envCRC, "0", false, true, 0}, {envCRC, "1", true, true, 0},
		{envP2P, "0", false, false, 0}, {envP2P, "1", false, true, 0}, {envCRC, "yes", false, false, syscall.EINVAL},
		{envP2P, "2", false, false, syscall.EINVAL},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			o, err := streamOptions()
			if c.errno != 0 {
				if !errors.Is(err, c.errno) {
					t.Errorf("%v, want %v", err, c.errno)
				}
			} else if err != nil || o.CRC != c.crc || o.PeerToPeer != c.p2p || o.RTR != firstMessages {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
	for transport, want := range map[string]error{"": nil, "iwarp": nil, "roce": syscall.ENODEV, "tcp": syscall.EINVAL} {
		t.Run("transport "+transport, func(t *testing.T) {
			inStream(t, func(w *streamWorld) {
				t.Setenv(driver.EnvTransport, transport)
				id := w.id(w.ch)
				if err := id.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				w.ok(id.Close())
				ud, err := w.h.CreateID(w.ch, PSUDP, nil)
				w.ok(err)
				if transport != "tcp" { // iWARP has no datagrams
					w.errno(ud.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")), syscall.ENODEV)
				}
				w.ok(ud.Close())
			})
		})
	}
}

// The program may answer a request after an attempt that lacked the QP: the peer has not noticed it.
func TestStreamAcceptWithoutQP(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		active := w.routed(to, false)
		w.ok(active.Connect(w.Context(), nil))
		passive := w.next(w.ch, EventConnectRequest).ID
		w.errno(passive.Accept(w.Context(), &ConnParam{QPNum: 999}), syscall.EINVAL)
		w.ok(passive.CreateQP(nil, streamQP()))
		w.ok(passive.Accept(w.Context(), nil))
		w.next(w.ch, EventEstablished)
		w.next(active.ch, EventEstablished)
		w.discard(active, passive)
		w.discard(l)
	})
}

// A port that the program has read stays the ID's while it connects, and is that of the connection. Another ID gets
// that of TCP.
func TestStreamPortOfTheActiveSide(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		for _, read := range []bool{true, false} {
			active := w.routed(to, false)
			var port uint16
			if read {
				port = active.LocalAddr().Port()
			}
			w.ok(active.Connect(w.Context(), nil))
			if now := active.LocalAddr().Port(); read && now != port {
				t.Errorf("the port is %d while the ID connects, and was %d", now, port)
			}
			passive := w.next(w.ch, EventConnectRequest).ID
			w.ok(passive.CreateQP(nil, streamQP()))
			w.ok(passive.Accept(w.Context(), nil))
			w.next(w.ch, EventEstablished)
			w.next(active.ch, EventEstablished)
			if got := passive.PeerAddr().Port(); got == 0 || got != active.LocalAddr().Port() || read && got != port {
				t.Errorf("the peer has port %d, the ID %d, which was %d", got, active.LocalAddr().Port(), port)
			}
			w.discard(active, passive)
		}
		w.discard(l)
	})
}

// The connection of an ID that has been closed meanwhile is closed too, and not given to its QP.
func TestStreamOfAnIDThatIsClosed(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		w.ok(err)
		defer l.Close()
		id := w.routed(l.Addr().(*net.TCPAddr).AddrPort(), false)
		id.mu.Lock()
		id.step(inConnect)
		id.step(inRejected) // as of another attempt
		id.mu.Unlock()
		o, err := streamOptions()
		w.ok(err)
		dialed := make(chan struct{})
		go func() {
			id.dialStream(w.Context(), netip.MustParseAddrPort("127.0.0.1:0"), id.PeerAddr(), o)
			close(dialed)
		}()
		peer, err := l.Accept()
		w.ok(err)
		defer peer.Close()
		w.ok(peer.SetDeadline(time.Now().Add(20 * time.Second)))
		setup, buf := iwarp.Respond(0), make([]byte, 1024)
		for step := iwarp.Waiting; step != iwarp.Asked; {
			n, err := peer.Read(buf)
			w.ok(err)
			step, _ = setup.OnBytes(buf[:n])
		}
		answer, _ := setup.Accept(o)
		_, err = peer.Write(answer)
		w.ok(err)
		<-dialed
		if s := id.QP().State(); s != verbs.QPSInit {
			t.Errorf("the QP is in %v", s)
		}
		if n, err := peer.Read(buf); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v came, want the end", n, err)
		}
		w.discard(id)
	})
}

// The event of a peer whose link address is known is there when ResolveAddr returns.
func TestResolveAddrOfAKnownPeerIsOver(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		ch := newChannel(w.h)
		id := w.id(ch)
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7"), time.Second))
		if ev, err := ch.TryGetEvent(); err != nil || ev.Type != EventAddrResolved {
			t.Errorf("%+v, %v", ev, err)
		} else {
			w.ok(ev.Ack())
		}
		w.ok(id.Close())
		w.ok(ch.Close())
	})
}

// A listener whose port another TCP socket has takes another one if the program has not read the port yet.
func TestListenAtAPortThatTCPHas(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		tcp, err := net.Listen("tcp4", "127.0.0.1:0")
		w.ok(err)
		defer tcp.Close()
		taken := tcp.Addr().(*net.TCPAddr).AddrPort()
		old := ephemeral
		defer func() { ephemeral = old }()
		for _, given := range []bool{true, false} {
			ephemeral = func() (low, high uint16) { return taken.Port(), taken.Port() }
			at := netip.AddrPortFrom(taken.Addr(), 0)
			if given {
				at = taken
			}
			l := w.id(w.ch)
			w.ok(l.BindAddr(at))
			ephemeral = func() (low, high uint16) { return taken.Port() - 9, taken.Port() }
			err := l.Listen(1)
			switch {
			case given && (!errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, errTaken)):
				t.Errorf("%v: %v, want %v", at, err, syscall.EADDRINUSE)
			case !given && (err != nil || l.SrcPort() == taken.Port()):
				t.Errorf("port %d: %v", l.SrcPort(), err)
			}
			w.ok(l.Close())
		}
	})
}

// The event of a peer whose link address the system does not know yet comes when it does, unless the ID is closed
// meanwhile.
func TestResolveAddrWaitsForTheLinkAddress(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		n := &w.h.neighbours
		for _, closes := range []bool{false, true} {
			unknown := &way{known: lookup.Unknown, looked: time.Now().Add(time.Hour)} // the system is not asked for an hour
			n.mu.Lock()
			n.ways = map[wayKey]*way{hereToHere: unknown}
			n.mu.Unlock()
			id := w.id(w.ch)
			w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7"), 20*time.Second))
			time.Sleep(20 * time.Millisecond) // it is looked for meanwhile
			if ev, err := w.ch.TryGetEvent(); err == nil {
				t.Errorf("%v before the link address is known", ev.Type)
			}
			if !closes {
				n.mu.Lock()
				unknown.looked = time.Time{}
				n.mu.Unlock()
				w.next(w.ch, EventAddrResolved)
			}
			w.ok(id.Close())
		}
		if ev, err := w.ch.TryGetEvent(); err == nil {
			t.Errorf("%v of a closed ID", ev.Type)
		}
	})
}

// Of devices without the source address of the route that one is chosen which is on its interface.
func TestDeviceOfTheInterfaceOfTheRoute(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var list []*verbs.Device
	for i, on := range []string{"other", "lo"} {
		dev, err := fab.NewDevice(on, netip.AddrFrom4([4]byte{127, 0, 0, byte(8 + i)}))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, driver.NewDevice(&card{driver.Of[verbs.DriverDevice](dev), on}))
	}
	h := NewHost(list...)
	h.mu.Lock()
	devices, err := h.choices(PSTCP)
	if err != nil {
		t.Fatal(err)
	}
	d, local, err := h.find(devices, netip.MustParseAddr("127.0.0.77"))
	h.mu.Unlock()
	if err != nil || d.vdev != list[1] || local != netip.MustParseAddr("127.0.0.9") {
		t.Errorf("%v, %v, want 127.0.0.9", local, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A request to an address of no device is refused, and leaves no ID.
func TestStreamRequestToAForeignAddress(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l := w.id(w.ch)
		w.ok(l.BindAddr(netip.MustParseAddrPort("0.0.0.0:0")))
		w.ok(l.Listen(1))
		c, err := net.Dial("tcp4", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), l.SrcPort()).String())
		w.ok(err)
		defer c.Close()
		_, out := iwarp.Initiate(0, iwarp.Options{})
		_, err = c.Write(out)
		w.ok(err)
		w.ok(c.SetReadDeadline(time.Now().Add(20 * time.Second)))
		if n, err := c.Read(out); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes came, %v", n, err)
		}
		l.mu.Lock() // onStreamRequest has returned
		w.ch.mu.Lock()
		if n := len(w.ch.ids.all()); n != 1 {
			t.Errorf("%d IDs on the channel, want 1", n)
		}
		w.ch.mu.Unlock()
		l.mu.Unlock()
		w.ok(l.Close())
	})
}

// An ID whose port the program has not read connects from a port that TCP has chosen.
func TestStreamPortThatTCPChooses(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		low, _ := ephemeral()
		old := ephemeral
		defer func() { ephemeral = old }()
		ephemeral = func() (uint16, uint16) { return low - 9, low - 1 } // TCP chooses none of these
		active := w.routed(to, false)
		w.ok(active.Connect(w.Context(), nil))
		passive := w.next(w.ch, EventConnectRequest).ID
		if port := passive.PeerAddr().Port(); port >= low-9 && port < low {
			t.Errorf("the peer has port %d, which TCP has not chosen", port)
		}
		w.discard(passive)
		w.next(active.ch, EventRejected)
		w.discard(active, l)
	})
}
