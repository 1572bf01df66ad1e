package soft_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

// at is an SGE of memory in a region of the whole address space.
func at(mr *verbs.MR, b []byte) verbs.SGE {
	return verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), Length: uint32(len(b)), LKey: mr.LKey()}
}

// mapped is memory that can be unmapped.
func mapped(t *testing.T, n int) (b []byte, unmap func()) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	return b, func() { must(t, unix.Munmap(b)) }
}

const implicit = verbs.AccessOnDemand | verbs.AccessLocalWrite

// A region of the whole address space sends and receives any memory of the process: of the system and of Go's heap.
// Requests for memory that is not mapped complete with errors.
func TestV_MR_14_WholeAddressSpace(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		ra, rb := get(a.pd.RegMR(nil, implicit))(t), get(b.pd.RegMR(nil, implicit))(t)
		defer func() { must(t, ra.Close()); must(t, rb.Close()) }()
		if ra.RKey() != 0 || ra.Addr() != 0 {
			t.Errorf("rkey %#x, address %#x", ra.RKey(), ra.Addr())
		}
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		from, unmapFrom := mapped(t, 1<<16)
		to, unmapTo := mapped(t, 1<<16)
		for i := range from {
			from[i] = byte(i * 7)
		}
		heap := make([]byte, 1000)
		copy(heap, "of Go's heap")
		must(t, qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{at(rb, to[:50001])}}))
		must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{at(ra, from[:40000]), at(ra, heap)}}))
		a.good(1)
		b.good(1)
		if !bytes.Equal(to[:40000], from[:40000]) || !bytes.Equal(to[40000:41000], heap) {
			t.Error("other bytes arrived")
		}
		// READs and atomics of the peer's ordinary memory return into it.
		must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{at(ra, from[100:200])}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
		a.good(1)
		if !bytes.Equal(from[100:200], b.buf[:100]) {
			t.Error("other bytes were read")
		}
		gone := at(ra, from[:100])
		lost := at(rb, to[:100])
		unmapTo()
		must(t, qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{lost}}))
		must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{at(ra, heap[:9])}}))
		if st := b.poll(1)[0].Status; st != verbs.WCLocProtErr {
			t.Errorf("a receive into memory that is not mapped: %v", st)
		}
		if st := a.poll(1)[0].Status; st != verbs.WCRemOpErr {
			t.Errorf("a SEND to it: %v", st)
		}
		unmapFrom()
		for _, s := range []verbs.SGE{
			gone, {Addr: 0, Length: 8, LKey: ra.LKey()}, {Addr: 4096, Length: 8, LKey: ra.LKey()},
			{Addr: 1 << 63, Length: 8, LKey: ra.LKey()}, {Addr: ^uint64(0), Length: 8, LKey: ra.LKey()},
			{Addr: 1<<47 - 4096, Length: 1 << 20, LKey: ra.LKey()},
		} {
			qa, _ := connect(a, b, verbs.QPTypeRC, nil)
			must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{s}}))
			if st := a.poll(1)[0].Status; st != verbs.WCLocProtErr {
				t.Errorf("a SEND of %d bytes at %#x: %v", s.Length, s.Addr, st)
			}
		}
	})
}

// A peer cannot name addresses of such a region, and no window is bound to it.
func TestV_MR_14_WholeAddressSpaceIsNotThePeers(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	for _, access := range []verbs.AccessFlags{verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic,
		verbs.AccessMWBind, verbs.AccessFlushGlobal} {
		if _, err := a.pd.RegMR(nil, implicit|access); !errors.Is(err, verbs.EOPNOTSUPP) {
			t.Errorf("%v: %v", access, err)
		}
	}
	r := get(b.pd.RegMR(nil, implicit))(t)
	defer func() { must(t, r.Close()) }()
	for _, key := range []uint32{r.LKey(), r.RKey()} {
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: key}))
		if st := a.poll(1)[0].Status; st != verbs.WCRemAccessErr {
			t.Errorf("a READ with key %#x: %v", key, st)
		}
	}
}

// Prefetching brings the pages of an SGE into memory, and no others.
func TestV_MR_14_PrefetchOfTheWholeAddressSpace(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	r := get(e.pd.RegMR(nil, implicit))(t)
	defer func() { must(t, r.Close()) }()
	page := unix.Getpagesize()
	b, unmap := mapped(t, 64*page)
	must(t, unix.Madvise(b, unix.MADV_NOHUGEPAGE))
	if n := inMemory(t, b); n != 0 {
		t.Skipf("the system has brought in %d pages already", n)
	}
	err := e.pd.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseMRFlush, at(r, b[8*page+5:24*page]))
	if n := inMemory(t, b); err != nil || n != 16 {
		t.Errorf("%d pages after prefetching 16: %v", n, err)
	}
	all := at(r, b)
	unmap()
	if err := e.pd.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseMRFlush, all); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("of memory that is not mapped: %v", err)
	}
	if err := e.pd.AdviseMR(verbs.AdvicePrefetch, 0, verbs.SGE{Addr: 8, Length: 8, LKey: r.LKey()}); !errors.Is(err,
		syscall.EFAULT) {
		t.Errorf("of address 8: %v", err)
	}
}
