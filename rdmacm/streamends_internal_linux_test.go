package rdmacm

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// Connections over TCP whose QP, ID or device is not what it was.

// ownQP is a QP of the program, in INIT.
func (w *streamWorld) ownQP(vctx *verbs.Context) (qp *verbs.QP, end func()) {
	w.Helper()
	pd, err := vctx.AllocPD()
	w.ok(err)
	cq, err := vctx.CreateCQ(8, nil)
	w.ok(err)
	qp, err = pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, Cap: kernelCaps, SendCQ: cq, RecvCQ: cq})
	w.ok(err)
	w.ok(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort|
		verbs.QPAttrPKeyIndex|verbs.QPAttrAccessFlags))
	return qp, func() { w.ok(errors.Join(qp.Close(), cq.Close(), pd.Close())) }
}

// QPs that the program has made itself are connected by their numbers.
func TestStreamOfTheProgramsOwnQPs(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		defer observe.Handle(func(observe.Event) {})()
		l, to := w.listen(1)
		active := w.routed(to, true)
		a, endA := w.ownQP(active.Verbs())
		w.ok(active.Connect(w.Context(), &ConnParam{QPNum: a.QPN()}))
		if active.began.IsZero() {
			t.Error("the time that the connection takes is not known")
		}
		passive := w.next(w.ch, EventConnectRequest).ID
		b, endB := w.ownQP(passive.Verbs())
		w.ok(passive.Accept(w.Context(), &ConnParam{QPNum: b.QPN()}))
		w.next(w.ch, EventEstablished)
		w.next(active.ch, EventEstablished)
		for _, qp := range []*verbs.QP{a, b} {
			if attr, _, err := qp.Query(0); err != nil || attr.QPState != verbs.QPSRTS {
				t.Errorf("QP %d is in %v, %v", qp.QPN(), attr.QPState, err)
			}
		}
		endA()
		w.next(w.ch, EventDisconnected)
		endB()
		w.discard(active, passive, l)
	})
}

// A connection is ended, and reported as one that could not be made, if its QP has gone or has failed meanwhile.
func TestStreamWhoseQPHasGone(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		tcp, err := net.Listen("tcp4", "127.0.0.1:0")
		w.ok(err)
		defer tcp.Close()
		for _, failed := range []bool{false, true} {
			id := w.routed(tcp.Addr().(*net.TCPAddr).AddrPort(), false)
			w.ok(id.Connect(w.Context(), nil))
			peer, err := tcp.Accept()
			w.ok(err)
			w.ok(peer.SetDeadline(time.Now().Add(20 * time.Second)))
			setup, buf := iwarp.Respond(0), make([]byte, 1024)
			for step := iwarp.Waiting; step != iwarp.Asked; {
				n, err := peer.Read(buf)
				w.ok(err)
				step, _ = setup.OnBytes(buf[:n])
			}
			if failed {
				w.ok(id.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
			} else {
				w.ok(id.DestroyQP())
			}
			o, err := streamOptions()
			w.ok(err)
			answer, _ := setup.Accept(o)
			_, err = peer.Write(answer)
			w.ok(err)
			if ev := w.next(id.ch, EventConnectError); ev.Status == 0 || id.conn != connBroken || id.flushed != failed {
				t.Errorf("the QP has failed %v: status %d, %v, flushed %v", failed, ev.Status, id.conn, id.flushed)
			}
			if n, err := peer.Read(buf); err == nil && n == 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d bytes, %v came, want the end", n, err)
			}
			w.ok(peer.Close())
			w.discard(id)
		}
	})
}

// A variable that is wrong does not refuse the request: the program can correct it.
func TestStreamAcceptWithAWrongVariable(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		active, passive, _ := w.requested(to, nil)
		t.Setenv(envCRC, "perhaps")
		w.errno(passive.Accept(w.Context(), nil), syscall.EINVAL)
		t.Setenv(envCRC, "1")
		w.ok(passive.Accept(w.Context(), nil))
		w.next(w.ch, EventEstablished)
		w.next(active.ch, EventEstablished)
		w.discard(active, passive, l)
	})
}

// The place of a request that is closed before the program has seen it is free.
func TestStreamRequestThatIsNotTaken(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		active := w.routed(to, false)
		w.ok(active.Connect(w.Context(), nil))
		eventually(t, "a request", func() bool { return l.tcp.held.Load() == 1 })
		eventually(t, "its event", func() bool {
			w.ch.mu.Lock()
			defer w.ch.mu.Unlock()
			return len(w.ch.queue) == 1
		})
		tcp, request := l.tcp, w.ch.queue[0]
		request.ID.destroyAll()
		if held := tcp.held.Load(); held != 0 {
			t.Errorf("%d places are taken", held)
		}
		w.next(active.ch, EventRejected)
		w.discard(active, l)
	})
}

// Only iWARP devices: there is none for datagrams.
func TestStreamDevicesForDatagrams(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		for ps, want := range map[PortSpace]int{PSTCP: 1, PSUDP: 0, PSIB: 0} {
			devices, err := w.h.choices(ps)
			if len(devices) != want || (want == 0) != errors.Is(err, syscall.ENODEV) {
				t.Errorf("%v: %d devices, %v", ps, len(devices), err)
			}
		}
	})
}

// Nothing watches a device of a host that is closed.
func TestStreamDeviceOfAClosedHost(t *testing.T) {
	var d *device
	inStream(t, func(w *streamWorld) {
		l, _ := w.listen(1)
		d = l.dev
		w.discard(l)
	})
	if _, err := d.async.QueryDevice(); !errors.Is(err, ErrClosed) {
		t.Errorf("the context of its events: %v, want %v", err, ErrClosed)
	}
}

// The port that the program reads is one that TCP can have.
func TestStreamPortThatIsReadIsFree(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		tcp, err := net.Listen("tcp4", "127.0.0.1:0")
		w.ok(err)
		defer tcp.Close()
		taken := uint16(tcp.Addr().(*net.TCPAddr).Port)
		// The next port is taken too, by this test or another program.
		if next, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(taken - 99)}); err == nil {
			defer next.Close()
		}
		old := ephemeral
		defer func() { ephemeral = old }()
		id := w.id(w.ch)
		ephemeral = func() (low, high uint16) { return taken, taken }
		w.ok(id.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")))
		ephemeral = func() (low, high uint16) { return taken - 99, taken }
		if got := id.SrcPort(); got <= taken-99 || got >= taken {
			t.Errorf("port %d, and %d and %d are taken", got, taken, taken-99)
		}
		w.ok(id.Close())
	})
}

// A wait for a link address lasts 2 s without a time of its own, and ends with the device: what comes later changes
// nothing.
func TestStreamWaitForALinkAddressEnds(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		n := &w.h.neighbours
		for _, removed := range []bool{false, true} {
			unknown := &way{known: lookup.Unknown, looked: time.Now().Add(time.Hour)} // the system is not asked for an hour
			n.mu.Lock()
			n.ways = map[wayKey]*way{hereToHere: unknown}
			n.mu.Unlock()
			id := w.id(w.ch)
			w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7"), 0))
			id.mu.Lock()
			stop := id.stopReaching
			id.mu.Unlock()
			if stop == nil {
				t.Error("nothing ends the wait")
			}
			if removed {
				id.dev.remove()
				stop()
				w.next(w.ch, EventDeviceRemoval)
				time.Sleep(20 * time.Millisecond) // the wait ends
				if ev, err := w.ch.TryGetEvent(); err == nil || id.state != stRemoved {
					t.Errorf("%+v after the removal; the ID is %v", ev, id.state)
				}
			} else {
				n.mu.Lock()
				unknown.looked = time.Time{}
				n.mu.Unlock()
				w.next(w.ch, EventAddrResolved)
			}
			w.ok(id.Close())
		}
	})
}

// The device with the source address of the system's route is chosen before others that can reach the peer.
func TestDeviceOfTheSourceAddress(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var list []*verbs.Device
	for i, a := range []string{"127.0.0.8", "127.0.0.1"} {
		dev, err := fab.NewDevice(string(rune('a'+i)), netip.MustParseAddr(a))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, driver.NewDevice(&card{driver.Of[verbs.DriverDevice](dev), "lo"}))
	}
	h := NewHost(list...)
	h.mu.Lock()
	devices, err := h.choices(PSTCP)
	if err != nil {
		t.Fatal(err)
	}
	d, local, err := h.find(devices, netip.MustParseAddr("127.0.0.77"))
	h.mu.Unlock()
	if err != nil || d.vdev != list[1] || local != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%v, %v, want 127.0.0.1", local, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// The result of a request changes nothing of an ID that is closed, or whose device was removed, meanwhile.
func TestStreamRequestOfAnIDThatHasEnded(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		tcp, err := net.Listen("tcp4", "127.0.0.1:0")
		w.ok(err)
		to := tcp.Addr().(*net.TCPAddr).AddrPort()
		w.ok(tcp.Close()) // the request is refused
		o, err := streamOptions()
		w.ok(err)
		for _, ended := range []state{stDestroying, stRemoved} {
			id := w.routed(to, true)
			id.state = ended
			id.step(inConnect)
			id.dialStream(w.Context(), netip.MustParseAddrPort("127.0.0.1:0"), to, o)
			if id.conn != connRequesting || len(id.ch.queue) != 0 {
				t.Errorf("%v: the connection is %v, %d events", ended, id.conn, len(id.ch.queue))
			}
			id.state = stConnect
			w.ok(id.Close())
		}
	})
}

// Disconnect of a connection whose QP has gone waits for its end, as that of others.
func TestStreamDisconnectWithoutQP(t *testing.T) {
	inStream(t, func(w *streamWorld) {
		l, to := w.listen(1)
		id := w.routed(to, true)
		id.state, id.conn = stConnect, connEstablished
		id.mu.Lock()
		wait, err := id.disconnectStream("disconnect")
		id.mu.Unlock()
		if !wait || err != nil || !id.leaving {
			t.Errorf("waits %v, %v; leaving %v", wait, err, id.leaving)
		}
		w.discard(id, l)
	})
}
