package socket_test

import (
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// TestMemoryThatIsNotMapped checks that calls transfer what comes before memory that the program cannot access, or
// return EFAULT, and that the connection goes on.
func TestMemoryThatIsNotMapped(t *testing.T) {
	const page = 4096
	mem, err := syscall.Mmap(-1, 0, 64*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mem) }()
	if err := syscall.Mprotect(mem[32*page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	gone := mem[32*page:]
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, func(l *socket.Socket) { p.OK(l.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1)) })
		for _, n := range []int{1, 100, 4000, len(gone)} {
			_, err := c.Send(gone[:n], 0)
			p.errno("send", err, syscall.EFAULT)
		}
		if n := must(c.Send(mem[28*page:], 0))(p); n != 4*page {
			p.Errorf("sent %d bytes: want those before the memory that is not mapped", n)
		}
		if n := must(c.Writev([][]byte{{1, 2}, gone[:9]}))(p); n != 2 {
			p.Errorf("sent %d bytes of two buffers", n)
		}
		_, err := s.Recv(gone[:100], 0)
		p.errno("recv", err, syscall.EFAULT)
		if n := must(s.Recv(make([]byte, 5*page), socket.MsgDontWait))(p); n == 0 {
			p.Errorf("the data must be there after EFAULT")
		}
		p.closeSockets(c, s)
	})
}
