package socket_test

import (
	"math"
	"math/bits"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// TestLargestIOMap checks that a buffer whose length the peer cannot learn is refused. The peer would know it as a
// shorter one.
func TestLargestIOMap(t *testing.T) {
	if bits.UintSize < 64 {
		t.Skip("no buffer is as long")
	}
	n := uint64(math.MaxUint32) + 1
	mem, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = syscall.Munmap(mem) }()
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 2)) }, nil)
		at, err := s.IOMap(mem, socket.ProtWrite, 0)
		if p.errno("4 GiB", err, syscall.EINVAL); at != -1 {
			t.Errorf("it is at %d", at)
		}
		must(s.IOMap(mem[1:], socket.ProtWrite, 0))(p)
		p.OK(s.IOUnmap(mem[1:]))
		p.closeSockets(c, s)
	})
}
