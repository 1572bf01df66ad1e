package rsocket_test

import (
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// A peer that violates the protocol is notified of the end of the connection before the program closes its end.
func TestInvalidPeerIsDisconnected(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		r.say(rs.Word(rs.OpData, 5000), rs.SGE{}, nil)
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.EPROTO) {
			t.Errorf("read: %v", err)
		}
		if !r.left() {
			t.Error("the peer is not notified of the end")
		}
		p.OK(c.Close())
		r.close()
	})
}

// A server's answer repeats the parameters of the request.
func TestW_RS_02_AnswerEchoesTheRequest(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		to := netip.MustParseAddrPort(l.Addr().String())
		for _, rnr := range []uint8{0, 3, 7} {
			ch := must(p.A.Host.CreateEventChannel())(p)
			id := must(p.A.Host.CreateID(ch, rdmacm.PSTCP, nil))(p)
			p.OK(id.ResolveAddr(bg, netip.AddrPort{}, to, time.Second))
			p.OK(id.ResolveRoute(bg, time.Second))
			asked := rdmacm.ConnParam{
				QPNum: 0x77, FlowControl: rnr > 0, RetryCount: 7, RNRRetryCount: orZero(rnr),
				ResponderResources: orZero(rnr), InitiatorDepth: orZero(rnr / 2),
				PrivateData: (&rs.ConnData{Credits: 16, Table: rs.SGE{Length: 2}}).Append(nil),
			}
			p.OK(id.Connect(bg, &asked))
			var got rdmacm.ConnParam
			for answered := false; !answered; {
				ev := must(ch.GetEvent(bg))(p)
				if answered = ev.Type == rdmacm.EventConnectResponse; answered {
					got = ev.Conn
				}
				p.OK(ev.Err())
				p.OK(ev.Ack())
			}
			if got.RNRRetryCount != rnr || got.FlowControl != asked.FlowControl ||
				got.ResponderResources != rnr || got.InitiatorDepth != rnr/2 {
				t.Errorf("the request has %+v, the answer %+v", asked, got)
			}
			p.OK(id.Close())
			p.OK(ch.Close())
		}
		p.OK(l.Close())
		synctest.Wait()
		time.Sleep(10 * time.Minute)
	})
}

// orZero is a number for rdmacm.ConnParam, in which 0 stands for a default.
func orZero(n uint8) uint8 {
	if n == 0 {
		return rdmacm.Zero
	}
	return n
}
