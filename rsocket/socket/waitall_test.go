package socket_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// TestR_IO_07_WaitAllOfAFailedStream checks that MSG_WAITALL, with and without MSG_PEEK, does not wait for data that
// cannot come: the call ends with what there is when the connection fails.
func TestR_IO_07_WaitAllOfAFailedStream(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		must(c.Send([]byte("abc"), 0))(p)
		buf := make([]byte, 10)
		if n, err := s.Recv(buf, socket.MsgPeek); n != 3 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		p.OK(s.SetOptionInt(socket.SolSocket, socket.SoKeepAlive, 1))
		p.OK(s.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepIdle, 1))
		p.OK(s.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepIntvl, 1))
		p.OK(s.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepCnt, 1))
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		recv := func(flags socket.Flags) {
			n, err := s.Recv(buf, flags)
			done <- result{n, err}
		}
		go recv(socket.MsgPeek | socket.MsgWaitAll)
		if r := <-done; r.n != 3 || r.err != nil && !errors.Is(r.err, syscall.ETIMEDOUT) {
			t.Errorf("waiting: %+v", r)
		}
		for _, flags := range []socket.Flags{socket.MsgPeek | socket.MsgWaitAll, socket.MsgWaitAll} {
			go recv(flags)
			synctest.Wait()
			select {
			case r := <-done:
				if r.n != 3 || string(buf[:3]) != "abc" {
					t.Errorf("flags %v: %+v, %q", flags, r, buf[:3])
				}
			default:
				t.Fatalf("flags %v: Recv waits", flags)
			}
		}
		if _, err := s.Recv(buf, 0); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("without data: %v, want ETIMEDOUT", err)
		}
		p.closeSockets(c, s)
		time.Sleep(time.Hour) // until the peer has given up
	})
}
