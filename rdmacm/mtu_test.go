package rdmacm_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// largest is the largest packet, BTH to ICRC, of an interface with an MTU.
func largest(mtu int) int { return mtu - 48 }

// inUnequal runs a test on two hosts whose interfaces have these MTUs.
func inUnequal(t *testing.T, mtuA, mtuB int, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		fabric := mem.NewFabric(mem.Config{MTU: largest(min(mtuA, mtuB))})
		host := func(name string, mtu int, addrs ...netip.Addr) *rdmacm.Host {
			dev, err := soft.New(softlink.On(soft.Config{Name: name, Addrs: addrs}, softlink.Links{
				MTU:  largest(mtu),
				Open: func(addrs []netip.Addr, ports int) (link.Link, error) { return fabric.Open(addrs, ports) },
			}))
			if err != nil {
				t.Fatal(err)
			}
			return rdmacm.NewHost(dev.Device)
		}
		w := &world{T: t, a: host("a", mtuA, addrA, addrA6), b: host("b", mtuB, addrB, addrB6)}
		f(w)
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}

// Hosts with different MTUs connect with the smaller one, whichever of them begins, and the program sees one request.
func TestUnequalMTUs(t *testing.T) {
	for _, c := range []struct {
		a, b int
		dst  netip.Addr
		want verbs.MTU
	}{
		{9000, 1500, addrB, verbs.MTU1024}, {9000, 1500, addrB6, verbs.MTU1024}, {1500, 9000, addrB, verbs.MTU1024},
		{9000, 2300, addrB, verbs.MTU2048}, {1500, 400, addrB6, verbs.MTU256},
	} {
		inUnequal(t, c.a, c.b, func(w *world) {
			l := w.listen(at(c.dst, port), 0)
			a, b := w.connected(l, at(c.dst, port))
			for _, e := range []*end{a, b} {
				attr, _, err := e.QP().Query(0)
				if p := e.Route().PathRec[0]; err != nil || p.MTU != c.want || attr.PathMTU != c.want {
					t.Errorf("MTUs %d and %d: path MTU %v, of the QP %v, %v; want %v", c.a, c.b, p.MTU, attr.PathMTU, err, c.want)
				}
			}
			w.exchange(a, b)
			l.none()
			b.closeID()
			a.close()
			l.close()
		})
	}
}

// A path MTU that the program has fixed is not reduced, and the error names what the peer takes.
func TestFixedPathMTU(t *testing.T) {
	inUnequal(t, 9000, 1500, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		opts := &rdmacm.Options{Host: w.a, PathMTU: verbs.MTU2048}
		_, err := rdmacm.Dial(bg, at(addrB, port).String(), opts)
		if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "26 (invalid path MTU)") ||
			!strings.Contains(err.Error(), "path MTU 2048: must be at most the peer's 1024") {
			t.Errorf("%v", err)
		}
		opts.PathMTU = verbs.MTU512
		done := make(chan error, 1)
		go func() {
			ev, err := l.ch.GetEvent(bg)
			if err == nil {
				s := &end{ev.ID, w, l.ch}
				err = errors.Join(s.CreateQP(nil, qpInit()), s.Accept(bg, nil), ev.Ack())
				if attr, _, qerr := s.QP().Query(0); qerr != nil || attr.PathMTU != verbs.MTU512 {
					t.Errorf("path MTU %v of the QP, %v", attr.PathMTU, qerr)
				}
				s.expect(rdmacm.EventEstablished)
				s.closeID()
			}
			done <- err
		}()
		id, err := rdmacm.Dial(bg, at(addrB, port).String(), opts)
		w.ok(err)
		w.ok(<-done)
		w.ok(id.Close())
		l.close()
	})
}

// A listener with a fixed path MTU takes no more, and clients connect with that.
func TestFixedPathMTUOfListener(t *testing.T) {
	inUnequal(t, 9000, 9000, func(w *world) {
		l, err := rdmacm.Listen(bg, at(addrB, port).String(), &rdmacm.Options{Host: w.b, PathMTU: verbs.MTU512})
		w.ok(err)
		served := make(chan *rdmacm.ID, 1)
		go func() {
			id, err := l.Accept(bg)
			if err != nil {
				t.Error(err)
			}
			served <- id
		}()
		c, err := rdmacm.Dial(bg, at(addrB, port).String(), &rdmacm.Options{Host: w.a})
		w.ok(err)
		s := <-served
		for _, id := range []*rdmacm.ID{c, s} {
			if attr, _, err := id.QP().Query(0); err != nil || attr.PathMTU != verbs.MTU512 {
				t.Errorf("path MTU %v of the QP, %v", attr.PathMTU, err)
			}
			w.ok(id.Close())
		}
		w.ok(l.Close())
	})
}

func TestBadPathMTU(t *testing.T) {
	inUnequal(t, 1500, 1500, func(w *world) {
		_, err := rdmacm.Dial(bg, at(addrB, port).String(), &rdmacm.Options{Host: w.a, PathMTU: verbs.MTU4096})
		w.errno(err, syscall.EINVAL)
		if err != nil && !strings.Contains(err.Error(), "must be at most the port's active MTU 1024") {
			t.Errorf("%v", err)
		}
		for _, m := range []verbs.MTU{0, 6, 255} {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			w.errno(e.SetPathMTU(m), syscall.EINVAL)
			e.close()
		}
		e := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.errno(e.SetPathMTU(verbs.MTU256), syscall.EINVAL)
		e.close()
	})
}
