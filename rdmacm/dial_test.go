package rdmacm_test

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// AckTimeout and RetryCount of Dial and Listen are those of the QPs. The ACK timeout is each side's own, the retry
// count that of the active side for both.
func TestOptionsOfTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		dial, listen   rdmacm.Options
		client, server verbs.QPAttr // Timeout, RetryCnt
	}{
		"defaults": {client: verbs.QPAttr{Timeout: 17, RetryCnt: 7},
			server: verbs.QPAttr{Timeout: 17, RetryCnt: 7}},
		"client": {
			dial: rdmacm.Options{AckTimeout: 10, RetryCount: 3}, client: verbs.QPAttr{Timeout: 10, RetryCnt: 3},
			server: verbs.QPAttr{Timeout: 15, RetryCnt: 3}},
		"server": {listen: rdmacm.Options{AckTimeout: 12}, client: verbs.QPAttr{Timeout: 17, RetryCnt: 7},
			server: verbs.QPAttr{Timeout: 12, RetryCnt: 7}},
		"after other options": {
			dial:   rdmacm.Options{PathMTU: verbs.MTU1024, KeepAlive: time.Minute, AckTimeout: 10},
			client: verbs.QPAttr{Timeout: 10, RetryCnt: 7}, server: verbs.QPAttr{Timeout: 15, RetryCnt: 7}},
		"zero": {
			dial: rdmacm.Options{AckTimeout: verbs.Zero, RetryCount: verbs.Zero}, client: verbs.QPAttr{},
			server: verbs.QPAttr{Timeout: 17}},
		"rdmacm's zero": {
			dial: rdmacm.Options{AckTimeout: rdmacm.Zero, RetryCount: rdmacm.Zero}, client: verbs.QPAttr{},
			server: verbs.QPAttr{Timeout: 17}},
		"with a param": {
			dial: rdmacm.Options{RetryCount: 2, Param: &rdmacm.ConnParam{RetryCount: 5}}, client: verbs.QPAttr{Timeout: 17,
				RetryCnt: 2},
			server: verbs.QPAttr{Timeout: 17, RetryCnt: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				c.dial.Host, c.listen.Host = w.a, w.b
				l := must(rdmacm.Listen(bg, ":0", &c.listen))(w)
				got := w.accepts(l, 1)
				client := must(rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), &c.dial))(w)
				server := <-got
				for _, end := range []struct {
					id   *rdmacm.ID
					want verbs.QPAttr
				}{{client, c.client}, {server, c.server}} {
					a, _, err := end.id.QP().Query(0)
					w.ok(err)
					if a.Timeout != end.want.Timeout || a.RetryCnt != end.want.RetryCnt {
						t.Errorf("%v: timeout %d, %d retries, want %d and %d", end.id.LocalAddr(), a.Timeout, a.RetryCnt,
							end.want.Timeout, end.want.RetryCnt)
					}
					w.ok(end.id.Close())
				}
				w.ok(l.Close())
			})
		})
	}
}

// TestListenEverywhere: ":port" is all addresses of both families, as with package net; 0.0.0.0 those of IPv4.
func TestListenEverywhere(t *testing.T) {
	in(t, func(w *world) {
		for _, c := range []struct {
			address string
			both    bool
		}{{":0", true}, {"[::]:0", true}, {"0.0.0.0:0", false}} {
			l := must(rdmacm.Listen(bg, c.address, &rdmacm.Options{Host: w.b}))(w)
			for _, dst := range []netip.Addr{addrB, addrB6} {
				to := at(dst, l.Addr().Port()).String()
				if dst.Is6() && !c.both {
					_, err := rdmacm.Dial(bg, to, &rdmacm.Options{Host: w.a})
					w.errno(err, syscall.ECONNREFUSED)
					continue
				}
				got := w.accepts(l, 1)
				w.ok(must(rdmacm.Dial(bg, to, &rdmacm.Options{Host: w.a}))(w).Close())
				w.ok((<-got).Close())
			}
			w.ok(l.Close())
		}
	})
}

// Bad options are EINVAL, and nothing is left.
func TestBadOptions(t *testing.T) {
	in(t, func(w *world) {
		for _, o := range []rdmacm.Options{{RetryCount: 8}, {AckTimeout: 32}, {AckTimeout: 10, PortSpace: rdmacm.PSUDP}} {
			o.Host = w.a
			_, err := rdmacm.Dial(bg, at(addrB, 9).String(), &o)
			w.errno(err, syscall.EINVAL)
		}
		_, err := rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b, AckTimeout: 32})
		w.errno(err, syscall.EINVAL)
	})
}
