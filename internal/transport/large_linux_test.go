package transport

import (
	"math"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// An RDMA READ of 2^31 bytes uses 2^23 PSNs at the smallest MTU, the limit of circular comparison: its first PSN must
// still count as a duplicate afterwards. Only the first bytes of the memory are accessed.
func TestV_TR_06_ReadOf2GiB(t *testing.T) {
	const first = 0xFFFFF0
	size := uint32(1 << 31)
	if uint64(size) > math.MaxInt {
		t.Skip("no slice is that long here")
	}
	buf, err := syscall.Mmap(
		-1,
		0,
		int(size),
		syscall.PROT_READ,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(buf) })
	s := play(t, "qp rc rq_psn=0xfffff0")
	r := &mr.Region{PD: stagePD, Access: mr.RemoteRead, Buf: buf}
	if err := s.regions.Add(r); err != nil {
		t.Fatal(err)
	}
	read := func(seq uint32, addr uint64, n uint32) {
		f := wire.Fields{
			Opcode:  wire.RC | wire.ReadRequest,
			PKey:    wire.DefaultPKey,
			DestQPN: stageQPN,
			PSN:     seq,
			RKey:    r.RKey,
			Addr:    addr,
			DMALen:  n,
		}
		s.deliver(f.Build(), "")
	}
	read(first, 0, size)
	if got, want := s.qp.resp.epsn, psn.Add(first, 1<<23); got != want {
		t.Fatalf("expecting PSN %#x, want %#x", got, want)
	}
	s.transmit(2)
	read(first, 0, size)
	read(psn.Add(first, 1<<23-1), uint64(size)-256, 256)
	s.transmit(1)
	if c := s.qp.Counters; c.DuplicateRequest != 2 || c.BadDuplicate != 0 {
		t.Errorf("%d duplicates, %d of them bad", c.DuplicateRequest, c.BadDuplicate)
	}
	want := "> RDMA READ RESPONSE ONLY psn=0x7fffef ack msn=1 data=0*256"
	if got := s.log[len(s.log)-1]; got != want {
		t.Errorf("the last answer is %q, want %q", got, want)
	}
}
