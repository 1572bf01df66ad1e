package rsocket_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

// A listener with a fixed path MTU rejects clients with a larger fixed one. Other clients use the listener's.
func TestPathMTU(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{PathMTU: verbs.MTU512})
		_, err := p.dialer(rsocket.Options{PathMTU: verbs.MTU2048}).Dial("tcp", l.Addr().String())
		if !errors.Is(err, syscall.ECONNREFUSED) ||
			!strings.Contains(err.Error(), "path MTU 2048: must be at most the peer's 512") {
			t.Errorf("%v", err)
		}
		for _, m := range []verbs.MTU{0, verbs.MTU512, verbs.MTU256} {
			c, s := p.pairOf(l, rsocket.Options{PathMTU: m})
			p.OK(c.Close())
			p.OK(s.Close())
		}
		p.OK(l.Close())
	})
}
