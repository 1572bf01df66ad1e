package socket_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// An accepted socket inherits keepalive from the listening socket.
func TestR_SOCK_09_KeepAliveOfAccepted(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, func(l *socket.Socket) {
			p.OK(l.SetOptionInt(socket.SolSocket, socket.SoKeepAlive, 1))
			p.OK(l.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepIdle, 5))
		})
		if n := must(s.OptionInt(socket.IPProtoTCP, socket.TCPKeepIdle))(p); n != 5 {
			t.Errorf("%d seconds", n)
		}
		synctest.Wait()
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		if e := p.poll(s, 0, time.Hour); e != socket.PollErr|socket.PollHup {
			t.Errorf("after an hour it has %#x", e)
		}
		p.closeSockets(c, s)
		time.Sleep(time.Hour) // until the peer has given up
	})
}

// Keepalive also works for a connection whose set-up takes longer than the keepalive time.
func TestKeepAliveOfSlowConnect(t *testing.T) {
	var cut atomic.Bool
	cut.Store(true)
	script := func(rdmatest.Packet) (rdmatest.Verdict, bool) { return rdmatest.Verdict{Drop: true}, cut.Load() }
	inBubble(t, rdmatest.Faults{Script: script}, func(p *places) {
		time.AfterFunc(3*time.Second, func() { cut.Store(false) })
		start := time.Now()
		c, s := p.sockets(func(c *socket.Socket) {
			p.OK(c.SetOptionInt(socket.SolSocket, socket.SoKeepAlive, 1))
			p.OK(c.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepIdle, 1))
		}, nil)
		if took := time.Since(start); took < 3*time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		cut.Store(true)
		if e := p.poll(c, 0, time.Hour); e != socket.PollErr|socket.PollHup {
			t.Errorf("after an hour it has %#x", e)
		}
		cut.Store(false)
		p.closeSockets(c, s)
	})
}
