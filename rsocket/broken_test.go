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

// A peer that has broken the protocol is told that the connection is over, before the program closes its end.
func TestLyingPeerIsDisconnected(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		r.say(rs.Word(rs.OpData, 5000), rs.SGE{}, nil)
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.EPROTO) {
			t.Errorf("read: %v", err)
		}
		if !r.left() {
			t.Error("the peer hears of no end")
		}
		p.ok(c.Close())
		r.close()
	})
}

// The inline size that is told is what the QP got: at least what control messages need, whatever was asked for.
func TestR_OPT_05_InlineOfTheQP(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		const control = 24
		none := func(s *rsocket.Socket) { p.ok(s.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAInline, 0)) }
		c, s := p.sockets(none, none)
		for _, s := range []*rsocket.Socket{c, s} {
			if n := must(s.OptionInt(rsocket.SolRDMA, rsocket.RDMAInline))(p); n < control {
				t.Errorf("%d bytes inline", n)
			}
		}
		must(c.Send([]byte("x"), 0))(p)
		must(s.Recv(make([]byte, 1), 0))(p)
		p.closeSockets(c, s)
	})
}

// A server's answer repeats what the request asks for.
func TestW_RS_02_AnswerEchoesTheRequest(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		to := netip.MustParseAddrPort(l.Addr().String())
		for _, rnr := range []uint8{0, 3, 7} {
			ch := must(p.a.host.CreateEventChannel())(p)
			id := must(p.a.host.CreateID(ch, rdmacm.PSTCP, nil))(p)
			p.ok(id.ResolveAddr(bg, netip.AddrPort{}, to, time.Second))
			p.ok(id.ResolveRoute(bg, time.Second))
			asked := rdmacm.ConnParam{
				QPNum: 0x77, FlowControl: rnr > 0, RetryCount: 7, RNRRetryCount: rnr, ResponderResources: rnr, InitiatorDepth: rnr / 2,
				PrivateData: (&rs.ConnData{Credits: 16, Table: rs.SGE{Length: 2}}).Append(nil),
			}
			p.ok(id.Connect(bg, &asked))
			var got rdmacm.ConnParam
			for answered := false; !answered; {
				ev := must(ch.GetEvent(bg))(p)
				if answered = ev.Type == rdmacm.EventConnectResponse; answered {
					got = ev.Conn
				}
				p.ok(ev.Err())
				p.ok(ev.Ack())
			}
			if got.RNRRetryCount != rnr || got.FlowControl != asked.FlowControl || got.ResponderResources != asked.ResponderResources || got.InitiatorDepth != asked.InitiatorDepth {
				t.Errorf("asked for %+v, got %+v", asked, got)
			}
			p.ok(id.Close())
			p.ok(ch.Close())
		}
		p.ok(l.Close())
		synctest.Wait()
		time.Sleep(10 * time.Minute)
	})
}

// Sizes of buffers that exist do not change, and are told as they are.
func TestBufferSizesAfterConnecting(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		set := func(v int) func(*rsocket.Socket) {
			return func(s *rsocket.Socket) {
				p.ok(s.SetOptionInt(rsocket.SolSocket, rsocket.SoRcvBuf, v))
				p.ok(s.SetOptionInt(rsocket.SolSocket, rsocket.SoSndBuf, v))
			}
		}
		c, s := p.sockets(set(5000), set(6000))
		for s, want := range map[*rsocket.Socket]int{c: 10000, s: 12000} {
			set(7000)(s)
			for _, name := range []int{rsocket.SoRcvBuf, rsocket.SoSndBuf} {
				if got := must(s.OptionInt(rsocket.SolSocket, name))(p); got != want {
					t.Errorf("option %d is %d, want %d", name, got, want)
				}
			}
		}
		p.closeSockets(c, s)
	})
}
