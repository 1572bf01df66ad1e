package soft_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

const (
	holeAt  = 512 << 10 // bytes from the start of holed's memory
	holeLen = 16 << 10
)

// holed registers 1 MiB of the program's memory, and takes some pages of it away. truncate: the memory is a file that
// is too short by then, which gives another signal.
func (e *end) holed(truncate bool) *verbs.MR {
	e.tb.Helper()
	const n = 1 << 20
	fd := get(unix.MemfdCreate("verbena-test", unix.MFD_CLOEXEC))(e.tb)
	defer unix.Close(fd)
	must(e.tb, unix.Ftruncate(fd, n))
	mem := get(unix.MmapPtr(fd, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, unix.MunmapPtr(mem, n)) })
	m := get(e.pd.RegMR(unsafe.Slice((*byte)(mem), n), allAccess))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, m.Close()) })
	if truncate {
		must(e.tb, unix.Ftruncate(fd, holeAt))
	} else {
		// Not munmap: the next mmap of this process, or of the runtime, might take the place.
		must(e.tb, unix.Mprotect(unsafe.Slice((*byte)(unsafe.Add(mem, holeAt)), holeLen), unix.PROT_NONE))
	}
	return m
}

// TestUnmappedMemory has the program unmap memory, or truncate its file, under a region. Each operation that comes to
// it, from either side and with messages of each size, ends in a completion with an error, and the process lives.
func TestUnmappedMemory(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		for _, truncated := range []bool{false, true} {
			ma, mb := a.holed(truncated), b.holed(truncated)
			for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd,
				verbs.WRAtomicCmpAndSwp, verbs.WRAtomicWrite} {
				sizes := []int{8, 200, 200 << 10} // the last begins before the hole
				if op >= verbs.WRAtomicCmpAndSwp {
					sizes = sizes[:1]
				}
				for _, size := range sizes {
					at := holeAt
					if size > holeLen {
						at -= 100 << 10
					}
					name := fmt.Sprintf("%v/%d bytes/truncated %v", op, size, truncated)
					wr := verbs.SendWR{WRID: 1, Opcode: op, Flags: verbs.SendSignaled}
					t.Run(name+"/local", func(t *testing.T) {
						wr := wr
						wr.SGList, wr.RemoteAddr, wr.RKey = []verbs.SGE{ma.SGE(at, size)}, b.mr.Addr(), b.mr.RKey()
						unmapped(t, a, b, wr, b.mr.SGE(0, 1<<20), verbs.WCLocProtErr, 0)
					})
					t.Run(name+"/remote", func(t *testing.T) {
						wr := wr
						wr.SGList, wr.RemoteAddr, wr.RKey = []verbs.SGE{a.mr.SGE(0, size)}, mb.Addr()+uint64(at), mb.RKey()
						want, received := verbs.WCRemAccessErr, verbs.WCStatus(0)
						if op == verbs.WRSend {
							want, received = verbs.WCRemOpErr, verbs.WCLocProtErr
						}
						unmapped(t, a, b, wr, mb.SGE(at, size), want, received)
					})
				}
			}
		}
	})
}

// unmapped posts a request and checks its status and, unless it is 0, that of the receive.
func unmapped(t *testing.T, a, b *end, wr verbs.SendWR, recv verbs.SGE, want, received verbs.WCStatus) {
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	defer func() {
		must(t, qa.Close())
		must(t, qb.Close())
	}()
	if wr.Opcode == verbs.WRSend {
		must(t, qb.PostRecv(verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{recv}}))
	}
	must(t, qa.PostSend(wr))
	if wc := a.poll(1)[0]; wc.Status != want {
		t.Errorf("the request: %v, want %v", wc.Err(), want)
	}
	if received != 0 {
		if wc := b.poll(1)[0]; wc.Status != received {
			t.Errorf("the receive: %v, want %v", wc.Err(), received)
		}
	}
}

// TestUnmappedDatagram is TestUnmappedMemory for UD.
func TestUnmappedDatagram(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		ma, mb := a.holed(false), b.holed(false)
		for _, local := range []bool{true, false} {
			qa, qb, ah := udPair(t, a, b)
			wr := verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: qb.QPN(),
				RemoteQKey: verbs.DefaultQKey, SGList: []verbs.SGE{a.mr.SGE(0, 1000)}}
			to := mb.SGE(holeAt-40, 2000) // the GRH fits
			if local {
				wr.SGList[0], to = ma.SGE(holeAt, 1000), b.mr.SGE(0, 2000)
			}
			must(t, qb.PostRecv(verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{to}}))
			must(t, qa.PostSend(wr))
			if sent := a.poll(1)[0]; local != (sent.Status == verbs.WCLocProtErr) {
				t.Errorf("local %v: the request: %v", local, sent.Err())
			}
			if !local {
				if wc := b.poll(1)[0]; wc.Status != verbs.WCLocProtErr {
					t.Errorf("the receive: %v", wc.Err())
				}
			}
		}
	})
}

// TestUnmappedByReference unmaps the memory of AllocBuffer under a region while messages from there are sent by
// reference. The file keeps the pages, as the pins of an adapter would, for whoever has it.
func TestUnmappedByReference(t *testing.T) {
	ends := newEnds(t, &networks[2], 2, nil)
	a, b := ends[0], ends[1]
	const n = 300 << 10
	from, ma := a.shared(1 << 20)
	mb := b.holed(false)
	for refs := uint64(0); refs < 5; refs = counter(a.dev, "shm_refs") {
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		good := verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{ma.SGE(0, n)}, RemoteAddr: mb.Addr(), RKey: mb.RKey()}
		must(t, qa.PostSend(good))
		a.good(1)
		bad := good
		bad.RemoteAddr += holeAt - 100<<10
		must(t, qa.PostSend(bad))
		if wc := a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
			t.Errorf("into the hole: %v", wc.Err())
		}
		must(t, qa.Close())
		must(t, qb.Close())
	}
	_ = from
}

// TestUnmappedInline: the data of inline requests and of device memory is read by the call, which refuses it.
func TestUnmappedInline(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	ma := a.holed(false)
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline,
		SGList: []verbs.SGE{ma.SGE(holeAt, 16)}}
	if err := qa.PostSend(wr); err == nil {
		t.Error("inline data out of the hole was posted")
	}
	dm := get(a.ctx.AllocDM(verbs.AllocDMAttr{Length: 4096}))(t)
	defer dm.Close()
	gone := ma.Bytes()[holeAt:][:64]
	for _, err := range []error{dm.CopyTo(0, gone), dm.CopyFrom(gone, 0)} {
		if !errors.Is(err, syscall.EFAULT) {
			t.Errorf("device memory: %v", err)
		}
	}
}
