package iwarp_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// socketOf returns the descriptor of an ID's connection.
func socketOf(t *testing.T, id *rdmacm.ID) int {
	t.Helper()
	port := func(sa unix.Sockaddr, err error) uint16 {
		if in, ok := sa.(*unix.SockaddrInet4); ok && err == nil {
			return uint16(in.Port)
		}
		return 0
	}
	for fd := range 1 << 10 {
		if port(unix.Getsockname(fd)) == id.SrcPort() && port(unix.Getpeername(fd)) == id.DstPort() {
			return fd
		}
	}
	t.Fatal("no socket of the connection")
	return -1
}

// A connection that TCP gives up because the peer does not answer ends with -ETIMEDOUT, as that of a RoCE device does
// by keep-alive. The peer here is one whose window stays closed for longer than TCP may try.
func TestPeerThatDoesNotAnswer(t *testing.T) {
	c, peer := rawServer(t)
	must(t, peer.SetReadBuffer(1))
	must(t, unix.SetsockoptInt(socketOf(t, c.ID), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1))
	for range 4 {
		must(t, c.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, memSize)}))
	}
	ev := event(t, c.ch, rdmacm.EventDisconnected)
	if ev.Status != -int(syscall.ETIMEDOUT) {
		t.Errorf("status %d, want %d", ev.Status, -int(syscall.ETIMEDOUT))
	}
	must(t, ev.Ack())
	wc := c.wait(c.RecvCQ())
	if err := wc.Err(); wc.Status != verbs.WCWRFlushErr || !strings.Contains(err.Error(), "not answer; TCP has given") {
		t.Errorf("the receive: %v", err)
	}
}

// With keep-alive a peer that does not acknowledge data is given up after the idle time and 5 s. TCP does not check
// such a peer, and would try for a quarter of an hour.
func TestKeepAliveWithDataOutstanding(t *testing.T) {
	c, peer := rawServer(t)
	must(t, peer.SetReadBuffer(1))
	must(t, c.SetKeepAlive(time.Second))
	begun := time.Now()
	for range 4 {
		must(t, c.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, memSize)}))
	}
	ev := event(t, c.ch, rdmacm.EventDisconnected)
	if took := time.Since(begun); ev.Status != -int(syscall.ETIMEDOUT) || took < 5*time.Second {
		t.Errorf("status %d after %v, want %d after 6 s", ev.Status, took, -int(syscall.ETIMEDOUT))
	}
	must(t, ev.Ack())
}
