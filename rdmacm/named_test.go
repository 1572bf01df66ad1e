package rdmacm_test

import (
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// The error of a synchronous ID's call names that call, once, whatever event its result is.
func TestErrorsNameTheCall(t *testing.T) {
	in(t, func(w *world) {
		named := func(err error, errno syscall.Errno, prefix, not string) {
			w.errno(err, errno)
			if text := err.Error(); !strings.HasPrefix(text, prefix) || strings.Contains(text, not) {
				t.Errorf("%q: must begin with %q, without %q", text, prefix, not)
			}
		}
		id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		dst := netip.MustParseAddrPort("127.0.0.1:7")
		named(id.ResolveAddr(bg, netip.AddrPort{}, dst, time.Second), syscall.ENODEV, "resolve_addr: ", ": resolve_addr")
		w.ok(id.Close())

		l := must(rdmacm.Listen(bg, addrB.String()+":7471", &rdmacm.Options{Host: w.b}))(w)
		var dial sync.WaitGroup
		dial.Go(func() { _, _ = rdmacm.Dial(bg, addrB.String()+":7471", &rdmacm.Options{Host: w.a}) })
		s := must(l.Request(bg))(w)
		w.fab.Cut(addrA, addrB)
		named(s.Accept(bg, nil), syscall.ETIMEDOUT, "accept: ", "connect: ")
		w.ok(s.Close())
		w.ok(l.Close())
		dial.Wait()
	})
}
