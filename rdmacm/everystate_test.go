package rdmacm_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// stateOfID is a state of an ID. allowed lists the calls that the state permits; the test does not make them. bring
// makes an ID in the state. usable checks that the ID still works after all other calls have failed, and destroys
// everything.
type stateOfID struct {
	name    string
	allowed []string
	bring   func(w *world) (id *end, usable func())
}

// callsOf returns all calls whose result depends on the state, with valid arguments.
func callsOf(e *end) map[string]func() error {
	return map[string]func() error{
		"bind":       func() error { return e.BindAddr(at(addrA, 0)) },
		"bind IB":    func() error { return e.BindAddrIB(rdmacm.SockaddrIB{SID: rdmacm.ServiceID(rdmacm.PSTCP, 9)}) },
		"addr":       func() error { return e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout) },
		"route":      func() error { return e.ResolveRoute(bg, timeout) },
		"path":       func() error { return e.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, pathData()) },
		"listen":     func() error { return e.Listen(1) },
		"request":    func() error { _, err := e.GetRequest(bg); return err },
		"connect":    func() error { return e.Connect(bg, &rdmacm.ConnParam{QPNum: 1}) },
		"accept":     func() error { return e.Accept(bg, &rdmacm.ConnParam{QPNum: 1}) },
		"reject":     func() error { return e.Reject(nil) },
		"reject ECE": func() error { return e.RejectECE(nil) },
		"establish":  e.Establish,
		"disconnect": func() error { return e.Disconnect(bg) },
		"notify":     func() error { return e.Notify(verbs.EventCommEst) },
		"join":       func() error { return e.JoinMulticast(bg, at(group4, 0), nil) },
		"afonly":     func() error { return e.SetAFOnly(true) },
		"reuse":      func() error { return e.SetReuseAddr(false) },
		"QP":         func() error { return e.CreateQP(nil, qpInit()) },
		"no QP":      e.DestroyQP,
		"SRQ":        func() error { return e.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}) },
		"no SRQ":     e.DestroySRQ,
		"attributes": func() error { _, err := e.InitQPAttr(&verbs.QPAttr{QPState: verbs.QPSRTR}); return err },
		"migrate":    func() error { return e.Migrate(nil) },
	}
}

var objects = []string{"QP", "SRQ", "migrate"}

func statesOfID() []stateOfID {
	fresh := func(w *world) (*end, func()) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		return e, func() {
			w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
			e.expect(rdmacm.EventAddrResolved)
			e.close()
		}
	}
	// asked returns a listener and both ends of a connection after EventConnectRequest.
	asked := func(w *world) (l, c, s *end) {
		l = w.listen(at(addrB, port), 0)
		c = w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: 7}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		return l, c, &end{ev.ID, w, l.ch}
	}
	// finish accepts the request, disconnects, and closes everything.
	finish := func(l, c, s *end) {
		c.w.ok(s.Accept(bg, &rdmacm.ConnParam{QPNum: 8}))
		c.expect(rdmacm.EventConnectResponse)
		c.w.ok(c.Establish())
		s.expect(rdmacm.EventEstablished)
		c.w.ok(c.Disconnect(bg))
		s.expect(rdmacm.EventDisconnected)
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	}
	gone := func(w *world, e *end) {
		e.none()
		w.ok(e.ch.Close())
	}
	return []stateOfID{
		{"IDLE", []string{"bind", "bind IB", "addr", "listen", "afonly", "reuse", "migrate"}, fresh},
		{"ADDR_BOUND", append([]string{"addr", "listen", "afonly"}, objects...), func(w *world) (*end, func()) {
			e, usable := fresh(w)
			w.ok(e.BindAddr(at(addrA, 0)))
			return e, usable
		}},
		{"ADDR_BOUND to all addresses", []string{"addr", "listen", "afonly", "migrate"}, func(w *world) (*end, func()) {
			e, usable := fresh(w)
			w.ok(e.BindAddr(at(netip.IPv4Unspecified(), 0)))
			return e, usable
		}},
		{"LISTEN", append([]string{}, objects...), func(w *world) (*end, func()) {
			l := w.listen(at(addrB, port), 0)
			return l, func() {
				c, s := w.connected(l, at(addrB, port))
				s.closeID()
				c.close()
				l.close()
			}
		}},
		{"ADDR_RESOLVED", append([]string{"route", "path"}, objects...), func(w *world) (*end, func()) {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
			e.expect(rdmacm.EventAddrResolved)
			return e, func() {
				w.ok(e.ResolveRoute(bg, timeout))
				e.expect(rdmacm.EventRouteResolved)
				e.close()
			}
		}},
		{"ROUTE_RESOLVED", append([]string{"connect"}, objects...), func(w *world) (*end, func()) {
			l := w.listen(at(addrB, port), 0)
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			return c, func() {
				w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: 7}))
				ev := w.next(l.ch, rdmacm.EventConnectRequest)
				w.ok(ev.Ack())
				finish(l, c, &end{ev.ID, w, l.ch})
			}
		}},
		{"REQ_SENT", objects, func(w *world) (*end, func()) {
			l, c, s := asked(w)
			return c, func() { finish(l, c, s) }
		}},
		{"REQ_RCVD", append([]string{"accept", "reject", "reject ECE", "attributes"}, objects...),
			func(w *world) (*end, func()) {
				l, c, s := asked(w)
				return s, func() { finish(l, c, s) }
			}},
		{"REP_RCVD", append([]string{"establish", "reject", "reject ECE", "attributes"}, objects...),
			func(w *world) (*end, func()) {
				l, c, s := asked(w)
				w.ok(s.Accept(bg, &rdmacm.ConnParam{QPNum: 8}))
				c.expect(rdmacm.EventConnectResponse)
				return c, func() {
					w.ok(c.Establish())
					s.expect(rdmacm.EventEstablished)
					s.closeID()
					c.expect(rdmacm.EventDisconnected)
					c.close()
					l.close()
				}
			}},
		{"ESTABLISHED", []string{"disconnect", "notify", "attributes", "SRQ", "no QP", "migrate"},
			func(w *world) (*end, func()) {
				l := w.listen(at(addrB, port), 0)
				c, s := w.connected(l, at(addrB, port))
				return c, func() {
					w.exchange(c, s)
					s.closeID()
					c.expect(rdmacm.EventDisconnected)
					c.close()
					l.close()
				}
			}},
		{"DISCONNECT", []string{"disconnect", "attributes", "SRQ", "no QP", "migrate"}, func(w *world) (*end, func()) {
			l := w.listen(at(addrB, port), 0)
			c, s := w.connected(l, at(addrB, port))
			s.closeID()
			c.expect(rdmacm.EventDisconnected)
			return c, func() {
				w.ok(c.Disconnect(bg))
				c.expect(rdmacm.EventTimewaitExit)
				c.close()
				l.close()
			}
		}},
		{"REJECTED", append([]string{"disconnect"}, objects...), func(w *world) (*end, func()) {
			l, c, s := asked(w)
			w.ok(s.Reject(nil))
			c.expect(rdmacm.EventRejected)
			return c, func() {
				s.closeID()
				c.close()
				l.close()
			}
		}},
		{"DEVICE_REMOVAL", []string{"no QP", "migrate"}, func(w *world) (*end, func()) {
			l := w.listen(at(addrB, port), 0)
			c, s := w.connected(l, at(addrB, port))
			w.a.Remove(c.Verbs())
			c.expect(rdmacm.EventDeviceRemoval)
			return c, func() {
				c.close()
				s.closeID()
				l.close()
				time.Sleep(time.Second) // the device is closed in the background
			}
		}},
		{"DESTROYING", nil, func(w *world) (*end, func()) {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			w.ok(e.Close())
			return e, func() { gone(w, e) }
		}},
		{"DESTROYING, bound", nil, func(w *world) (*end, func()) {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			w.ok(e.BindAddr(at(addrA, 0)))
			w.ok(e.Close())
			return e, func() { gone(w, e) }
		}},
	}
}

// A call that the state does not allow fails with EINVAL and causes no event, and the ID still works.
func TestC_ID_21_EveryCallInEveryState(t *testing.T) {
	for _, s := range statesOfID() {
		t.Run(s.name, func(t *testing.T) {
			in(t, func(w *world) {
				e, usable := s.bring(w)
				allowed := map[string]bool{}
				for _, name := range s.allowed {
					allowed[name] = true
				}
				for name, call := range callsOf(e) {
					if allowed[name] {
						continue
					}
					if err := call(); !errors.Is(err, syscall.EINVAL) {
						t.Errorf("%s: %v", name, err)
					}
				}
				e.none()
				usable()
			})
		})
	}
}
