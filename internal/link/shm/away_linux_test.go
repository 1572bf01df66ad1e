package shm

import (
	"bytes"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// private returns memory in no file, and its address.
func private(t *testing.T, size int) ([]byte, int64) {
	t.Helper()
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	for i := range m {
		m[i] = byte(i>>8) + byte(i)
	}
	return m, int64(uintptr(unsafe.Pointer(&m[0])))
}

// These tests are of machines where reads are fast.
func init() { readsFast = func() bool { return true } }

// lend returns two links, of which the second one reads the first one's memory.
func lend(t *testing.T) (a, b *side, path *link.Path, sh *link.Share) {
	t.Helper()
	needReads(t)
	var d testDirectory
	a, b = d.open(t, addrA, 1), d.open(t, addrB, 1)
	path = a.ready(addrB, 7)
	sh = link.NewPlainShare()
	a.share(path, sh)
	return a, b, path, sh
}

func TestPayloadInTheSendersMemory(t *testing.T) {
	a, b, path, sh := lend(t)
	mem, at := private(t, 1<<20)
	for _, n := range []int{link.MinRef, 16 << 10, link.MaxRef} {
		a.refer(path, sh, at+12345, n)
		p := b.next()[0]
		if !p.Train || p.Epoch.Over() || p.Away == nil || p.Len() != wire.BTHLen+n {
			t.Fatalf("%d bytes: %+v", n, p)
		}
		part := make([]byte, n-100)
		p.Away.Read(part, 100)
		if whole := p.Append(nil); p.Away.Failed() || !bytes.Equal(whole[wire.BTHLen:], mem[12345:][:n]) ||
			!bytes.Equal(part, mem[12345+100:][:n-100]) {
			t.Errorf("%d bytes: wrong content (failed: %v)", n, p.Away.Failed())
		}
	}
	if c := a.p.Counters(); c.ShmRefs != 3 || c.ShmTxPackets != 3 {
		t.Errorf("%+v", c)
	}
}

// A batch is used again: what was away in one packet is not in the next.
func TestPacketsAfterPayloadInTheSendersMemory(t *testing.T) {
	a, b, path, sh := lend(t)
	_, at := private(t, 1<<20)
	for _, n := range []int{8, 4096} {
		a.refer(path, sh, at, link.MinRef)
		if p := b.next()[0]; p.Away == nil {
			t.Fatal("the payload is in the packet")
		}
		a.put(path, 7, n, 1)
		a.p.Send(a.tx)
		if p := b.next()[0]; p.Away != nil || p.Epoch != (link.Epoch{}) || len(p.Payload()) < n-4 {
			t.Errorf("%d bytes: %+v", n, p)
		}
	}
}

// The end of a region makes references to it void, whether they were received or not.
func TestRevokedMemory(t *testing.T) {
	a, b, path, sh := lend(t)
	_, at := private(t, 1<<20)
	a.refer(path, sh, at, link.MinRef)
	p := b.next()[0]
	a.refer(path, sh, at, link.MinRef)
	sh.Close()
	if !p.Epoch.Over() {
		t.Error("not void after Close")
	}
	b.await("void reference", func() bool { b.take(); return b.p.Counters().ShmRevoked == 1 })
	if a.tx.Reads(path, 7, sh) {
		t.Error("a closed share can be read")
	}
	if again := link.NewPlainShare(); !a.tx.Reads(path, 7, again) {
		t.Error("another share cannot be read")
	}
}

// Memory that cannot be read makes its packet void, and the sender copies from then on.
func TestUnmappedMemory(t *testing.T) {
	for _, where := range []string{"sender", "receiver"} {
		a, b, path, sh := lend(t)
		mem, at := private(t, 4*page)
		dst := make([]byte, link.MinRef)
		if where == "receiver" {
			dst, mem = mem[page:][:link.MinRef], dst
		}
		if where == "receiver" {
			_, at = private(t, 4*page)
		}
		a.refer(path, sh, at, link.MinRef)
		a.refer(path, sh, at, link.MinRef)
		packets := b.next()
		for len(packets) < 2 {
			packets = append(packets, b.next()...)
		}
		hole := unsafe.Pointer(unsafe.SliceData(mem))
		if where == "receiver" {
			hole = unsafe.Pointer(unsafe.SliceData(dst))
		}
		if _, _, errno := unix.Syscall(unix.SYS_MPROTECT, uintptr(hole)+page, page, unix.PROT_NONE); errno != 0 {
			t.Fatal(errno)
		}
		for i := range packets {
			if packets[i].Away.Read(dst, 0); !packets[i].Away.Failed() {
				t.Errorf("%s: packet %d was read", where, i)
			}
		}
		if p := packets[0].Append(nil); wire.BTH(p).PKey() != 0 {
			t.Errorf("%s: the copy of a void packet is valid", where)
		}
		a.await("refusal", func() bool { return !a.tx.Reads(path, 7, sh) })
		a.put(path, 7, 8, 1)
		a.p.Send(a.tx)
		b.next()
	}
}

// Another process with the process ID of the sender is not read: it does not have the proof where the sender has it.
func TestAnotherProcessIsNotRead(t *testing.T) {
	a, b, path, sh := lend(t)
	other := exec.Command("cat")
	if _, err := other.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	_, at := private(t, 1<<20)
	a.refer(path, sh, at, link.MinRef)
	p := b.next()[0]
	(*b.in.Load())[0].sender.Load().pid = other.Process.Pid
	if p.Append(nil); !p.Away.Failed() {
		t.Error("another process was read")
	}
	// Even at an address that both have.
	var t1 transfer
	m := &senderMemory{pid: other.Process.Pid, proofAt: uint64(at)}
	if t1.add(make([]byte, 8), uint64(at)); t1.read(m) >= 0 {
		t.Error("a process without the memory was read")
	}
}

// Several payloads are read at once, up to the first that cannot be read; that one is void when its turn comes, and no
// other.
func TestPayloadsReadAtOnce(t *testing.T) {
	const n = link.MinRef
	for _, hole := range []int{-1, 0, 2, runMost, runMost + 1} { // index of the payload that cannot be read
		a, b, path, sh := lend(t)
		mem, at := private(t, (runMost+2)*n)
		for i := range runMost + 2 {
			a.refer(path, sh, at+int64(i*n), n)
		}
		var all []*link.Away
		for len(all) < runMost+2 { // in one batch, since they are sent before the first one is received
			for _, p := range b.next() {
				all = append(all, p.Away)
			}
			if len(all) < runMost+2 {
				t.Fatalf("a batch of %d", len(all))
			}
		}
		if hole >= 0 {
			if err := unix.Mprotect(mem[hole*n+page:][:page], unix.PROT_NONE); err != nil {
				t.Fatal(err)
			}
		}
		dst := make([]byte, len(mem))
		for i, p := range all {
			p.To = dst[i*n:][:n]
			if i > 0 {
				all[i-1].Next = p
			}
		}
		whole := all[0].Memory.ReadRun(all[0])
		want := runMost
		if hole >= 0 {
			want = min(hole, runMost)
		}
		if whole != want || !bytes.Equal(dst[:whole*n], mem[:whole*n]) {
			t.Errorf("hole in payload %d: %d read, want %d", hole, whole, want)
		}
		all[0].ReadRun()
		clear(dst)
		for i, p := range all {
			p.Read(p.To, 0)
			if was := dst[i*n] != 0 || dst[i*n+1] != 0; !p.Failed() && was != (i >= want) {
				t.Errorf("hole in payload %d: payload %d of a run of %d was read again: %v", hole, i, want, was)
			}
			if p.Failed() != (hole >= 0 && i >= hole) {
				t.Errorf("hole in payload %d: payload %d failed: %v", hole, i, p.Failed())
			}
		}
	}
}

// A run ends where another process begins.
func TestRunOfTwoProcesses(t *testing.T) {
	a, b, path, sh := lend(t)
	_, at := private(t, 4*link.MinRef)
	a.refer(path, sh, at, link.MinRef)
	a.refer(path, sh, at+link.MinRef, link.MinRef)
	p := b.next()
	if len(p) != 2 {
		t.Fatalf("a batch of %d", len(p))
	}
	other := &senderMemory{pid: -1}
	p[1].Away.Memory.(*away).from = other
	p[0].Away.To, p[1].Away.To = make([]byte, link.MinRef), make([]byte, link.MinRef)
	p[0].Away.Next = p[1].Away
	if n := p[0].Away.Memory.ReadRun(p[0].Away); n != 1 {
		t.Errorf("%d payloads were read", n)
	}
	p[0].Away.Memory.(*away).from.readable.Store(false)
	if n := p[0].Away.Memory.ReadRun(p[0].Away); n != 0 {
		t.Errorf("%d payloads of a process that may not be read", n)
	}
}

// TestInvalidMemoryReferences checks what no correct sender sends.
func TestInvalidMemoryReferences(t *testing.T) {
	for name, at := range map[string]struct {
		n    int
		op   wire.Opcode
		drop bool // only that packet is dropped
	}{
		"too long":             {n: link.MaxRef + 4096, op: wire.RC | wire.WriteMiddle},
		"too short":            {n: 64, op: wire.RC | wire.WriteMiddle},
		"of an odd length":     {n: link.MinRef + 1, op: wire.RC | wire.WriteMiddle, drop: true},
		"in a READ request":    {n: link.MinRef, op: wire.RC | wire.ReadRequest, drop: true},
		"in an ACK":            {n: link.MinRef, op: wire.RC | wire.Ack, drop: true},
		"in a SEND of UC":      {n: link.MinRef, op: wire.UC | wire.SendMiddle, drop: true},
		"in a packet of UC":    {n: link.MinRef, op: wire.UC | wire.WriteMiddle, drop: true},
		"in a datagram":        {n: link.MinRef, op: wire.UD | wire.SendOnly, drop: true},
		"in an atomic request": {n: link.MinRef, op: wire.RC | wire.FetchAdd, drop: true},
	} {
		a, b, path, sh := lend(t)
		_, from := private(t, 1<<20)
		head := a.tx.AllocRef(path, 7, at.op.Info().Len, sh, from, at.n)
		clear(head)
		wire.BTH(head).Put(at.op, 0, 0xFFFF, 7, 1, 0)
		a.p.Send(a.tx)
		b.await("end: "+name, func() bool {
			if n := len(b.take()); n > 0 {
				t.Fatalf("%s: %d packets", name, n)
			}
			c := b.p.Counters()
			if at.drop {
				return c.RxMalformed == 1
			}
			return c.ShmBroken == 1
		})
	}
}

// A reference from a sender that was not told that its memory is read ends the ring set.
func TestMemoryReferenceWithoutConsent(t *testing.T) {
	a, b, path, sh := lend(t)
	(*b.in.Load())[0].sender.Store(nil)
	a.refer(path, sh, 4096, link.MinRef)
	b.await("end", func() bool { b.take(); return b.p.Counters().ShmBroken == 1 })
}

func TestReadingMemoryCanBeForbidden(t *testing.T) {
	t.Setenv("VERBENA_SHM_DIRECT", "0")
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.put(path, 7, 8, 1)
	a.p.Send(a.tx)
	b.next()
	sent := path.Route.(*route).rings.Load()
	offer := sent.offer().bytes() // as of a sender that permits it
	sent.write(offer[:])
	_, later := buffer(t, page)
	a.tx.Reads(path, 7, later)
	a.await("answer to what came after the offer", func() bool {
		return (*sent.shares.Load())[0].state.Load() == shareRefused
	})
	if (*b.in.Load())[0].sender.Load() != nil {
		t.Error("the receiver reads the memory")
	}
}

// TestManyInvalidMemoryReferences checks that a batch has room for its packets however many references to the sender's
// memory precede them that are dropped.
func TestManyInvalidMemoryReferences(t *testing.T) {
	const many = 3 * recvMax
	a, b, path, sh := lend(t)
	_, from := private(t, 1<<20)
	for range many {
		head := a.tx.AllocRef(path, 7, wire.BTHLen, sh, from, link.MinRef+1)
		wire.BTH(head).Put(wire.RC|wire.WriteMiddle, 0, 0xFFFF, 7, 1, 0)
	}
	a.refer(path, sh, from, link.MinRef)
	if p := b.next()[0]; p.Away == nil {
		t.Error("the packet is not by reference")
	}
	if c := b.p.Counters(); c.RxMalformed != many {
		t.Errorf("%d packets dropped: must be %d", c.RxMalformed, many)
	}
}
